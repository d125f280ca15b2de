"""Test of a place's guarantees before a root is made there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark_commitlog.errors import CommitLogError, StorageError
from pyspark_commitlog.storage.base import Storage
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.race import DIRECTORY, ROUNDS, WRITERS, fault_of, race

#: Requests timed per kind: p99 is nearly the maximum.
_TIMED = 50
#: Difference of clocks that passes, in ms: stores stamp whole seconds.
_TOLERATED_MS = 5000


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a test.

    `safe` is False if records would be lost or doubled.
    """

    what: str
    held: bool
    told: str  # a key in the command line's JSON; codespell:ignore told
    safe: bool = True


def probe(storage: Storage, *, timed: bool = True) -> tuple[Finding, ...]:
    """Test a place; a missing directory is made and deleted again.

    `timed`: measure requests, too, some 150 of them.

    Raises:
        UsageError: it is no directory.
        StorageError: it can't be written.
    """
    home = f"{DIRECTORY}/{storage.new_id()}"
    made = isinstance(storage, LocalStorage) and not storage.exists("")
    try:
        storage.make_directory(home)
    except CommitLogError:
        raise
    except OSError as error:  # /proc, say
        why = error.strerror or str(error)
        raise StorageError(f"{storage.url}: no directory can be made there ({why}): name another place") from error
    try:
        return (
            _second_put(storage, home),
            _puts_at_once(storage, home),
            *_fault(storage, home),
            _lock(storage, home),
            _append(storage),
            *_versions(storage, home),
            _clock(storage, home),
            *([_times(storage, home)] if timed else []),
        )
    finally:
        storage.delete_tree(home)
        if not storage.names(DIRECTORY):
            storage.delete_tree(DIRECTORY)
        if made:
            storage.delete_tree("")


def _put(storage: Storage, path: str) -> bool:
    try:
        storage.put_if_absent(path, b"probe\n")
    except FileExistsError:
        return False
    return True


def _second_put(storage: Storage, home: str) -> Finding:
    first, second = _put(storage, f"{home}/twice"), _put(storage, f"{home}/twice")
    held = first and not second
    text = "the second put of a name is refused" if held else "a second put of a name is taken: commits would be lost"
    return Finding("put-if-absent", held, text, safe=held)


def _puts_at_once(storage: Storage, home: str) -> Finding:
    fault = fault_of(race(storage, f"{home}/races"))
    text = f"{ROUNDS} times {WRITERS} puts of a name at once: one is taken"
    return Finding("puts at once", fault is None, f"{fault}: commits would be lost" if fault else text, fault is None)


def _fault(storage: Storage, home: str) -> tuple[Finding, ...]:
    fault = storage.fault(f"{home}/files") if storage.client else None
    return () if fault is None else (Finding("files", False, f"{fault}: commits would be lost", safe=False),)


def _lock(storage: Storage, home: str) -> Finding:
    if not isinstance(storage, LocalStorage):
        return Finding("lock", False, "there are none here, and nothing needs one")
    with storage.try_lock(f"{home}/lock") as first, storage.try_lock(f"{home}/lock") as second:
        held = first and not second
    text = "is held by one" if held else "is not: settlers would disturb each other"
    return Finding("lock", held, text, safe=held)


def _append(storage: Storage) -> Finding:
    can = storage.can_append
    text = "segments are written in place" if can else "not here: segments are written whole, and merged"
    return Finding("append", can, text)


def _versions(storage: Storage, home: str) -> tuple[Finding, ...]:
    if not getattr(storage, "keeps_versions", lambda path: False)(f"{home}/twice"):
        return ()
    text = (
        "this bucket keeps what is deleted as old versions: have a lifecycle rule expire noncurrent versions of "
        "this root, or storage grows for ever"
    )
    return (Finding("versions", False, text),)


def _clock(storage: Storage, home: str) -> Finding:
    before = storage.clock.now_ms()
    storage.put_if_absent(f"{home}/clock", b"probe\n")
    return clock_finding(before, storage.info(f"{home}/clock").modified_ms, storage.clock.now_ms())


def clock_finding(before_ms: int, stamped_ms: int, after_ms: int) -> Finding:
    """Compare a store's time of a put with this machine's before and after it (pure)."""
    off_ms = min(stamped_ms - before_ms, 0) or max(stamped_ms - after_ms, 0)
    if abs(off_ms) <= _TOLERATED_MS:
        return Finding("clock", True, "the store's and this machine's agree")
    text = f"this machine's is {abs(off_ms) // 1000:,} s {'slow' if off_ms > 0 else 'fast'} by the store's"
    return Finding("clock", False, text)


def _times(storage: Storage, home: str) -> Finding:
    acts: dict[str, Callable[[int], object]] = {
        "a durable put": lambda number: storage.put_if_absent(f"{home}/timed-{number}", b"probe\n"),
        "a get": lambda number: storage.read(f"{home}/timed-{number}"),
        "a listing": lambda number: storage.names(home),
    }
    texts = [f"{name} takes {_milliseconds(storage, act)}" for name, act in acts.items()]
    return Finding("time", True, ", ".join(texts) + " ms (p50 / p99)")


def _milliseconds(storage: Storage, act: Callable[[int], object]) -> str:
    times = []
    for number in range(_TIMED):
        began = storage.clock.monotonic()
        act(number)
        times.append((storage.clock.monotonic() - began) * 1000)
    times.sort()
    return f"{times[_TIMED // 2]:.2f} / {times[_TIMED * 99 // 100]:.2f}"
