"""Processes that are members of a group, and what they wrote down."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from pyspark_commitlog.errors import CommitFailedError, CommitLogError
from pyspark_commitlog.groups.config import MemberConfig
from pyspark_commitlog.groups.member import GroupMember
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.topics import CommitLog

_AT_ONCE = 5


def consume(root: Path, name: str, strategy: str, done: Path) -> None:
    """Read what is assigned, write it down, then commit it; until a file appears, and then leave."""
    log = CommitLog(str(root))
    config = MemberConfig(session_timeout_ms=600, heartbeat_interval_ms=100, initial_rebalance_delay_ms=50)
    member = GroupMember(
        log.groups.open("g"), ["t"], client_id=name, partition_assignment_strategy=[strategy], config=config
    )
    stop = threading.Event()
    threading.Thread(target=_beat, args=(member, stop), daemon=True).start()
    positions: dict[TopicPartition, int] = {}
    with open(root.parent / f"{name}.read", "a") as out:
        while not done.exists():
            found = member.poll()
            if found is not None:
                committed = log.groups.open("g").newest().offsets(_topic_id(log))
                positions = {p: positions[p] for p in found.partitions - found.assigned} | {
                    p: committed.get(p.partition, 0) for p in found.assigned
                }
            for place, position in list(positions.items()):
                for record in log.read("t", place.partition, position, _AT_ONCE):
                    out.write(f"{place.partition} {record.offset}\n")
                    positions[place] = record.offset + 1
            out.flush()
            try:
                member.commit(positions)
            except CommitFailedError:
                continue
            time.sleep(0.01)
    stop.set()
    member.leave()


def _topic_id(log: CommitLog) -> str:
    return log.describe("t").topic_id


def _beat(member: GroupMember, stop: threading.Event) -> None:
    while not stop.wait(0.05):
        try:
            member.heartbeat()
        except CommitLogError:  # the thread that polls is told, too
            return


def read_by_all(directory: Path) -> set[tuple[int, int]]:
    """Return (partition, offset) of all that was written down; a torn last line does not count."""
    lines = [line.split() for file in directory.glob("*.read") for line in file.read_text().split("\n")[:-1]]
    return {(int(each[0]), int(each[1])) for each in lines}
