"""What a process remembers of its roots, in one place: so all of it together has a bound, in bytes.

Everything that is cached here can be read again. What was used least recently goes first, wherever it came from.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from itertools import count
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import finalize

from pyspark_commitlog.storage.limits import limits
from pyspark_commitlog.storage.process import after_fork

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

#: What an item takes beside its own bytes: its places in dictionaries.
ITEM_BYTES = 512
#: Texts that a ``Reported`` remembers.
REPORTED = 1024


class Cache:
    """Values of all shelves, the least recently used dropped beyond ``most()`` bytes. Safe for several threads."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most, self._bytes = most, 0
        self._items: OrderedDict[tuple[int, Any], tuple[Any, int]] = OrderedDict()
        self._shelves: dict[int, set[Any]] = {}
        self._gone: deque[int] = deque()
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """Return how many bytes are kept."""
        return self._bytes

    def get(self, shelf: int, key: Any) -> Any:
        """Return what was put, None if it is not there any more."""
        with self._lock:
            item = self._items.get((shelf, key))
            if item is not None:
                self._items.move_to_end((shelf, key))
        self._sweep()
        return None if item is None else item[0]

    def put(self, shelf: int, key: Any, value: Any, size: int) -> None:
        """Keep a value; one that is larger than the whole cache is not kept."""
        most, size, dropped = self._most(), size + ITEM_BYTES, list[Any]()
        with self._lock:
            dropped.append(self._take(shelf, key))
            if size <= most:
                self._shelves.setdefault(shelf, set()).add(key)
                self._items[shelf, key] = value, size
                self._bytes += size
            while self._bytes > most:
                dropped.append(self._take(*next(iter(self._items))))
        self._sweep()

    def pop(self, shelf: int, key: Any) -> Any:
        """Take out what was put, None if it is not there any more."""
        with self._lock:
            item = self._take(shelf, key)
        self._sweep()
        return None if item is None else item[0]

    def clear(self, shelf: int) -> None:
        """Drop all that is on a shelf; from a finalizer, too, which may come while this thread holds the lock."""
        self._gone.append(shelf)
        self._sweep()

    def _take(self, shelf: int, key: Any) -> Any:
        keys, item = self._shelves.get(shelf), self._items.get((shelf, key))
        if item is not None:  # no call between the next two, so no Ctrl-C
            self._bytes -= item[1]
            del self._items[shelf, key]
        if keys is not None:
            keys.discard(key)
            if not keys:
                self._shelves.pop(shelf, None)
        return item  # to be let go of without the lock: that may end in a finalizer

    def _sweep(self) -> None:
        """Clear shelves that were given up; a thread that holds the lock meanwhile does it when it lets go."""
        while self._gone and self._lock.acquire(blocking=False):
            dropped = []
            try:
                while self._gone:
                    shelf = self._gone.popleft()
                    dropped += [self._take(shelf, key) for key in list(self._shelves.get(shelf, ()))]
            finally:
                self._lock.release()
            del dropped


class Shelf(Generic[_Key, _Value]):
    """One owner's part of a cache: what is on it goes with it.

    Args:
        cache: None for that of the process.
    """

    _numbers = count()

    def __init__(self, cache: Cache | None = None) -> None:
        self._given, self._number = cache, next(Shelf._numbers)
        finalize(self, _clear, cache, self._number).atexit = False

    def __reduce__(self) -> tuple[type[Shelf[_Key, _Value]], tuple[()]]:
        return Shelf, ()  # an empty one, where its owner goes to another process

    @property
    def _cache(self) -> Cache:
        return self._given or of_process()  # another one in a forked child

    def get(self, key: _Key) -> _Value | None:
        """Return what was put, None if it is not there any more."""
        item: _Value | None = self._cache.get(self._number, key)
        return item

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Keep a value of so many bytes, until it is the least recently used of all in the cache."""
        self._cache.put(self._number, key, value, size)

    def pop(self, key: _Key) -> _Value | None:
        """Take out what was put, None if it is not there any more."""
        item: _Value | None = self._cache.pop(self._number, key)
        return item

    def clear(self) -> None:
        """Drop all that is on it."""
        self._cache.clear(self._number)


class Reported:
    """What was reported already, the last ``REPORTED`` texts of it: a warning is not repeated at every look."""

    def __init__(self) -> None:
        self._texts: dict[Hashable, None] = {}

    def is_new(self, text: Hashable) -> bool:
        """Return whether it was not reported lately; now it is."""
        new = text not in self._texts
        self._texts.pop(text, None)
        self._texts[text] = None
        if len(self._texts) > REPORTED:
            del self._texts[next(iter(self._texts))]
        return new


def _clear(cache: Cache | None, shelf: int) -> None:
    (cache or of_process()).clear(shelf)


def _new_cache() -> Cache:
    return Cache(lambda: limits().cache_bytes)


_process = _new_cache()


def of_process() -> Cache:
    """Return the cache of this process."""
    return _process


def _reset_in_child() -> None:
    """Begin with an empty one in a forked child: its lock may have been held."""
    global _process
    _process = _new_cache()


after_fork(_reset_in_child)
