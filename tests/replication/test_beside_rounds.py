"""A service goes on with its rounds while a root gets the segments of another, which may take hours.

Interleavings:

1. Another topic is written to meanwhile: it is replicated and maintained as ever.
2. So is the very topic: its roots in sync get what is written, and nothing is settled or removed of what is copied.
3. The next round is due again and again: the segments are copied once.
4. What is copied fails: the topic has a whole round before it is tried again.
5. The service is stopped, or fails: it waits for no more than a frame (`test_catching_up`), and leaves no thread.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_commitlog.api.maintenance import Maintenance
from pyspark_commitlog.cli.common import background_catch_up
from pyspark_commitlog.cli.common.background_catch_up import CatchingUp
from pyspark_commitlog.cli.maintain import _MaintainRound
from pyspark_commitlog.cli.replicas import _round
from pyspark_commitlog.topic.maintain.last_maintained import since_maintained_ms
from pyspark_commitlog.topic.replica_fetch.catch_up import TopicSegments
from tests.crash.conftest import fast_path as fast_path
from tests.replication.lagging import expected, lagging, whole
from tests.replication.scenes import no_device
from tests.support.replicas import Replicated

#: What never comes fails the test instead.
_SECONDS = 60.0


class Copies:
    """Copies of segments that begin, and go on when they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_go_on, self.count, self.fail = threading.Event(), threading.Event(), 0, False
        copy = TopicSegments.copy

        def slow(segments: TopicSegments, *args: Any) -> tuple[int, str]:
            self.count += 1
            self.begun.set()
            assert self.may_go_on.wait(_SECONDS)
            if self.fail:
                raise OSError(errno.EIO, "injected")
            return copy(segments, *args)

        monkeypatch.setattr(TopicSegments, "copy", slow)

    def __enter__(self) -> None:
        """Begin a block after which they may go on, whatever ended it."""

    def __exit__(self, *_: object) -> None:
        self.may_go_on.set()


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    """Return roots of which `c` needs segments of topic t, and is in sync of topic u."""
    roots = lagging(fast_path)
    roots.create(name="u", config={"inline.max.bytes": 0})
    return roots


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    return Copies(monkeypatch)


def rounds_of(maintenance: Maintenance, by: str) -> Callable[[], object]:
    """Return what does one round as a service does."""
    if by == "replicate":
        return lambda: _round(maintenance.replicas, None, as_json=True, catch_up=False)
    if by == "replicate t":
        return lambda: _round(maintenance.replicas, "t", as_json=True, catch_up=False)
    return lambda: _MaintainRound(maintenance, threading.Event(), as_json=True).run(None)


def settled_through(roots: Replicated, name: str) -> int:
    topic = roots.at("a", name)
    return topic.settled(topic.newest()[1].topic_id)[1].through[0]


def maintained_ms(roots: Replicated) -> int:
    topic = roots.at("a")
    return roots.clock.now_ms() - (since_maintained_ms(topic, topic.newest()[1].topic_id)[0] or 0)


@pytest.mark.parametrize("by", ["maintain", "replicate", "replicate t"])
def test_rounds_go_on_while_a_root_gets_segments(roots: Replicated, copies: Copies, by: str) -> None:
    maintenance = Maintenance(roots.log("a").root)
    one_round = rounds_of(maintenance, by)
    one_round()
    with CatchingUp(maintenance.replicas.catch_up, threading.Event()) as beside, copies:
        beside.go_on()
        assert copies.begun.wait(_SECONDS)
        before, noted = settled_through(roots, "t"), maintained_ms(roots)
        roots.clock.advance(100)
        roots.hooks["b"] = no_device
        for name in "tu":
            roots.write(b"meanwhile", topic=roots.topic(name=name), acks_all=False)
        del roots.hooks["b"]
        one_round()
        beside.go_on()
        assert roots.values("b") == [*expected(), b"meanwhile"]
        assert settled_through(roots, "t") == before, "what is copied stays as it is"
        if by == "maintain":
            assert maintained_ms(roots) == noted + 100, "else writers are warned that nobody maintains it"
            assert settled_through(roots, "u") > 1
        if by == "replicate":
            assert roots.at("c", "u").newest()[1].log_end == (1,)
        assert copies.count == 1
    assert (roots.isr(), copies.count) == ("abc", 1)
    whole(roots, [*expected(), b"meanwhile"])
    if by == "maintain":
        one_round()
        assert settled_through(roots, "t") > before


def test_what_could_not_be_copied_waits_for_a_round(roots: Replicated, copies: Copies) -> None:
    """It is maintained between two tries: what lacks then may be there."""
    maintenance = Maintenance(roots.log("a").root)
    one_round = rounds_of(maintenance, "replicate t")
    one_round()
    with CatchingUp(maintenance.replicas.catch_up, threading.Event()) as beside, copies:
        beside.go_on()
        assert copies.begun.wait(_SECONDS)
        one_round()
        copies.fail = True
    assert (roots.isr(), copies.count) == ("ab", 2), "from each of the others in sync"
    copies.fail = False
    maintenance.replicas.catch_up()
    assert roots.isr() == "ab"
    one_round()
    maintenance.replicas.catch_up()
    assert roots.isr() == "abc"


def test_a_topic_is_maintained_while_a_root_learns_its_entries(roots: Replicated) -> None:
    maintenance = Maintenance(roots.log("a").root)
    maintenance.replicas._catching.add("t")
    assert not maintenance.replicas.sync_if_copying("t")


def test_a_topic_that_none_can_give_segments_of_is_maintained(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(segments: TopicSegments, donor: object) -> None:
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(TopicSegments, "settled", cannot)
    maintenance = Maintenance(roots.log("a").root)
    rounds_of(maintenance, "maintain")()
    maintenance.replicas.catch_up()
    assert not maintenance.replicas.sync_if_copying("t")
    assert maintenance.replicas._catching == set()


def test_no_thread_is_left_whatever_ends_the_service(roots: Replicated, copies: Copies) -> None:
    maintenance, stop = Maintenance(roots.log("a").root), threading.Event()
    rounds_of(maintenance, "maintain")()

    def until_stopped() -> None:
        maintenance.replicas.catch_up(stop.is_set)

    def service() -> None:
        with CatchingUp(until_stopped, stop) as beside:
            beside.go_on()
            assert copies.begun.wait(_SECONDS)
            threading.Timer(0.1, copies.may_go_on.set).start()
            raise ZeroDivisionError("injected")

    with pytest.raises(ZeroDivisionError):
        service()
    assert roots.isr() == "ab", "it was stopped"
    assert not any(thread.name == "commitlog-catch-up" for thread in threading.enumerate())


def test_without_a_thread_the_service_waits(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(name: str, run: Callable[[], object], *, reserved: bool) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(background_catch_up, "start_thread", none_left)
    maintenance = Maintenance(roots.log("a").root)
    rounds_of(maintenance, "maintain")()
    with CatchingUp(maintenance.replicas.catch_up, threading.Event()) as beside:
        beside.go_on()
        assert roots.isr() == "abc"


def test_a_topic_that_joined_in_its_turn_is_not_caught_up_with(roots: Replicated, copies: Copies) -> None:
    maintenance = Maintenance(roots.log("a").root)
    one_round = rounds_of(maintenance, "replicate t")
    one_round()
    copies.may_go_on.set()
    roots.log("b").replicas.sync("t")
    one_round()
    assert roots.isr() == "abc"
    assert maintenance.replicas._lagging == {}
