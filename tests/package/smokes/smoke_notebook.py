"""A notebook of a topic and a plot, executed by nbconvert."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CODE = """\
from pyspark_commitlog import CommitLog
from pyspark_commitlog.spark.session.live import draw, svg
from IPython.display import HTML, display
display(CommitLog("notebook-log").create_topic("clicks").describe())
display(HTML(svg(draw({}))))
"""

if __name__ == "__main__":
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "outputs": [], "source": CODE}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    Path("clicks.ipynb").write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", "clicks.ipynb"]
    subprocess.run(command, check=True)
    page = Path("clicks.html").read_text()
    assert "<svg" in page
    assert "clicks" in page
    print("notebook")
