"""README's example for Sail, run as it stands there, with its root elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_readme_s_example_prints_what_it_wrote(tmp_path: Path) -> None:
    section = README.read_text().partition("### Sail")[2].partition("\n### ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    code = code.replace("/data/commitlog", str(tmp_path / "log"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["1000"], done.stderr
