"""Who writes to the topics of which records go, and who reads there and is behind: roles, as in `roles`."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator

from pyspark_commitlog import CommitLog, Consumer, Producer, TopicPartition
from pyspark_commitlog.errors import CommitLogError, OffsetOutOfRangeError
from tests.nemesis.history import Deleted, Overtaken, Polled, Sent
from tests.nemesis.playing import Play, keep_sending, written_down
from tests.nemesis.reading import NUMBERED, keyed
from tests.nemesis.stage import PARTITIONS, RETAINED, Stage

#: A life writes to keys of its own: some all its life, and so many others at a time, which are left after so many records.
_KEPT_KEYS, _KEYS, _RECORDS = 3, 5, 60
_OFTEN_KEPT, _OFTEN_DELETED = 0.3, 0.15
#: Seconds that a consumer which is to be behind waits between two polls.
_WAITS = (0.1, 0.1, 0.5, 8.0)
_FEW = 40
#: What is deleted by hand: a few of the oldest records, where there are many.
_AT_MOST, _WHERE_THERE_ARE = 30, 200


def change(asked: Play, chance: random.Random) -> None:
    """Send numbered values of keys, and delete some keys; what may land is written down before it is sent."""
    writer = f"{asked.name}.{asked.next_life()}"
    changes = _changes(writer, chance)
    keep_sending(asked, chance, "change", lambda producer: _send(asked, producer, writer, *next(changes)))


def _changes(writer: str, chance: random.Random) -> Iterator[tuple[int, int, bool]]:
    """Yield the number of a record, of its key, and whether it deletes that."""
    number = 0
    while True:
        number += 1
        kept = chance.random() < _OFTEN_KEPT
        first = _KEPT_KEYS + number // _RECORDS * _KEYS
        key = chance.randrange(_KEPT_KEYS) if kept else first + chance.randrange(_KEYS)
        yield number, key, chance.random() < _OFTEN_DELETED


def _send(asked: Play, producer: Producer, writer: str, number: int, key_number: int, deletes: bool) -> None:
    key, value = f"{writer}/{key_number}", f"{writer}-{number}"
    text = keyed(key, value, deletes=deletes)
    asked.recorder.add(Sent(writer, text))
    sent = producer.send(
        asked.topic,
        None if deletes else value,
        key,
        {NUMBERED: value} if deletes else None,
        partition=key_number % PARTITIONS,
    )
    sent.add_done_callback(written_down(asked, writer, text))


def trail(asked: Play, chance: random.Random) -> None:
    """Be a consumer that is behind now and then: what it has not read yet is deleted meanwhile, of which it is told, or not."""
    places = [TopicPartition(asked.topic, partition) for partition in range(PARTITIONS)]
    while not asked.ended():
        reset = chance.choice(("earliest", "none"))
        try:
            with Consumer(
                asked.urls, storage_options=asked.stage.options, auto_offset_reset=reset, max_poll_records=_FEW
            ) as consumer:
                consumer.assign(places)
                consumer.seek_to_beginning()
                while not asked.ended():
                    _follow(asked, consumer, places)
                    _wait(asked, chance.choice(_WAITS) * asked.pause)
        except (CommitLogError, OSError) as error:
            asked.failed("trail", error)
            time.sleep(0.2)


def _follow(asked: Play, consumer: Consumer, places: list[TopicPartition]) -> None:
    before = {place: consumer.position(place) for place in places}
    found = defaultdict[int, list[tuple[int, str]]](list)
    try:
        for record in consumer.poll(0.5):
            found[record.partition].append((record.offset, (record.value or b"").decode()))
    except OffsetOutOfRangeError:
        starts = consumer.beginning_offsets(places)
        behind = [place for place in places if before[place] < starts[place]]
        if not behind:
            raise
        asked.recorder.add(*(Overtaken(asked.name, place.partition, before[place]) for place in behind))
        consumer.seek_to_beginning(*behind)
        return
    starts = consumer.beginning_offsets(places)
    polled = [
        Polled(place.partition, before[place], tuple(found[place.partition]), starts[place])
        for place in places
        if found[place.partition]
    ]
    asked.recorder.add(*polled)


def _wait(asked: Play, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not asked.ended():
        time.sleep(0.1)


def delete_some(stage: Stage, log: CommitLog, root: str, chance: random.Random) -> list[Deleted]:
    """Delete a few of the oldest records of a partition; return what was deleted.

    Raises:
        CommitLogError, OSError: it may have been done, or not.
    """
    partition = chance.randrange(PARTITIONS)
    _, state = stage.topic(root, RETAINED).newest()
    start, end = state.log_start[partition], state.log_end[partition]
    if end - start < _WHERE_THERE_ARE:
        return []
    offset = start + chance.randint(1, _AT_MOST)
    log.topic(RETAINED).delete_records({partition: offset})
    return [Deleted(partition, offset)]
