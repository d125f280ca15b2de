"""What may be cut off anywhere on roots that belong together, and what is legal afterwards."""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from unittest import mock

from pyspark_commitlog.replication.leader import pushing, replica_staging
from pyspark_commitlog.storage import deadline_storage
from pyspark_commitlog.topic.write.writers import TRANSIENT, ProducerBatch, Transaction
from tests.support.records import read_topic
from tests.support.replicas import CONFIG, Replicated
from tests.support.syscalls import killed_before, telling

#: The writer of an operation, and the writer that an election takes an append from.
TRANSACTION, BATCH, LOSER = (
    Transaction("txn:app", 7),
    ProducerBatch(f"{TRANSIENT}p", 0, 0, 1, since=1),
    Transaction("txn:lost", 1),
)
#: Short: each try before it is a dozen places to be killed at.
_LAG_MS = 1_000

Act = Callable[[Replicated], None]


def no_device(operation: str, path: str, moment: str) -> None:
    """Fail as a disk does that is gone: a hook of `testing.faults`."""
    raise OSError(errno.EIO, "injected: the device is gone")


def _nothing(roots: Replicated) -> None:
    """Change nothing."""


@dataclass(frozen=True)
class Scene:
    """An operation of several roots.

    `prepare` makes what it finds; `act` may be killed anywhere, and has acknowledged `acked` when it returns;
    `again` is what another process does then, with the same writer; `mend` gives back what is away. `values` are
    what every root shows in the end.
    """

    prepare: Act
    act: Act
    again: Act
    acked: tuple[bytes, ...]
    values: tuple[bytes, ...]
    mend: Act = _nothing


def _written(roots: Replicated) -> None:
    roots.create(config={**CONFIG, "replica.lag.time.max.ms": _LAG_MS})
    roots.write(b"0")


def _writes(writer: Transaction | ProducerBatch, root: str = "a") -> Act:
    def act(roots: Replicated) -> None:
        roots.write(b"1", b"2", writer=writer, topic=roots.topic(root), everywhere=True)

    return act


def _without(names: str, act: Act) -> Act:
    """Return what is done while roots fail."""

    def acted(roots: Replicated) -> None:
        roots.hooks.update(dict.fromkeys(names, no_device))
        act(roots)
        roots.hooks.clear()

    return acted


def _lost_at_a(roots: Replicated) -> None:
    """Append with acks=1 what only `a` learns, and take `a` away."""
    _written(roots)
    _without("bc", lambda roots: _write_lost(roots, acks_all=False))(roots)
    roots.take_away("a")


def _write_lost(roots: Replicated, *, acks_all: bool) -> None:
    assert not roots.write(b"lost", writer=LOSER, acks_all=acks_all).skipped


def _given_back(roots: Replicated) -> None:
    roots.give_back("a")
    rejoin(roots)
    _write_lost(roots, acks_all=True)


def _c_out(roots: Replicated) -> None:
    _written(roots)

    def write(roots: Replicated) -> None:
        roots.write(b"out")

    _without("c", write)(roots)
    assert roots.isr() == "ab"


def _join_c(roots: Replicated) -> None:
    assert roots.decided_log().pusher.join(roots.id_of("c")) or "c" in roots.isr()  # a rival may have been first


def rejoin(roots: Replicated) -> None:
    """Bring all roots into the ISR, and have them learn everything."""
    for root in roots.names:
        if root not in roots.isr():
            assert roots.decided_log().pusher.join(roots.id_of(root))
    assert not roots.decided_log().pusher.push().failed
    assert roots.isr() == roots.names


