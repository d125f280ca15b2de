"""What the loss of a root costs that leads many topics: until one is written and read again, and until all are.

    python benchmarks/root_loss.py [--topics 1000] [--how away|hangs] [--directory /tmp]

Three roots with data on this disk, and one that decides. ``away``: the leader's directory is renamed. ``hangs``: what
is read first there is a FIFO that nobody writes to, so the call waits in the kernel.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path

from pyspark_commitlog import CommitLog, Producer

PARTITIONS = 1


def make(home: Path, topics: int) -> tuple[str, list[str]]:
    """Make the roots, and topics that the first one leads, with a record each; return their path and the topics."""
    places = [str(home / name) for name in "abc"]
    log = CommitLog.create_root(places, [str(home / "metadata")])
    names = [f"t{number:04d}" for number in range(topics)]
    leader = next(root.root_id for root in log.replicas() if root.url == places[0])
    with Producer(places[0], linger_ms=0) as producer:
        for name in names:
            log.create_topic(name, PARTITIONS, {"min.insync.replicas": 2})
            replication = log.describe(name).replication
            assert replication is not None
            if replication.leader != leader:
                log.elect(name, leader)
            producer.send(name, b"before").result()
    return ",".join(places), names


def lose(root: Path, how: str) -> None:
    """Take a root away, or have it hang."""
    if how == "away":
        root.rename(root.with_name("away"))
        return
    marker = root / "commitlog.json"
    marker.unlink()
    os.mkfifo(marker)


def measure(path: str, names: list[str], began: float) -> None:
    """Print when topics are written and read again, in seconds after the loss: one, then all at once."""
    log = CommitLog(path)
    with Producer(path, linger_ms=0) as producer:

        def check(name: str) -> None:
            found = [record.value for record in log.read(name, 0, 0, 10)]
            assert found == [b"before", b"after"], (name, found)

        producer.send(names[0], b"after").result()
        producer.flush()
        check(names[0])
        print(f"the first one is written and read after {time.monotonic() - began:.1f} s", flush=True)
        for name in names[1:]:
            producer.send(name, b"after")
        producer.flush()
        print(f"all are written after {time.monotonic() - began:.1f} s", flush=True)
        for name in names[1:]:
            check(name)
        print(f"all are read after {time.monotonic() - began:.1f} s", flush=True)


def main() -> None:
    """Measure."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--topics", type=int, default=1000)
    asked.add_argument("--how", choices=["away", "hangs"], default="away")
    asked.add_argument("--directory", default=None)
    given = asked.parse_args()
    logging.getLogger("pyspark_commitlog").setLevel(logging.ERROR)
    home = Path(tempfile.mkdtemp(prefix="root-loss-", dir=given.directory))
    began = time.monotonic()
    try:
        path, names = make(home, given.topics)
        print(
            f"{given.topics} topics made in {time.monotonic() - began:.0f} s; their leader's root is lost ({given.how})"
        )
        lose(home / "a", given.how)
        measure(path, names, time.monotonic())
    finally:
        if given.how == "hangs" and (home / "a" / "commitlog.json").exists():
            os.close(os.open(home / "a" / "commitlog.json", os.O_RDWR | os.O_NONBLOCK))
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
