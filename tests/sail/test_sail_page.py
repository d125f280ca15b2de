"""The example of the page about Sail, run as it stands there, with its root elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/how-to/sail.md"


def test_the_example_prints_what_it_wrote(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    code = code.replace("/data/commitlog", str(tmp_path / "log"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["1000"], done.stderr
