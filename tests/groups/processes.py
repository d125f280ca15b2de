"""Processes that are members of a group, and what they wrote down."""

from __future__ import annotations

from pathlib import Path

from pyspark_commitlog import Consumer

_AT_ONCE = 5


def consume(root: Path, name: str, strategy: str, done: Path) -> None:
    """Write down what comes, and come back for more, which commits it; until a file appears, and then leave."""
    consumer = Consumer(
        str(root),
        "t",
        group_id="g",
        client_id=name,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[strategy],
        session_timeout_ms=600,
        heartbeat_interval_ms=100,
        initial_rebalance_delay_ms=50,
        auto_commit_interval_ms=0,
        max_poll_records=_AT_ONCE,
    )
    with open(root.parent / f"{name}.read", "a") as out, consumer:
        while not done.exists():
            out.writelines(f"{record.partition} {record.offset}\n" for record in consumer.poll(0.05))
            out.flush()


def read_by_all(directory: Path) -> set[tuple[int, int]]:
    """Return (partition, offset) of all that was written down; a torn last line does not count."""
    lines = [line.split() for file in directory.glob("*.read") for line in file.read_text().split("\n")[:-1]]
    return {(int(each[0]), int(each[1])) for each in lines}
