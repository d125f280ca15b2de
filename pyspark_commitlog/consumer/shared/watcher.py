"""Wakes consumers that wait: one thread for all topics of a process, and none where nobody waits.

On local disks the system reports the next entry (``storage.events``). Where a user has no more of such watches the
thread looks for its name, often after a commit and less often the longer nothing comes. Elsewhere each look is a
request, and they are paced (``storage.pace``).
While a look of it does not come back, as one at a root that hangs, consumers of others look themselves.
docs/explanation/design/waking.md has what either costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock
from weakref import WeakKeyDictionary, WeakValueDictionary

from pyspark_commitlog.consumer.shared.shared_topic import RECHECK_SECONDS, SharedTopic
from pyspark_commitlog.errors import UnknownTopicError
from pyspark_commitlog.storage import TEMPORARY, Storage, open_storage
from pyspark_commitlog.storage.clock import monotonic
from pyspark_commitlog.storage.events import Events
from pyspark_commitlog.storage.process import WhileNeeded, after_fork

#: Pauses between two looks, in seconds: the first after news, and the longest.
FIRST_PAUSE = 0.001
LONGEST_PAUSE = 0.02
_GROWTH = 1.2
#: The thread ends when nobody has waited for so long.
_LINGER_SECONDS = 1.0
#: A look that takes longer holds the thread up; consumers that wait ask so often whether one does.
HELD_UP_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Waiter:
    """A consumer that waits; ``wake`` is called once, from another thread. ``seen`` holds the versions known to it."""

    wake: Callable[[], None]
    seen: Mapping[SharedTopic, str] = field(default_factory=dict)


def next_pause(pause: float, *, news: bool) -> float:
    """Return how long to pause next (pure)."""
    return FIRST_PAUSE if news else min(pause * _GROWTH, LONGEST_PAUSE)


class Watcher:
    """Looks at the topics that somebody waits for, when an event reports a change, and often where no events come."""

    def __init__(self) -> None:
        self._waiting: dict[SharedTopic, set[Waiter]] = {}
        self._followed: WeakKeyDictionary[SharedTopic, int] = WeakKeyDictionary()
        self._events: Events | None = None
        self._thread = WhileNeeded("commitlog-watcher", self._watch)
        self._lock = self._thread.lock
        self._stopped = Event()
        self._under_way: tuple[str, float] | None = None

    def is_held_up(self, topics: Iterable[SharedTopic]) -> bool:
        """Return whether a look at another root than that of some topics does not come back: nobody is woken meanwhile.

        Where it is their own there is nothing that they could look at.
        """
        under_way = self._under_way
        if under_way is None:
            return False
        url, since = under_way
        return monotonic() - since > HELD_UP_SECONDS and all(topic.storage.url != url for topic in topics)

    def add(self, waiter: Waiter) -> None:
        """Wake ``waiter`` when one of its topics is another than it has seen."""
        with self._lock:
            new = [topic for topic in waiter.seen if topic not in self._waiting and topic not in self._followed]
            for topic in waiter.seen:
                self._waiting.setdefault(topic, set()).add(waiter)
            if new and self._events is not None:  # else it would not look at them for a second
                self._events.wake()
        try:
            self._thread.ensure_running()
        except BaseException:
            self.remove(waiter)
            raise
        if any(topic.version != version for topic, version in waiter.seen.items()):  # reported before it waited
            self._wake([waiter])

    def remove(self, waiter: Waiter) -> None:
        """Forget a waiter."""
        with self._lock:
            for topic in waiter.seen:
                waiting = self._waiting.get(topic, set())
                waiting.discard(waiter)
                if not waiting:
                    self._waiting.pop(topic, None)

    def close(self) -> None:
        """Close what a forked child has of its parent's; without the lock, which nobody may give back here."""
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def _watch(self) -> None:
        events = Events.open(TEMPORARY)
        with self._lock:
            self._events = events
            self._followed.clear()
        try:
            self._run(events)
        finally:
            with self._lock:
                if self._events is events:
                    self._events = None
            if events is not None:
                events.close()

    def _run(self, events: Events | None) -> None:
        pause, alone, unseen, changed = FIRST_PAUSE, 0.0, 0.0, set[int]()
        while True:
            everything = unseen >= RECHECK_SECONDS
            topics, blind = self._to_look_at(events, changed, everything=everything)
            news = self._look(topics)
            pause = next_pause(pause, news=news)
            del topics  # they go with the last consumer that reads them
            self._under_way = None
            waited, changed = self._wait(events, min(pause if blind else RECHECK_SECONDS, self._until_due()))
            unseen = waited if everything else unseen + waited
            with self._lock:
                alone = 0.0 if self._waiting else alone + waited
                if alone > _LINGER_SECONDS:
                    self._thread.ends()
                    return

    def _until_due(self) -> float:
        """Return how long until one of the topics that are waited for is to be looked at by its pace."""
        with self._lock:
            paced = [topic.seconds_left() for topic in self._waiting if topic.is_paced]
        return max(FIRST_PAUSE, min(paced, default=RECHECK_SECONDS))

    def _wait(self, events: Events | None, seconds: float) -> tuple[float, set[int]]:
        if events is not None:
            return events.wait(seconds)
        self._stopped.wait(seconds)
        return seconds, set()

    def _to_look_at(
        self, events: Events | None, changed: set[int], *, everything: bool
    ) -> tuple[list[SharedTopic], bool]:
        """Return the topics that may have changed, and whether no event will report some that are waited for.

        A topic is followed before it is looked at: what comes in between is reported. All are followed again where all
        are looked at: another directory may stand where theirs was moved away.
        """
        with self._lock:
            waiting, followed = list(self._waiting), dict(self._followed)
        if events is None:
            return waiting, any(not topic.is_paced for topic in waiting)
        notified = [topic for topic, number in followed.items() if number in changed]
        new = [topic for topic in waiting if everything or not events.follows(followed.get(topic))]
        numbers = {}
        for topic in new:
            self._under_way = topic.storage.url, monotonic()
            numbers[topic] = topic.follow(events)
        with self._lock:
            for topic in notified:
                if not events.follows(followed[topic]):
                    self._followed.pop(topic, None)
            for topic, number in numbers.items():
                if number is None:
                    self._followed.pop(topic, None)
                else:
                    self._followed[topic] = number
            if everything:
                events.keep(set(self._followed.values()))
        blind = any(number is None and not topic.is_paced for topic, number in numbers.items())
        return list({*new, *notified}), blind

    def _look(self, topics: Iterable[SharedTopic]) -> bool:
        """Look at topics; return whether there was news for somebody."""
        woken: list[Waiter] = []
        for topic in topics:
            failed, self._under_way = False, (topic.storage.url, monotonic())
            try:
                topic.look(certain=False)
            except UnknownTopicError:  # not there yet, or deleted: that has a version of its own
                pass
            except Exception:  # noqa: BLE001 the next poll raises it; one topic's trouble is not the others'
                failed = True
            with self._lock:
                waiting = self._waiting.get(topic, ())
                woken += [waiter for waiter in waiting if failed or waiter.seen[topic] != topic.version]
        self._wake(woken)
        return bool(woken)

    def _wake(self, waiters: Iterable[Waiter]) -> None:
        for waiter in waiters:
            self.remove(waiter)
            with suppress(RuntimeError):  # its event loop was closed meanwhile
                waiter.wake()


