"""Many small commits: what they cost a writer, and a reader afterwards."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from bench import TOPIC, Bench
from compare import MILLISECONDS, Contender
from history import commit_and_settle

from pyspark_commitlog import CommitLog

RECORDS = 10_000
COMMITS = 1_000


def small(bench: Bench) -> None:
    """1,000 commits of 10 records, below Spark, settled by the commits themselves; then a scan of them."""
    rows = pq.read_table(bench.sample).slice(0, RECORDS).combine_chunks()
    taken = bench.table.seconds(Contender(lambda root: _commits(root, rows, COMMITS), bench.root), {})[""]
    each = [seconds * 1000 / COMMITS for seconds in taken]
    bench.table.compare("commit of 10 records, without Spark", MILLISECONDS, {"": each})
    many, once = bench.root(keep=True), bench.root(keep=True)
    _commits(many, rows, COMMITS)
    _commits(once, rows, 1)
    peers = {"the same records in one commit": bench.read(once)}
    bench.table.rates("scan of 1,000 commits of 10 records", RECORDS, bench.read(many), peers)


def _commits(root: str, rows: pa.Table, commits: int) -> None:
    topic = CommitLog(root).root.topic(TOPIC)
    step = RECORDS // commits
    for first in range(0, RECORDS, step):
        commit_and_settle(topic, *rows.slice(first, step).to_batches())
