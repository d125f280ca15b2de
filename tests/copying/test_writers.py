"""Who wrote to the source goes on at the copy: a repeated commit is known there, a producer's numbers go on (R6)."""

from __future__ import annotations

import re

import pytest

from pyspark_commitlog.errors import CorruptionError, StaleBatchError, TopicChangedError, WriterFencedError
from pyspark_commitlog.topic.write.producers import init_producer, landed_ranges
from pyspark_commitlog.topic.write.writers import WRITER_ROWS, ProducerBatch, Transaction
from tests.copying.conftest import Pair
from tests.support.records import append, batch_of


def test_a_query_goes_on_behind_its_last_batch(pair: Pair) -> None:
    pair.source.create()
    for version in range(3):
        append(pair.source.handle(), batch_of([b"%d" % version]), writer=Transaction("spark:q", version))
    pair.copy()
    assert append(pair.there.handle(), batch_of([b"2"]), writer=Transaction("spark:q", 2)).skipped
    with pytest.raises(StaleBatchError):
        append(pair.there.handle(), batch_of([b"1"]), writer=Transaction("spark:q", 1))
    assert append(pair.there.handle(), batch_of([b"3"]), writer=Transaction("spark:q", 3)).rows == 1
    assert pair.there.values() == [b"0", b"1", b"2", b"3"]


def test_a_producer_goes_on_with_its_epoch_and_numbers(pair: Pair) -> None:
    pair.source.create()
    _, row = init_producer(pair.source.handle(), "producer:p")
    append(pair.source.handle(), batch_of([b"a", b"b"]), writer=ProducerBatch("producer:p", row.epoch, 0, 1))
    pair.put(b"of another")
    pair.copy()
    batch = ProducerBatch("producer:p", row.epoch, 0, 1)
    assert append(pair.there.handle(), batch_of([b"a", b"b"]), writer=batch).skipped
    topic_id, taken_over = init_producer(pair.there.handle(), "producer:p")
    assert taken_over.epoch == row.epoch + 1
    assert taken_over.last == 1
    with pytest.raises(WriterFencedError):
        append(pair.there.handle(), batch_of([b"c"]), writer=ProducerBatch("producer:p", row.epoch, 2, 2))
    assert topic_id == pair.states()[0].topic_id


def test_a_copy_that_is_brought_up_to_date_knows_what_came_since(pair: Pair) -> None:
    pair.source.create()
    append(pair.source.handle(), batch_of([b"0"]), writer=Transaction("spark:q", 0))
    pair.copy()
    append(pair.source.handle(), batch_of([b"1"]), writer=Transaction("spark:q", 1))
    append(pair.source.handle(), batch_of([b"2"]), writer=Transaction("spark:other", 0))
    pair.copy()
    assert append(pair.there.handle(), batch_of([b"1"]), writer=Transaction("spark:q", 1)).skipped


def test_many_writers_go_to_a_table_beside_the_entry(pair: Pair) -> None:
    pair.source.create()
    for number in range(150):
        append(pair.source.handle(), batch_of([b"v"]), writer=Transaction(f"app-{number}", 1))
    pair.copy()
    assert pair.states()[1].writers.rows == {}
    for number in (0, 64, 149):
        assert append(pair.there.handle(), batch_of([b"v"]), writer=Transaction(f"app-{number}", 1)).skipped
    assert pair.states()[1].is_copy, "nothing was put"


def test_a_table_of_writers_that_is_lost_is_named_and_not_looked_for_for_ever(locals_: Pair) -> None:
    """The newest entry names it: there is no newer one to look at."""
    for number in range(WRITER_ROWS + 1):
        append(locals_.source.handle(), batch_of([b"v"]), writer=Transaction(f"app-{number}", 1))
    (lost,) = locals_.source.files(".writers")
    (locals_.source.path / lost).unlink()
    looks = 0

    def looked(operation: str, path: str, moment: str) -> None:
        nonlocal looks
        looks += (operation, path, moment) == ("read", lost, "before")
        assert looks < 10

    with pytest.raises(CorruptionError, match=f"{re.escape(lost)} is missing: restore it from a copy"):
        locals_.copy(from_hook=looked)


def test_a_writer_of_a_former_topic_is_refused_at_the_copy_too(pair: Pair) -> None:
    pair.source.create()
    append(pair.source.handle(), batch_of([b"v"]), writer=Transaction("spark:old", 1))
    pair.source.log().topic("t").delete()
    pair.source.create()
    pair.copy()
    with pytest.raises(TopicChangedError):
        append(pair.there.handle(), batch_of([b"v"]), writer=Transaction("spark:old", 2))


def test_a_producer_is_not_handed_the_offsets_of_others(pair: Pair) -> None:
    """The entry that brought its last batch brought those of others, too: nobody knows where the batch lies."""
    pair.source.create()
    pair.put(b"of another")
    batch = ProducerBatch("transient:p", 0, 0, 0, since=0)
    append(pair.source.handle(), batch_of([b"a"]), writer=batch)
    topic_id = pair.source.handle().newest()[1].topic_id
    assert landed_ranges(pair.source.handle(), topic_id, batch) == {0: (1, 2)}
    pair.copy()
    assert landed_ranges(pair.there.handle(), topic_id, batch) == {}
