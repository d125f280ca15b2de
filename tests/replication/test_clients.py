"""Producers, consumers and their groups go on when the root goes away that they use."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.errors import (
    AccessDeniedError,
    DeliveryTimeoutError,
    ReplicaNotAvailableError,
    StaleBatchError,
    UnknownTopicError,
)
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.replicas import poll

LAG_MS = 300


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The roots of a log with one topic, as clients name them."""
    places = [str(tmp_path / name) for name in "abc"]
    log = CommitLog.create(places, [str(tmp_path / "metadata")])
    log.create_topic("t", 1, {"replica.lag.time.max.ms": LAG_MS})
    return ",".join(places)


def test_a_producer_goes_on_at_the_next_leader(path: str, tmp_path: Path) -> None:
    with Producer(path) as producer:
        for number in range(5):
            producer.send("t", b"%d" % number).result(30)
        os.rename(tmp_path / "a", tmp_path / "away")
        for number in range(5, 10):
            producer.send("t", b"%d" % number).result(30)
    for root in "bc":
        found = [record.value for record in CommitLog(str(tmp_path / root)).topic("t").read(0, 0, 100)]
        assert found == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("leader", ["a", "b"])
def test_a_producer_goes_on_when_the_one_root_that_it_was_given_is_lost(path: str, tmp_path: Path, leader: str) -> None:
    """It asks the access rules where the topic is now."""
    CommitLog(str(tmp_path / "c")).replicas.elect("t", str(tmp_path / leader))
    with Producer(str(tmp_path / "a"), linger_ms=0, metadata_max_age_ms=0) as producer:
        producer.send("t", b"0").result(30)
        os.rename(tmp_path / "a", tmp_path / "away")
        for number in range(1, 4):
            producer.send("t", b"%d" % number).result(30)
    found = [record.value for record in CommitLog(str(tmp_path / "b")).topic("t").read(0, 0, 100)]
    assert found == [b"0", b"1", b"2", b"3"]


def test_a_producer_that_has_let_go_of_a_topic_goes_on_at_the_next_leader(path: str, tmp_path: Path) -> None:
    """What it remembers no more is whether the topic has replicas."""
    short = {"linger_ms": 0, "request_timeout_ms": 1000, "delivery_timeout_ms": 10_000}
    with Producer(str(tmp_path / "a"), **short) as producer:
        for number in range(2):
            producer.send("t", b"%d" % number).result(30)
        assert producer.flush() == 0
        producer._accumulators["t"].delivery.rest()
        os.rename(tmp_path / "a", tmp_path / "away")
        producer.send("t", b"2").result(30)
        assert producer.flush() == 0
        found = [record.value for record in CommitLog(str(tmp_path / "b")).topic("t").read(0, 0, 100)]
    assert found == [b"0", b"1", b"2"]


def test_a_producer_still_asks_for_its_rights_when_the_root_that_it_was_given_is_lost(
    path: str, tmp_path: Path
) -> None:
    log = CommitLog(str(tmp_path / "c"))
    log.replicas.elect("t", str(tmp_path / "b"))
    log.access.allow("ann", "admin")
    log.acting_as("ann").access.allow("bob", "write", "t")
    with Producer(str(tmp_path / "a"), linger_ms=0, metadata_max_age_ms=0, principal="bob") as producer:
        producer.send("t", b"0").result(30)
        os.rename(tmp_path / "a", tmp_path / "away")
        producer.send("t", b"1").result(30)
        log.acting_as("ann").access.revoke("bob", "write", "t")
        with pytest.raises(AccessDeniedError, match="'bob' may not write topic 't'"):
            producer.send("t", b"2").result(30)


def test_a_root_that_is_lost_for_longer_than_a_record_may_take_is_not_said_to_be_unknown(tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in "ab"]
    CommitLog.create(places, [str(tmp_path / "m")]).create_topic("t", 1, {"replication.factor": 1})
    short = {"linger_ms": 0, "request_timeout_ms": 100, "delivery_timeout_ms": 100}
    with Producer(places[0], metadata_max_age_ms=0, **short) as producer:
        producer.send("t", b"0").result(30)
        os.rename(tmp_path / "a", tmp_path / "away")
        with pytest.raises(DeliveryTimeoutError, match=r"topic 't': the root .*/a does not answer") as told:
            producer.send("t", b"1").result(30)
        assert "create_topic" not in str(told.value)
        os.rename(tmp_path / "away", tmp_path / "a")
        producer.send("t", b"2").result(30)


def test_a_producer_takes_another_topic_when_the_root_that_it_was_given_is_lost(path: str, tmp_path: Path) -> None:
    CommitLog(str(tmp_path / "b")).create_topic("u", 1, {"replica.lag.time.max.ms": LAG_MS})
    with Producer(str(tmp_path / "a"), linger_ms=0) as producer:
        producer.send("t", b"0").result(30)
        os.rename(tmp_path / "a", tmp_path / "away")
        producer.send("u", b"1").result(30)
        with pytest.raises(UnknownTopicError):
            producer.send("other", b"2")


