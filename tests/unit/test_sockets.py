"""Spark's socket acknowledges at once between tasks; no other connection is touched."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pyspark_commitlog.storage.shared.sockets import acknowledge_between_tasks
from tests.support.collection import no_collection


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Close what a test opens, and take out what it has Python call back, which it alone makes it do."""
    before = list(gc.callbacks)
    with no_collection(), ExitStack() as stack:
        yield stack
    gc.callbacks[:] = before


def connection(opened: ExitStack) -> socket.socket:
    """Return this end of a connection within this machine; the other one waits to be accepted: it has no descriptor."""
    listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
    return opened.enter_context(socket.create_connection(listener.getsockname()))


def copies(opened: ExitStack, end: socket.socket, count: int = 2) -> list[socket.socket]:
    """Return copies of a socket, as Spark's worker makes one to read from and one to write to."""
    return [opened.enter_context(end.dup()) for _ in range(count)]


def descriptors_of(end: socket.socket) -> int:
    """Return how many descriptors of this process are of one socket: other tests' may be closed meanwhile."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    inode = os.fstat(end.fileno()).st_ino
    return sum(os.stat(link).st_ino == inode for link in links if os.path.exists(link))


def acknowledges_at_once(end: socket.socket) -> bool:
    """Return whether it does, and have it delay again, as an answer does."""
    now = bool(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    return now


def test_spark_s_socket_acknowledges_at_once_after_each_task(opened: ExitStack) -> None:
    """Of the three descriptors that there are in a task one is left when the daemon collects."""
    spark, user = connection(opened), connection(opened)
    task = copies(opened, spark)
    assert descriptors_of(spark) == 3
    assert acknowledge_between_tasks()
    for each in task:
        each.close()
    for _ in range(3):
        acknowledges_at_once(spark), acknowledges_at_once(user)
        gc.collect(1)
        assert not acknowledges_at_once(spark), "not within a task"
        gc.collect()
        assert acknowledges_at_once(spark)
        assert not acknowledges_at_once(user)
    assert descriptors_of(spark) == 1, "none was kept, none closed"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_connection_with_other_descriptors_is_not_spark_s(opened: ExitStack, count: int) -> None:
    end = connection(opened)
    copies(opened, end, count)
    assert not acknowledge_between_tasks()
    acknowledges_at_once(end)
    gc.collect()
    assert not acknowledges_at_once(end)


def test_of_two_that_may_be_spark_s_neither_is_touched(opened: ExitStack) -> None:
    ends = [connection(opened), connection(opened)]
    for end in ends:
        copies(opened, end)
    assert not acknowledge_between_tasks()
    for end in ends:
        acknowledges_at_once(end)
        gc.collect()
        assert not acknowledges_at_once(end)


def test_nothing_is_done_with_unix_sockets(opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    spark, other = socket.socketpair()
    opened.enter_context(spark), opened.enter_context(other)
    copies(opened, spark)
    assert not acknowledge_between_tasks()
    spark.close()
    copies(opened, connection(opened))  # a user's, then
    monkeypatch.setenv("PYTHON_UNIX_DOMAIN_ENABLED", "true")
    assert not acknowledge_between_tasks()


def test_a_connection_that_got_the_number_of_spark_s_is_not_touched(opened: ExitStack) -> None:
    spark = connection(opened)
    numbers = [each.fileno() for each in (spark, *copies(opened, spark))]
    assert acknowledge_between_tasks()
    user = connection(opened)
    for number in numbers:
        os.dup2(user.fileno(), number)
    acknowledges_at_once(user)
    gc.collect()
    assert not acknowledges_at_once(user)
