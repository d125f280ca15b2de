"""What collecting adds to commits on an object store, where an entry goes by a request of its own.

    make bench-collecting          or: python benchmarks/collecting.py [--entries N] [--every SECONDS] [--delay-ms N]

A store in memory, whose every request takes as long as said; so many entries wait that are settled and old. Then four
records are committed at a time, as soon as `--every` allows, until these entries were collected. Printed: how many
commits took how much longer than the one in the middle.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.storage.object.object_store import ObjectStorage
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from pyspark_commitlog.topic.settle.settle_load import is_look_due, process_topics, waiting_of
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of

_LONG_MS = 10**7


class Slow(ObjectStorage):
    """Objects in memory; a request takes `seconds`, and all is older by `shift_ms`."""

    seconds, shift_ms = 0.0, 0

    def now_ms(self) -> int:
        """Return the store's time."""
        return super().now_ms() + self.shift_ms

    def _count(self, verb: str, times: int = 1) -> None:
        super()._count(verb, times)
        time.sleep(self.seconds * times)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=600, help="that wait to be collected (600)")
    parser.add_argument("--every", type=float, default=0.0, help="seconds from one commit to the next, at least (0)")
    parser.add_argument("--delay-ms", type=float, default=20.0, help="that a request takes (20)")
    parser.add_argument("--chunks", action="store_true", help="records lie in chunks, not inline in the entries")
    args = parser.parse_args()
    storage = Slow(f"memory://{uuid.uuid4()}")
    CommitLog.on(storage).create_topic("t", 1, {"inline.max.bytes": 0} if args.chunks else {})
    for _ in range(args.entries):
        _commit(TopicLog(storage, "t"))
    process_topics.renew()
    storage.seconds, storage.shift_ms = args.delay_ms / 1000, _LONG_MS
    took, topic = list[float](), TopicLog(storage, "t")
    there, waiting = topic.journal.sequences(), waiting_of(storage, topic.newest()[1].topic_id)
    has_begun = False
    while not has_begun or waiting.left is not None:
        began = time.monotonic()
        _commit(topic)
        took.append(time.monotonic() - began)
        has_begun = has_begun or waiting.left is not None
        time.sleep(max(0.0, args.every - took[-1]))
    gone = sum(number < topic.journal.sequences()[0] for number in there)
    usual = statistics.median(took)
    longer = sorted(each - usual for each in took if each > 2 * usual)
    print(f"{gone} entries were collected beside {len(took)} commits; one takes {usual * 1000:.0f} ms")
    if longer:
        middle, most = statistics.median(longer) * 1000, longer[-1] * 1000
        print(f"{len(longer)} of them took more than twice that: {middle:.0f} ms more, the longest {most:.0f} ms")


def _commit(topic: TopicLog) -> None:
    append(topic, batch_of([b"v" * 10] * 4, partition=[0] * 4))
    topic_id = topic.newest()[1].topic_id
    if is_look_due(topic.storage, topic_id, 40):
        settle_after_commit(topic, topic_id)


if __name__ == "__main__":
    main()
