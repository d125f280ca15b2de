"""Count a topic's records in SQLite, exactly once, however often this is killed, in as many processes as you like:

    python examples/exactly_once_sqlite.py --root /tmp/commitlog --topic lines --database /tmp/counts.db

A count and the offset after it go into one transaction of the database, so either both are there or none. The
processes are members of one group, which share the partitions. A member that is given a partition goes on where the
database is. One that has lost a partition, and does not know it yet, finds that the database is further, and counts
nothing. What the group has committed only shows others how far it is. No Spark.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby

from pyspark_commitlog import Consumer, ConsumerRebalanceListener, Record, TopicPartition

SCHEMA = """
CREATE TABLE IF NOT EXISTS counts (value BLOB PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (topic TEXT, part INTEGER, next INTEGER NOT NULL, PRIMARY KEY (topic, part));
"""


class Counts(ConsumerRebalanceListener):
    """The database, and where a consumer's partitions are in it."""

    def __init__(self, path: str, consumer: Consumer) -> None:
        self._database = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self._database.executescript(SCHEMA)
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Go on where the database is."""
        starts = self._consumer.beginning_offsets(assigned)
        for place in assigned:
            row = place.topic, place.partition, starts[place]
            self._database.execute("INSERT OR IGNORE INTO offsets VALUES (?, ?, ?)", row)
            self._go_on(place)

    def _go_on(self, place: TopicPartition) -> None:
        query = "SELECT next FROM offsets WHERE topic = ? AND part = ?"
        [(position,)] = self._database.execute(query, (place.topic, place.partition))
        self._consumer.seek(place, position)

    def add(self, place: TopicPartition, records: Sequence[Record]) -> None:
        """Count records of a partition that follow each other, unless somebody else has counted there meanwhile."""
        first, after = records[0].offset, records[-1].offset + 1
        self._database.execute("BEGIN IMMEDIATE")
        moved = self._database.execute(
            "UPDATE offsets SET next = ? WHERE topic = ? AND part = ? AND next <= ?",
            (after, place.topic, place.partition, first),
        ).rowcount
        if not moved:
            self._database.execute("ROLLBACK")
            self._go_on(place)  # if another process has it now, the next poll says so
            return
        self._database.executemany(
            "INSERT INTO counts VALUES (?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
            Counter(record.value for record in records).items(),
        )
        self._database.execute("COMMIT")


def main() -> None:
    """Count until nothing has come for a while."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="root of the commit log")
    parser.add_argument("--topic", default="lines")
    parser.add_argument("--group", default="counting")
    parser.add_argument("--database", required=True, help="file of the SQLite database")
    parser.add_argument("--idle", type=float, default=10.0, help="end when nothing has come for so many seconds")
    parser.add_argument("--session-timeout-ms", type=int, default=45_000)
    args = parser.parse_args()
    consumer = Consumer(
        args.root,
        group_id=args.group,
        auto_offset_reset="none",  # the database says where to begin
        session_timeout_ms=args.session_timeout_ms,
        heartbeat_interval_ms=min(3000, args.session_timeout_ms // 3),
    )
    counts = Counts(args.database, consumer)
    with consumer:
        consumer.subscribe([args.topic], listener=counts)
        while records := consumer.poll(args.idle):
            for (topic, partition), found in groupby(records, key=lambda record: (record.topic, record.partition)):
                counts.add(TopicPartition(topic, partition), list(found))


if __name__ == "__main__":
    main()