_COMMITTED = (b"0", b"1", b"2", b"next")
_by_transaction, _by_batch = _writes(TRANSACTION), _writes(BATCH)
SCENES: Mapping[str, Scene] = {
    "commit": Scene(_written, _by_transaction, _by_transaction, (b"1", b"2"), _COMMITTED),
    "batch": Scene(_written, _by_batch, _by_batch, (b"1", b"2"), _COMMITTED),
    "shrink": Scene(_written, _without("c", _by_transaction), _by_transaction, (b"1", b"2"), _COMMITTED),
    "join": Scene(_c_out, _join_c, _by_transaction, (), (b"0", b"out", b"1", b"2", b"next")),
    "elect": Scene(
        _lost_at_a, _writes(TRANSACTION, "b"), _writes(TRANSACTION, "b"), (b"1", b"2"), (*_COMMITTED, b"lost"),
        _given_back,
    ),
}  # fmt: skip


#: What the second of two writers may be: one with the same id that does the same, or another one.
rivals = ("same", "other")
#: The name of what the other one does.
OTHER = "other"


def write_other(roots: Replicated) -> None:
    """Write a record of another writer; where it is there already this is nothing."""
    roots.write(b"other", writer=Transaction("txn:other", 3), topic=roots.topic(there(roots)[0]), everywhere=True)


@contextmanager
def _one_after_the_other() -> Iterator[None]:
    """Have roots be told one after the other, so that a step has the same number each time; no root here hangs."""

    def in_turn(act: Callable[[str], None], items: list[str], threads: int) -> None:
        for item in items:
            act(item)

    with (
        mock.patch.object(pushing, "begun", lambda _, __, act: act),
        mock.patch.object(replica_staging, "share_out", in_turn),
        mock.patch.multiple(deadline_storage, **dict.fromkeys(("LOOK_SECONDS", "PUT_SECONDS", "DATA_SECONDS"), 600.0)),
    ):
        yield


def act_and_die(name: str, roots: Replicated, number: int) -> None:
    """Run a scene and be killed before its `number`-th changing system call."""
    act = write_other if name == OTHER else SCENES[name].act
    with _one_after_the_other(), killed_before(number):
        act(roots)


def interrupted(name: str, roots: Replicated, number: int, between: Callable[[], None]) -> bool:
    """Run a scene to its end, and something else before its `number`-th changing system call; return whether it came."""
    calls, reached = count(1), False

    def tell(call: str, path: str) -> None:
        nonlocal reached
        if not reached and next(calls) == number:
            reached = True
            between()

    with _one_after_the_other(), telling(tell):
        SCENES[name].act(roots)
    return reached


class Seen:
    """What readers of each root have seen: nothing of it may change, and no high watermark may go back."""

    def __init__(self) -> None:
        self.records: dict[tuple[int, int], bytes | None] = {}
        self._hw: dict[str, tuple[int, tuple[int, ...]]] = {}

    def so_far(self) -> Seen:
        """Return another that has seen the same."""
        return copy.deepcopy(self)

    def look(self, roots: Replicated) -> None:
        """Read each root that is there, as fresh processes do, and compare with what was seen before."""
        for root in there(roots):
            stored, state = roots.at(root).newest()
            number, ends = self._hw.get(root, (0, ()))
            assert stored.sequence >= number, f"the high watermark of {root} went back"
            assert all(now >= then for now, then in zip(state.log_end, ends, strict=False)), f"that of {root}"
            self._hw[root] = stored.sequence, state.log_end
            for record in read_topic(roots.at(root)):
                place = record.partition, record.offset
                assert self.records.setdefault(place, record.value) == record.value, f"{place} at {root}"


def there(roots: Replicated) -> str:
    """Return the roots with data that were not taken away."""
    return "".join(root for root in roots.names if (roots.path / root).exists())


def check_journals(roots: Replicated) -> None:
    """Each root's journal is a beginning of the one of the metadata root, byte for byte."""
    decided = _journal(roots, "m")
    for root in there(roots):
        found = _journal(roots, root)
        assert list(found) == list(decided)[: len(found)], f"at {root}"
        assert all(decided[name] == data for name, data in found.items()), f"another entry at {root}"


def _journal(roots: Replicated, root: str) -> dict[str, bytes]:
    files = sorted((roots.path / root / "topics/t/journal").glob("*.json"))
    assert files
    return {file.name: file.read_bytes() for file in files}