def test_a_consumer_of_a_group_goes_on_at_another_root(path: str, tmp_path: Path) -> None:
    with Producer(path) as producer, Consumer(path, "t", group_id="g", auto_offset_reset="earliest") as consumer:
        for number in range(5):
            producer.send("t", b"%d" % number).result(30)
        assert poll(consumer, 5) == [b"%d" % number for number in range(5)]
        consumer.commit()
        os.rename(tmp_path / "a", tmp_path / "away")
        for number in range(5, 10):
            producer.send("t", b"%d" % number).result(30)
        assert poll(consumer, 5) == [b"%d" % number for number in range(5, 10)]
        consumer.commit()
    with Consumer(path, "t", group_id="g", auto_offset_reset="earliest") as consumer, Producer(path) as producer:
        producer.send("t", b"10").result(30)
        assert poll(consumer, 1) == [b"10"], "the group's offsets are those of the log, whatever root is opened"


def test_a_root_that_only_decides_can_be_opened(path: str, tmp_path: Path) -> None:
    with Producer(str(tmp_path / "metadata")) as producer:
        producer.send("t", b"1").result(30)
    with Consumer(str(tmp_path / "metadata"), "t", auto_offset_reset="earliest") as consumer:
        assert poll(consumer, 1) == [b"1"]


def test_clients_go_on_at_a_root_that_was_emptied_and_added_again(path: str, tmp_path: Path) -> None:
    """What they know of the roots is of before it; then the leader is lost, whose list they went by."""
    b = str(tmp_path / "b")
    with Producer(b) as producer, Consumer(b, "t", auto_offset_reset="earliest") as consumer:
        producer.send("t", b"0").result(30)
        assert poll(consumer, 1) == [b"0"]
        log = CommitLog(str(tmp_path / "a"))
        log.replicas.remove([b])
        shutil.rmtree(b)
        log.replicas.add([b])
        log.topic("t").set_replication_factor(3)
        os.rename(tmp_path / "a", tmp_path / "away")
        for number in range(1, 4):
            producer.send("t", b"%d" % number).result(30)
            assert poll(consumer, 1) == [b"%d" % number]


def test_a_topic_of_a_root_that_is_away_is_not_said_to_be_unknown(path: str, tmp_path: Path) -> None:
    topic = TopicLog(CommitLog(str(tmp_path / "a")).root.topic("t").storage, "t")
    os.rename(tmp_path / "a", tmp_path / "away")
    with pytest.raises(ReplicaNotAvailableError, match=r"topic 't': the root .*/a does not answer"):
        topic.newest()


def test_settings_are_those_of_all_roots(path: str, tmp_path: Path) -> None:
    CommitLog(str(tmp_path / "b")).config.alter({"retention.ms": 12_345})
    log = CommitLog(str(tmp_path / "c"))
    log.access.allow("ann", "admin")
    assert CommitLog(str(tmp_path / "a"), principal="ann").topic("t").describe().config["retention.ms"] == "12345"
    assert [rule.principal for rule in CommitLog(str(tmp_path / "a")).access.rules()] == ["ann"]
    assert not CommitLog(str(tmp_path / "a"), principal="ann").verify().unnamed


def test_a_producer_with_acks_1_goes_on_after_an_election_lost_what_it_had_sent(tmp_path: Path) -> None:
    """Its row went back with the records: it is told once, and begins again under another id."""
    places = [tmp_path / name for name in "abc"]
    log = CommitLog.create([str(place) for place in places], [str(tmp_path / "m")])
    log.create_topic("t", 1, {"replica.lag.time.max.ms": 3_600_000, "inline.max.bytes": 0})
    with Producer(",".join(map(str, places)), acks="1", linger_ms=0) as producer:
        producer.send("t", b"1").result(30)
        for place in places[1:]:
            place.rename(f"{place}-away")
        producer.send("t", b"lost").result(30)
        for place in places[1:]:
            Path(f"{place}-away").rename(place)
        places[0].rename(tmp_path / "lost")
        with pytest.raises(StaleBatchError, match="are not in the log any more"):
            producer.send("t", b"2").result(30)
        producer.send("t", b"3").result(30)
    assert [record.value for record in CommitLog(str(places[1])).topic("t").read(0, 0, 10)] == [b"1", b"3"]


def test_a_producer_settles_at_the_leader_that_follows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was under way at the root that is lost may fail once."""
    places = [str(tmp_path / name) for name in "abc"]
    log = CommitLog.create(places, [str(tmp_path / "m")])
    log.create_topic("t", 1, {"settle.entries": 2})
    with Producer(",".join(places), linger_ms=0) as producer:
        producer.send("t", b"0").result(30)
        os.rename(places[0], tmp_path / "away")
        for number in range(1, 10):
            producer.send("t", b"%d" % number).result(30)
            assert producer.flush() == 0
    at_b = TopicLog(CommitLog(places[1]).root.topic("t").storage, "t")
    assert at_b.storage.url == places[1]
    assert at_b.settled(at_b.newest()[1].topic_id)[1].partition(0).end_offset > 7
    assert sum("settling failed" in record.message for record in caplog.records) <= 1
