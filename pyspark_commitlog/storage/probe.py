"""Try what a log asks of storage, on the very place where a root is to be.

Two puts of one name, one after the other and many at once, of which one may succeed; a lock that is held by one; and
how long what is durable takes. What is tried is removed again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

from pyspark_commitlog.storage.base import Storage

DIRECTORY = "probes"
_AT_ONCE = 8
_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """What was tried and whether it held; ``safe`` is False where a log would lose or double records."""

    what: str
    held: bool
    told: str  # a key of what the command line prints as JSON; codespell:ignore told
    safe: bool = True


def probe(storage: Storage) -> tuple[Finding, ...]:
    """Return what a place can do; a directory that is not there yet is made for it, and removed again.

    Raises:
        UsageError: it is no directory.
        StorageError: it can't be written, or is full.
    """
    home = f"{DIRECTORY}/{storage.new_id()}"
    existed = storage.exists("")
    storage.make_directory(home)
    try:
        return (_second_put(storage, home), _puts_at_once(storage, home), _lock(storage, home), _append(storage),
                _times(storage, home))  # fmt: skip
    finally:
        storage.delete_tree(home)
        if not storage.names(DIRECTORY):
            storage.delete_tree(DIRECTORY)
        if not existed:
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
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        won = [
            sum(pool.map(lambda path: _put(storage, path), [f"{home}/{number}"] * _AT_ONCE))
            for number in range(_ROUNDS)
        ]
    held = set(won) == {1}
    text = f"{_ROUNDS} times {_AT_ONCE} puts of a name at once: " + (
        "one is taken" if held else f"{min(won)} to {max(won)} are taken: commits would be lost"
    )
    return Finding("puts at once", held, text, safe=held)


def _lock(storage: Storage, home: str) -> Finding:
    with storage.try_lock(f"{home}/lock") as first, storage.try_lock(f"{home}/lock") as second:
        held = first and not second
    text = "is held by one" if held else "is not: settlers would disturb each other"
    return Finding("lock", held, text, safe=held)


def _append(storage: Storage) -> Finding:
    can = storage.can_append
    text = "segments are written in place" if can else "not on this mount: commits stay in chunks, nothing is settled"
    return Finding("append", can, text)


def _times(storage: Storage, home: str) -> Finding:
    put = _milliseconds(storage, lambda number: storage.put_if_absent(f"{home}/timed-{number}", b"probe\n"))
    look = _milliseconds(storage, lambda number: storage.exists(f"{home}/none-{number}"))
    return Finding("time", True, f"a durable put takes {put:.2f} ms, a look for a file {look:.3f} ms (medians)")


def _milliseconds(storage: Storage, act: Callable[[int], object]) -> float:
    times = []
    for number in range(_ROUNDS):
        began = storage.clock.monotonic()
        act(number)
        times.append(storage.clock.monotonic() - began)
    return median(times) * 1000
