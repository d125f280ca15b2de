"""What the documents show works as it stands there: their blocks of Python, one after the other, as one program."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from pyspark_commitlog import CommitLog
from tests.spark.conftest import REPOSITORY
from tests.spark.submitted import without_the_venv
from tests.support import guides

FLIGHTS = "examples/data/nycflights-2013.parquet"
#: The pages whose blocks make the program, in this order.
PAGES = (
    "docs/reference/producer.md",
    "docs/reference/consumer.md",
    "docs/reference/logging.md",
    "docs/how-to/watch-lag.md",
    "docs/how-to/dead-letters.md",
)
#: Programs of their own.
ALONE = ("README.md",)
#: Pages with blocks that tests of their own run.
ELSEWHERE = {
    "docs/how-to/sail.md": "tests/sail",
    "docs/how-to/test-your-job.md": "tests/spark/test_job_tests.py",
    **{f"docs/how-to/{page}.md": "tests/cli/test_guides.py" for page in guides.PLAIN},
    **{f"docs/how-to/{page}.md": "tests/spark/test_spark_guides.py" for page in guides.WITH_SPARK},
    **{f"docs/tutorials/{page}.md": "tests/spark/test_spark_guides.py" for page in guides.WALKED},
}
#: Pages whose blocks are parts of programs, with names that the text gives.
PARTS = {
    "docs/explanation/groups.md",
    "docs/how-to/access.md",
    "docs/how-to/from-kafka.md",
    "docs/how-to/json-to-typed.md",
    "docs/how-to/maintenance.md",
    "docs/how-to/metrics.md",
    "docs/how-to/move-to-a-bucket.md",
    "docs/how-to/object-stores.md",
    "docs/how-to/replicas.md",
    "docs/how-to/typed-topics.md",
    "docs/reference/limits.md",
}
_BLOCK = re.compile(r"```python(?: title=\S+)?\n(.*?)```", re.DOTALL)
#: What the text leaves to its reader.
GIVEN = """
from pyspark_commitlog import CommitLog, configure_spark
from pyspark.sql import SparkSession
log = CommitLog("/data/commitlog")
log.create_topic("flights", partitions=4, config={"retention.ms": -1})
spark = configure_spark(SparkSession.builder).getOrCreate()
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
    without = {page for page in guides.PLAIN if not _BLOCK.search((guides.HOW_TO / f"{page}.md").read_text())}
    assert found == {*PAGES, *ALONE, *ELSEWHERE, *PARTS} - {f"docs/how-to/{page}.md" for page in without}
    for page in PARTS:
        for block in _BLOCK.findall((REPOSITORY / page).read_text()):
            compile(block, page, "exec")


@pytest.mark.nightly
def test_the_python_of_the_documents_runs(tmp_path: Path) -> None:
    blocks = [block for page in PAGES for block in _BLOCK.findall((REPOSITORY / page).read_text())]
    program = "".join((GIVEN, *blocks)).replace('"/data/', f'"{tmp_path}/')
    endless = 'group_id="billing", '
    assert program.count(endless) == 1
    program = program.replace(endless, f"{endless}consumer_timeout_ms=1000, ")
    output = _run(program, tmp_path)

    sent = ["send", "table", "first", "second"]
    partitions = CommitLog(str(tmp_path / "commitlog")).topic("flights").describe().partitions
    assert sum(partition.high_watermark for partition in partitions) == len(sent)
    assert len(output.splitlines()) >= len(sent)  # the consumer's, from the start
    assert [line.count("__streams.errors.offset") for line in output.splitlines() if "orders" in line[:11]] == [0, 1]


@pytest.mark.each_commit
def test_readme_prints_what_it_shows_anywhere_and_says_what_a_second_run_does(tmp_path: Path) -> None:
    """No clone, no right of root, no directory that must be there: a home, and a directory to stand in."""
    readme = (REPOSITORY / "README.md").read_text()
    ((program, shown),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", readme, re.DOTALL)
    assert _counts(_run(program, tmp_path)) == _counts(shown)
    assert ds.dataset(tmp_path / "commitlog-pages", format="parquet").count_rows() == 1_000_000
    assert "UNSETTLED is normal" in readme
    assert "Run it twice, and the batch is there twice" in readme


def _counts(output: str) -> str:
    """Return what was printed without what differs from run to run: ids, bytes and seconds; and without padding."""
    lines = re.sub(r"TopicId: \S+|[\d,]+ bytes|\d+ s$", "…", output, flags=re.MULTILINE).splitlines()
    rows = [line.split() for line in lines]
    return "\n".join(" ".join(row[:5] + row[6:] if len(row) == 7 and row[0].isdigit() else row) for row in rows)


def _run(program: str, tmp_path: Path) -> str:
    """Run a program by the path of its interpreter alone: nothing is activated; return what it printed."""
    path = Path(tempfile.mkdtemp(dir=tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env={**without_the_venv(path), "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
