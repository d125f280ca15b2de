"""The records that are measured: skewed user keys of 8 to 16 bytes, JSON events of about 200 bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_commitlog import CommitLog, Producer

#: Microseconds between the first records of two seeds.
APART = 500_000_000
_PAGES = ["/", "/cart", "/checkout", "/search?q=shoes", "/products/1271", "/products/88/reviews", "/account/orders"]
_AGENTS = ["Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (Macintosh; Intel Mac OS X 14)", "okhttp/4.12", "curl/8.5"]


def events(count: int, seed: int) -> pa.Table:
    """Return `count` records: key binary, value binary, timestamp; the same for the same seed."""
    rng = np.random.default_rng(seed)
    users = pa.array(np.minimum(rng.zipf(1.3, count), 5_000_000).astype(np.int64) * 7919 % 100_000_007)
    names = pc.binary_join_element_wise("user", pc.cast(users, pa.string()), "-")
    start = 1_700_000_000_000_000 + seed * APART
    instants = start + np.arange(count) * 1000
    parts = [
        '{"user":"', names,
        '","page":"', pa.array(_PAGES).take(pa.array(rng.integers(0, len(_PAGES), count))),
        '","agent":"', pa.array(_AGENTS).take(pa.array(rng.integers(0, len(_AGENTS), count))),
        '","session":"', pc.cast(pa.array(rng.integers(10**15, 10**16, count)), pa.string()),
        '","amount":', pc.cast(pa.array(rng.integers(0, 100_000, count)), pa.string()),
        ',"ts":', pc.cast(pa.array(instants), pa.string()),
        ',"country":"DE","ab":["new-header","fast-search"]}',
    ]  # fmt: skip
    values = pc.binary_join_element_wise(*parts, "")
    columns = {
        "key": pc.cast(names, pa.binary()),
        "value": pc.cast(values, pa.binary()),
        "timestamp": pa.array(instants, pa.timestamp("us", "UTC")),
    }
    return pa.table(columns)


def make_small_topic(root: str, topic: str, records: int, partitions: int) -> None:
    """Make a topic in `root` with so many records of a few bytes each, written by one `send_batch`."""
    CommitLog(root).create_topic(topic, partitions)
    values = pa.array([b"%d" % number for number in range(records)], pa.binary())
    with Producer(root) as producer:
        producer.send_batch(topic, pa.table({"value": values})).result()


def prepare(directory: Path, records: int, per_file: int) -> Path:
    """Return a directory of Parquet files with `records` records, made if it is not there."""
    target = directory / f"events-{records}-{per_file}"
    if not target.exists():
        partial = target.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        for number, first in enumerate(range(0, records, per_file)):
            table = events(min(per_file, records - first), number)
            pq.write_table(table, partial / f"part-{number:03d}.parquet", compression="snappy")
        partial.rename(target)
    return target
