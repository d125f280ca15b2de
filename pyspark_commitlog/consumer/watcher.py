"""Wakes consumers that wait: one thread for all topics of a process, and none where nobody waits.

It looks for the next entry's name, often behind a commit and less often the longer nothing comes: a look takes some
microseconds. Watching the directory instead (inotify) would save these, but sees nothing of what another machine writes
on a shared mount, and has limits of its own on large machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock
from weakref import WeakValueDictionary

from pyspark_commitlog.consumer.shared import SharedTopic
from pyspark_commitlog.errors import CommitLogError, UnknownTopicError
from pyspark_commitlog.storage import Storage, open_storage
from pyspark_commitlog.storage.process import WhileNeeded, after_fork

#: Pauses between two looks, in seconds: the first behind news, and the longest.
FIRST_PAUSE = 0.001
LONGEST_PAUSE = 0.02
_GROWTH = 1.2
#: The thread ends when nobody has waited for so long.
_LINGER_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Waiter:
    """Somebody who waits; ``wake`` is called once, from another thread. ``seen`` holds the versions known to it."""

    wake: Callable[[], None]
    seen: Mapping[SharedTopic, int] = field(default_factory=dict)


def next_pause(pause: float, *, news: bool) -> float:
    """Return how long to pause next (pure)."""
    return FIRST_PAUSE if news else min(pause * _GROWTH, LONGEST_PAUSE)


class Watcher:
    """Looks at the topics that somebody waits for."""

    def __init__(self) -> None:
        self._waiting: dict[SharedTopic, set[Waiter]] = {}
        self._thread = WhileNeeded("commitlog-watcher", self._watch)
        self._lock = self._thread.lock
        self._stopped = Event()

    def add(self, waiter: Waiter) -> None:
        """Wake ``waiter`` when one of its topics is another than it has seen."""
        with self._lock:
            for topic in waiter.seen:
                self._waiting.setdefault(topic, set()).add(waiter)
        try:
            self._thread.needed()
        except BaseException:
            self.remove(waiter)
            raise

    def remove(self, waiter: Waiter) -> None:
        """Forget a waiter."""
        with self._lock:
            for topic in waiter.seen:
                waiting = self._waiting.get(topic, set())
                waiting.discard(waiter)
                if not waiting:
                    self._waiting.pop(topic, None)

    def _watch(self) -> None:
        pause, alone = FIRST_PAUSE, 0.0
        while True:
            news = self._look()
            pause = next_pause(pause, news=news)
            self._stopped.wait(pause)
            with self._lock:
                alone = 0.0 if self._waiting else alone + pause
                if alone > _LINGER_SECONDS:
                    self._thread.ends()
                    return

    def _look(self) -> bool:
        """Look at every topic once; return whether there was news."""
        with self._lock:
            topics = list(self._waiting)
        woken: list[Waiter] = []
        for topic in topics:
            failed = False
            try:
                topic.look()
            except UnknownTopicError:  # not there yet, or deleted: that has a version of its own
                pass
            except (CommitLogError, OSError):  # who polls is told
                failed = True
            with self._lock:
                found = self._waiting.get(topic, ())
                woken += [waiter for waiter in found if failed or waiter.seen[topic] != topic.version]
        for waiter in woken:
            self.remove(waiter)
            with suppress(RuntimeError):  # its event loop was closed meanwhile
                waiter.wake()
        return bool(woken)


@dataclass(eq=False, slots=True)
class _Process:
    """What consumers of a process have in common: topics go with the last consumer that reads them."""

    topics: WeakValueDictionary[tuple[object, str], SharedTopic] = field(default_factory=WeakValueDictionary)
    watcher: Watcher = field(default_factory=Watcher)
    lock: Lock = field(default_factory=Lock)


_process = _Process()


def _begin_anew() -> None:
    """Share nothing with the process that this one was forked from: its threads and locks are not here."""
    global _process
    _process = _Process()


after_fork(_begin_anew)


class Shared:
    """A root, as the consumers of this process share it."""

    def __init__(self, storage: Storage, key: object) -> None:
        self.storage, self._key = storage, key

    @classmethod
    def open(cls, root: str, storage_options: Mapping[str, object] | None) -> Shared:
        """Return a root by its URL."""
        storage = open_storage(root, storage_options)
        return cls(storage, (storage.url, repr(sorted((storage_options or {}).items()))))

    def topic(self, name: str) -> SharedTopic:
        """Return a topic, existing or not."""
        process = _process
        with process.lock:
            found = process.topics.get((self._key, name))
            if found is None:
                found = process.topics[self._key, name] = SharedTopic(self.storage, name)
            return found

    def wait(self, seen: Mapping[SharedTopic, int], seconds: float) -> None:
        """Wait for a change of one of the topics, at most so long."""
        event = Event()
        waiter = Waiter(event.set, seen)
        watcher = _process.watcher
        watcher.add(waiter)
        try:
            event.wait(seconds)
        finally:
            watcher.remove(waiter)

    def watch(self, seen: Mapping[SharedTopic, int], wake: Callable[[], None]) -> Callable[[], None]:
        """Have ``wake`` called, from another thread, at a change of one of the topics; return what ends that."""
        waiter = Waiter(wake, seen)
        watcher = _process.watcher
        watcher.add(waiter)
        return lambda: watcher.remove(waiter)
