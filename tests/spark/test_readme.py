"""What README shows works as it stands there: its blocks of Python, one after the other, as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pyspark_commitlog import CommitLog
from tests.spark.conftest import REPOSITORY
from tests.spark.test_examples import without_the_venv

FLIGHTS = "examples/data/nycflights-2013.parquet"
#: What the text leaves to its reader.
GIVEN = """
import pyarrow
table = pyarrow.table({"value": ["from a table"]})
lines = ["first", "second"]
"""


def test_the_python_of_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    here = [block for block in blocks if "pysail" not in block]  # tests/sail runs that one
    assert len(blocks) == len(here) + 1
    program = "".join((GIVEN, *here)).replace('"/data/', f'"{tmp_path}/')
    endless = 'group_id="billing", '
    assert program.count(endless) == 1
    program = program.replace(endless, f"{endless}consumer_timeout_ms=1000, ")
    flights = pq.read_table(REPOSITORY / FLIGHTS)[:1000]
    (tmp_path / FLIGHTS).parent.mkdir(parents=True)
    pq.write_table(flights, tmp_path / FLIGHTS)
    (tmp_path / "path").mkdir()
    done = subprocess.run(  # by the path of the interpreter alone: nothing is activated, and nothing says which Python
        [sys.executable, "-c", program],
        cwd=tmp_path, env=without_the_venv(tmp_path / "path"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]

    assert ds.dataset(tmp_path / "flights-parquet", format="parquet").count_rows() == len(flights)
    partitions = CommitLog(str(tmp_path / "commitlog")).describe("flights").partitions
    assert sum(partition.high_watermark for partition in partitions) == len(flights) + len(
        ["send", "table", "first", "second"]
    )
    assert len(done.stdout.splitlines()) >= len(flights)  # the consumer's, from the start