@dataclass(eq=False, slots=True)
class _ProcessState:
    """Topics and watcher that the consumers of a process share; a topic goes with its last reader."""

    topics: WeakValueDictionary[tuple[object, str], SharedTopic] = field(default_factory=WeakValueDictionary)
    watcher: Watcher = field(default_factory=Watcher)
    lock: Lock = field(default_factory=Lock)


_process = _ProcessState()


def _begin_again() -> None:
    """Share nothing with the process that this one was forked from: its threads and locks are not here.

    Nor are its events taken from it: as long as a child had them open, they would count as the user's and gather,
    whether or not the parent still reads them.
    """
    global _process
    _process.watcher.close()
    _process = _ProcessState()


after_fork(_begin_again)


class SharedRoot:
    """A root, as the consumers of this process share it."""

    def __init__(self, storage: Storage, key: object) -> None:
        self.storage, self._key = storage, key

    @classmethod
    def open(cls, root: str, storage_options: Mapping[str, object] | None) -> SharedRoot:
        """Return a root by its URL."""
        storage = open_storage(root, storage_options)
        return cls(storage, (storage.url, repr(sorted((storage_options or {}).items()))))

    def topic(self, name: str, storage: Storage | None = None) -> SharedTopic:
        """Return a topic, existing or not; read at ``storage`` where that is another root than the one opened."""
        process = _process
        with process.lock:
            topic = process.topics.get((self._key, name))
            if topic is None:
                topic = process.topics[self._key, name] = SharedTopic(storage or self.storage, name)
            return topic

    def wait(self, seen: Mapping[SharedTopic, str], seconds: float) -> None:
        """Wait for a change of one of the topics, at most so long; shorter where nobody would wake it."""
        event = Event()
        waiter = Waiter(event.set, seen)
        watcher = _process.watcher
        watcher.add(waiter)
        try:
            while not event.wait(min(seconds, HELD_UP_SECONDS)) and seconds > HELD_UP_SECONDS:
                seconds -= HELD_UP_SECONDS
                if watcher.is_held_up(seen):
                    return
        finally:
            watcher.remove(waiter)

    async def await_news(self, seen: Mapping[SharedTopic, str], seconds: float) -> None:
        """Do as ``wait`` without blocking the event loop."""
        loop, news, watcher = asyncio.get_running_loop(), asyncio.Event(), _process.watcher

        def wake() -> None:
            loop.call_soon_threadsafe(news.set)

        forget = self.watch(seen, wake)
        try:
            while not await _comes(news, min(seconds, HELD_UP_SECONDS)) and seconds > HELD_UP_SECONDS:
                seconds -= HELD_UP_SECONDS
                if watcher.is_held_up(seen):
                    return
        finally:
            forget()

    def watch(self, seen: Mapping[SharedTopic, str], wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` in another thread when a topic changes; return the unsubscriber."""
        waiter = Waiter(wake, seen)
        watcher = _process.watcher
        watcher.add(waiter)
        return lambda: watcher.remove(waiter)


async def _comes(event: asyncio.Event, seconds: float) -> bool:
    """Return whether an event comes within a time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
