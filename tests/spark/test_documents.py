"""What the documents show works as it stands there: their blocks of Python, one after the other, as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pyspark_commitlog import CommitLog
from tests.spark.conftest import REPOSITORY
from tests.spark.submitted import without_the_venv

FLIGHTS = "examples/data/nycflights-2013.parquet"
#: The pages whose blocks make the program, in this order.
PAGES = (
    "README.md",
    "docs/reference/producer.md",
    "docs/reference/consumer.md",
    "docs/reference/logging.md",
    "docs/how-to/watch-lag.md",
    "docs/tutorials/first-topic.md",
)
#: Pages with blocks that tests of their own run.
ELSEWHERE = {"docs/how-to/sail.md": "tests/sail"}
#: Pages whose blocks are parts of programs, with names that the text gives.
PARTS = {
    "docs/explanation/groups.md",
    "docs/how-to/access.md",
    "docs/how-to/maintenance.md",
    "docs/how-to/move-to-a-bucket.md",
    "docs/how-to/object-stores.md",
    "docs/how-to/replicas.md",
    "docs/reference/limits.md",
}
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
#: What the text leaves to its reader.
GIVEN = """
import pyarrow
table = pyarrow.table({"value": ["from a table"]})
lines = ["first", "second"]
"""


def test_every_page_with_python_is_run() -> None:
    found = {
        page.relative_to(REPOSITORY).as_posix()
        for page in [REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]
        if _BLOCK.search(page.read_text())
    }
    assert found == {*PAGES, *ELSEWHERE, *PARTS}
    for page in PARTS:
        for block in _BLOCK.findall((REPOSITORY / page).read_text()):
            compile(block, page, "exec")


def test_the_python_of_the_documents_runs(tmp_path: Path) -> None:
    blocks = [block for page in PAGES for block in _BLOCK.findall((REPOSITORY / page).read_text())]
    (orders,) = re.findall(r"```csv\n(.*?)```", (REPOSITORY / PAGES[-1]).read_text(), re.DOTALL)
    (tmp_path / "orders.csv").write_text(orders)
    program = "".join((GIVEN, *blocks)).replace('"/data/', f'"{tmp_path}/')
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
    assert ds.dataset(tmp_path / "shop-files", format="parquet").count_rows() == orders.count("\n") - 1
