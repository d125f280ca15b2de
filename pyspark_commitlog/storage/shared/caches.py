"""Process-wide LRU cache of re-readable data, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from itertools import count
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import finalize

from pyspark_commitlog.storage.limits import limits
from pyspark_commitlog.storage.per_process import PerProcess

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

#: Overhead of an item in bytes.
ITEM_BYTES = 512
#: Capacity of a `Reported`.
REPORTED = 1024


class Cache:
    """LRU cache of at most `most()` bytes over all shelves; thread-safe."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most, self._bytes = most, 0
        self._items: OrderedDict[tuple[int, Any], tuple[Any, int]] = OrderedDict()
        self._shelves: dict[int, set[Any]] = {}
        self._gone: deque[int] = deque()
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """Bytes kept."""
        return self._bytes

    def get(self, shelf: int, key: Any) -> Any:
        """Return a value; None if absent."""
        with self._lock:
            item = self._items.get((shelf, key))
            if item is not None:
                self._items.move_to_end((shelf, key))
        self._sweep()
        return None if item is None else item[0]

    def put(self, shelf: int, key: Any, value: Any, size: int) -> None:
        """Keep a value, unless larger than the whole cache."""
        most, size, dropped = self._most(), size + ITEM_BYTES, list[Any]()
        with self._lock:
            dropped.append(self._take(shelf, key))
            fits = size <= most
            while self._bytes > (most - size if fits else most):
                dropped.append(self._take(*next(iter(self._items))))
            if fits:
                self._shelves.setdefault(shelf, set()).add(key)
                self._items[shelf, key] = value, size
                self._bytes += size
        self._sweep()

    def pop(self, shelf: int, key: Any) -> Any:
        """Remove and return a value; None if absent."""
        with self._lock:
            item = self._take(shelf, key)
        self._sweep()
        return None if item is None else item[0]

    def clear(self, shelf: int) -> None:
        """Drop a shelf; also safe in a finalizer under this thread's lock."""
        self._gone.append(shelf)
        self._sweep()

    def _take(self, shelf: int, key: Any) -> Any:
        keys, item = self._shelves.get(shelf), self._items.get((shelf, key))
        if item is not None:  # no call in between, so no Ctrl-C
            self._bytes -= item[1]
            del self._items[shelf, key]
        if keys is not None:
            keys.discard(key)
            if not keys:
                self._shelves.pop(shelf, None)
        return item  # dropped outside the lock: that may run a finalizer

    def _sweep(self) -> None:
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
    """One owner's part of a cache (None: the process's), dropped with it."""

    _numbers = count()

    def __init__(self, cache: Cache | None = None) -> None:
        self._given, self._number = cache, next(Shelf._numbers)
        finalize(self, _clear, cache, self._number).atexit = False

    def __reduce__(self) -> tuple[type[Shelf[_Key, _Value]], tuple[()]]:
        return Shelf, ()  # pickled as an empty shelf

    @property
    def _cache(self) -> Cache:
        return self._given or process_cache.value

    def get(self, key: _Key) -> _Value | None:
        """Return a value; None if absent."""
        item: _Value | None = self._cache.get(self._number, key)
        return item

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Keep a value of `size` bytes."""
        self._cache.put(self._number, key, value, size)

    def pop(self, key: _Key) -> _Value | None:
        """Remove and return a value; None if absent."""
        item: _Value | None = self._cache.pop(self._number, key)
        return item

    def clear(self) -> None:
        """Drop all values."""
        self._cache.clear(self._number)


class Reported:
    """The last `REPORTED` warnings, which are not to be repeated."""

    def __init__(self) -> None:
        self._texts: dict[Hashable, None] = {}

    def is_new(self, text: Hashable) -> bool:
        """Whether a text is new, and record it."""
        new = text not in self._texts
        self._texts.pop(text, None)
        self._texts[text] = None
        if len(self._texts) > REPORTED:
            del self._texts[next(iter(self._texts))]
        return new


def _clear(cache: Cache | None, shelf: int) -> None:
    (cache or process_cache.value).clear(shelf)


process_cache = PerProcess(lambda: Cache(lambda: limits().cache_bytes))
