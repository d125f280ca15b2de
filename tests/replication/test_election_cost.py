"""What an election costs, and the first commit after it: a root that leads a thousand topics is lost at once.

What the handle that elects has learned of the journals goes on to the handle at the new leader, and to the thread that
states the high watermark: neither lists nor syncs again. A high watermark is stated only where readers lack something.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.testing.faults import Hook
from tests.support.replicas import Replicated
from tests.support.syscalls import synced

KINDS = {
    "put_if_absent": "put", "sync_directory": "sync", "sync_file": "sync", "names": "list",
    "read": "read", "fetch": "read", "info": "look",
}  # fmt: skip


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


class Spent:
    """Counts what is asked of each root, by what it is."""

    def __init__(self, roots: Replicated) -> None:
        self._seen = list[tuple[str, str]]()
        for root in f"{roots.names}m":
            roots.hooks[root] = self._at(root)

    def _at(self, root: str) -> Hook:
        def hook(operation: str, path: str, moment: str) -> None:
            if moment == "before":
                self._seen.append((root, KINDS.get(operation, operation)))

        return hook

    def at(self, root: str, *kinds: str) -> dict[str, int]:
        """Return how often each of these was asked of a root since the last `clear`."""
        found = Counter(kind for asked, kind in self._seen if asked == root)
        return {kind: found[kind] for kind in kinds}

    def clear(self) -> None:
        """Count from here on."""
        self._seen.clear()


CHANGES = ("put", "sync", "list")


def test_an_election_puts_one_entry_and_syncs_once_what_it_counts(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    roots.take_away("a")
    spent = Spent(roots)
    topic = roots.topic("c")
    assert topic.storage.url.endswith("/b")
    for root in "mbc":
        assert spent.at(root, "put", "sync") == {"put": 1, "sync": 1}
        lists = spent.at(root, "list")["list"]
        assert lists <= 5, "two find the topic's end, one whether entries are missing, two are of the roots' list"
        many = spent.at(root, "read", "look")
        assert many["read"] <= 8, many
        assert many["look"] <= 8, many
    assert spent.at("a", "read")["read"] <= 3, "what nobody looks for is not asked of it"


def test_the_first_commit_after_an_election_knows_what_that_has_learned(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    roots.take_away("a")
    topic = roots.topic("c")
    spent = Spent(roots)
    roots.write(b"2", topic=topic, hw_later=True, everywhere=True)
    first = {root: spent.at(root, *CHANGES) for root in "mbc"}
    spent.clear()
    roots.write(b"3", topic=topic, hw_later=True, everywhere=True)
    again = {root: spent.at(root, *CHANGES) for root in "mbc"}
    assert {root: many["put"] for root, many in first.items()} == dict.fromkeys("mbc", 1)
    assert {root: many["sync"] for root, many in first.items()} == {root: many["sync"] for root, many in again.items()}
    assert first["m"]["list"] <= 2, "the list of the roots alone"
    assert first["c"]["list"] <= 2
    assert spent.at("a", "read", "list") == {"read": 0, "list": 0}, "the root that is lost"


def test_a_producer_that_elects_syncs_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [str(tmp_path / name) for name in "abc"]
    log = CommitLog.create(places, [str(tmp_path / "m")])
    log.create_topic("t", 1)
    with Producer(places[0], linger_ms=0) as producer:
        producer.send("t", b"1").result(30)
    (tmp_path / "a").rename(tmp_path / "away")
    seen = synced(monkeypatch, tmp_path)
    with Producer(",".join(places), linger_ms=0) as producer:
        producer.send("t", b"2").result(30)
        assert producer.flush() == 0
    assert Counter(seen) == dict.fromkeys("mbc", 1 + 3 * 2), "what was there, and three entries: file and name of each"


def test_after_an_election_readers_see_what_was_acknowledged_and_not_stated(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1", hw_later=True)
    roots.take_away("a")
    roots.topic("b")
    assert [roots.values(root) for root in "bc"] == [[b"1"]] * 2


def test_what_was_known_of_a_root_is_asked_again_once_it_did_not_answer(roots: Replicated) -> None:
    roots.create()
    decided_log = roots.topic().journal.decided_log()
    decided_log.state_hw()
    other = roots.topic("b")
    other.journal.go_on_with(decided_log.places.reader_states())
    places, c = other.journal.decided_log().places, roots.id_of("c")
    spent = Spent(roots)
    assert places.at(c).learned() is not None
    assert spent.at("c", "list") == {"list": 0}
    places.forget(c)
    assert places.at(c).learned() is not None
    assert spent.at("c", "list") == {"list": 3}
