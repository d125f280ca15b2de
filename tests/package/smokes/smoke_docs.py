"""A manual of one page, built as the repository's is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFIG = """\
site_name: manual
theme:
  name: material
  font: false
plugins: [search, offline]
markdown_extensions: [tables, pymdownx.highlight, pymdownx.superfences]
"""

if __name__ == "__main__":
    Path("docs").mkdir()
    Path("docs/index.md").write_text("# Manual\n\n```python\nprint()\n```\n")
    Path("mkdocs.yml").write_text(CONFIG)
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "-f", "mkdocs.yml"], check=True)
    assert "highlight" in Path("site/index.html").read_text()
    print("docs")
