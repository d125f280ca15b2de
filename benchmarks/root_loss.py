"""What the loss of a root costs that leads many topics and groups: until each of them goes on.

    python benchmarks/root_loss.py [--topics 1000] [--groups 100] [--how away|hangs] [--by use|sync]
                                   [--directory /tmp]

Three roots with data on this disk, and one that decides. `away`: the leader's directory is renamed. `hangs`: what
is read first there is a FIFO that nobody writes to, so the call waits in the kernel. `use`: one process writes and
reads every topic, and commits for every group, which elects each leader on the way. `sync`: one runs
`log.replicas.sync()` first, as `commitlog replicas sync` does, which elects them all.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.replication.admin.replicating import hand_over

PARTITIONS = 1
BEFORE, AFTER = 1, 2
"""Offsets that groups commit: what they have read before the loss, and after."""


def make(home: Path, topics: int, groups: int) -> tuple[str, list[str], dict[str, str]]:
    """Make the roots, topics with a record each and groups that have read one, all of which the first root leads.

    Returns:
        The roots' path, the topics, and the topic of each group.
    """
    places = [str(home / name) for name in "abc"]
    log = CommitLog.create(places, [str(home / "metadata")])
    names = [f"t{number:04d}" for number in range(topics)]
    followed = {f"g{number:03d}": names[number % topics] for number in range(groups)}
    leader = next(root.root_id for root in log.replicas.describe() if root.url == places[0])
    with Producer(places[0], linger_ms=0) as producer:
        for name in names:
            log.create_topic(name, PARTITIONS, {"min.insync.replicas": 2})
            replication = log.topic(name).describe().replication
            assert replication is not None
            if replication.leader != leader:
                log.replicas.elect(name, leader)
            producer.send(name, b"before").result()
    for group, topic in followed.items():
        log.groups.commit(group, {topic: {0: BEFORE}})
        hand_over(log.root.group(group).journal.decided_log(), leader, "its topic's leader leads it, too")
    return ",".join(places), names, followed


def lose(root: Path, how: str) -> None:
    """Take a root away, or have it hang."""
    if how == "away":
        root.rename(root.with_name("away"))
        return
    marker = root / "commitlog.json"
    marker.unlink()
    os.mkfifo(marker)


class Since:
    """Prints what is done, and how many seconds after the loss."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, what: str) -> None:
        """Print it."""
        print(f"{what} after {time.monotonic() - self._began:.1f} s", flush=True)


def measure(path: str, names: list[str], followed: dict[str, str], since: Since) -> None:
    """Print when topics are written and read again, one, then all at once; then when all groups have gone on."""
    log = CommitLog(path)
    with Producer(path, linger_ms=0) as producer:

        def check(name: str) -> None:
            found = [record.value for record in log.topic(name).read(0, 0, 10)]
            assert found == [b"before", b"after"], (name, found)

        producer.send(names[0], b"after").result()
        producer.flush()
        check(names[0])
        since.say("the first topic is written and read")
        for name in names[1:]:
            producer.send(name, b"after")
        producer.flush()
        since.say("all topics are written")
        for name in names[1:]:
            check(name)
        since.say("all topics are read")
    go_on(log, followed, since)


def go_on(log: CommitLog, followed: dict[str, str], since: Since) -> None:
    """Commit for each group, and ask where it is."""
    for number, (group, topic) in enumerate(followed.items()):
        log.groups.commit(group, {topic: {0: AFTER}})
        (row,) = log.groups.describe(group).partitions
        assert row.offset == AFTER, (group, row)
        if not number:
            since.say("the first group has committed and is read")
    since.say("all groups have committed and are read")


def main() -> None:
    """Measure."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--topics", type=int, default=1000)
    asked.add_argument("--groups", type=int, default=100)
    asked.add_argument("--how", choices=["away", "hangs"], default="away")
    asked.add_argument("--by", choices=["use", "sync"], default="use")
    asked.add_argument("--directory", default=None)
    given = asked.parse_args()
    logging.getLogger("pyspark_commitlog").setLevel(logging.ERROR)
    home = Path(tempfile.mkdtemp(prefix="root-loss-", dir=given.directory))
    began = time.monotonic()
    try:
        path, names, followed = make(home, given.topics, given.groups)
        print(
            f"{len(names)} topics and {len(followed)} groups made in {time.monotonic() - began:.0f} s; their leader's "
            f"root is lost ({given.how})"
        )
        lose(home / "a", given.how)
        since = Since()
        if given.by == "sync":
            with suppress(ExceptionGroup):  # groups have a replica at the lost root
                CommitLog(path).replicas.sync()
            since.say("sync has run")
        measure(path, names, followed, since)
    finally:
        if given.how == "hangs" and (home / "a" / "commitlog.json").exists():
            os.close(os.open(home / "a" / "commitlog.json", os.O_RDWR | os.O_NONBLOCK))
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
