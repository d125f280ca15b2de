"""Watcher thread that wakes a process' waiting consumers.

Local disks report entries (`storage.events`), beyond the user's limit of watches the thread polls, elsewhere looks are
paced requests (`storage.pace`). While one hangs, consumers of other roots look themselves. Costs:
docs/explanation/design/waking.md.
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
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.storage import TEMPORARY, Storage, open_storage
from pyspark_commitlog.storage.clock import Backoff, monotonic
from pyspark_commitlog.storage.events import Events
from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.storage.process import WhileNeeded

#: Between looks, after news.
_BACKOFF = Backoff(0.001, 0.02, factor=1.2)
#: The thread ends after this time without waiters.
_LINGER_SECONDS = 1.0
#: Time after which a look holds the thread up, and the interval at which waiters check for that.
HELD_UP_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Waiter:
    """Waiting consumer; `wake` is called once, in another thread.

    `seen`: versions that it knows.
    """

    wake: Callable[[], None]
    seen: Mapping[SharedTopic, str] = field(default_factory=dict)


class Watcher:
    """Watcher of awaited topics, by events or at intervals."""

    def __init__(self) -> None:
        self._waiting: dict[SharedTopic, set[Waiter]] = {}
        self._followed: WeakKeyDictionary[SharedTopic, int] = WeakKeyDictionary()
        self._events: Events | None = None
        self._thread = WhileNeeded("commitlog-watcher", self._watch)
        self._lock = self._thread.lock
        self._stopped = Event()
        self._under_way: tuple[str, float] | None = None

    def is_held_up(self, topics: Iterable[SharedTopic]) -> bool:
        """Whether a look at another root hangs, so nobody is woken.

        At their own root consumers could not look either.
        """
        under_way = self._under_way
        if under_way is None:
            return False
        url, since = under_way
        return monotonic() - since > HELD_UP_SECONDS and all(topic.storage.url != url for topic in topics)

    def add(self, waiter: Waiter) -> None:
        """Wake `waiter` when a topic differs from its seen version."""
        with self._lock:
            new = [topic for topic in waiter.seen if topic not in self._waiting and topic not in self._followed]
            for topic in waiter.seen:
                self._waiting.setdefault(topic, set()).add(waiter)
            if new and self._events is not None:  # else it would not look at them for a second
                self._events.wake()
        with call_on_error(lambda: self.remove(waiter)):
            self._thread.ensure_running()
        if any(topic.version != version for topic, version in waiter.seen.items()):  # reported before it waited
            self._wake([waiter])

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter."""
        with self._lock:
            for topic in waiter.seen:
                waiting = self._waiting.get(topic, set())
                waiting.discard(waiter)
                if not waiting:
                    self._waiting.pop(topic, None)

    def close(self) -> None:
        """Close the events inherited by a forked child.

        Without the lock, which may be held for ever.
        """
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
        quiet, alone, unseen, changed = 0, 0.0, 0.0, set[int]()
        while True:
            everything = unseen >= RECHECK_SECONDS
            topics, blind = self._to_look_at(events, changed, everything=everything)
            news = self._look(topics)
            quiet = 0 if news else quiet + 1
            del topics  # they end with the last consumer that reads them
            self._under_way = None
            pause = _BACKOFF.after(quiet) if blind else RECHECK_SECONDS
            waited, changed = self._wait(events, min(pause, self._until_due()))
            unseen = waited if everything else unseen + waited
            with self._lock:
                alone = 0.0 if self._waiting else alone + waited
                if alone > _LINGER_SECONDS:
                    self._thread.mark_ending()
                    return

    def _until_due(self) -> float:
        with self._lock:
            paced = [topic.seconds_left() for topic in self._waiting if topic.is_paced]
        return max(_BACKOFF.first, min(paced, default=RECHECK_SECONDS))

    def _wait(self, events: Events | None, seconds: float) -> tuple[float, set[int]]:
        if events is not None:
            return events.wait(seconds)
        self._stopped.wait(seconds)
        return seconds, set()

    def _to_look_at(
        self, events: Events | None, changed: set[int], *, everything: bool
    ) -> tuple[list[SharedTopic], bool]:
        """Return topics that may have changed, and whether some lack events.

        Topics are followed before the look, not to miss a change, and again at full looks, if a directory was replaced.
        """
        with self._lock:
            waiting, followed = list(self._waiting), dict(self._followed)
        if events is None:
            return waiting, any(not topic.is_paced for topic in waiting)
        notified = {topic: number for topic, number in followed.items() if number in changed}
        new = [topic for topic in waiting if everything or not events.follows(followed.get(topic))]
        numbers = self._follow(events, new, notified, everything=everything)
        blind = any(number is None and not topic.is_paced for topic, number in numbers.items())
        return list({*new, *notified}), blind

    def _follow(
        self, events: Events, new: Iterable[SharedTopic], notified: Mapping[SharedTopic, int], *, everything: bool
    ) -> dict[SharedTopic, int | None]:
        numbers = {}
        for topic in new:
            self._under_way = topic.storage.url, monotonic()
            numbers[topic] = topic.follow(events)
        with self._lock:
            for topic, former in notified.items():
                if not events.follows(former):
                    self._followed.pop(topic, None)
            for topic, number in numbers.items():
                if number is None:
                    self._followed.pop(topic, None)
                else:
                    self._followed[topic] = number
            if everything:
                events.keep(set(self._followed.values()))
        return numbers

    def _look(self, topics: Iterable[SharedTopic]) -> bool:
        woken: list[Waiter] = []
        for topic in topics:
            failed, self._under_way = True, (topic.storage.url, monotonic())
            with suppress(Exception):  # the next poll raises it; one topic's trouble is not the others'
                with suppress(UnknownTopicError):  # missing or deleted: that is a version, too
                    topic.look(certain=False)
                failed = False
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
    topics: WeakValueDictionary[tuple[object, str], SharedTopic] = field(default_factory=WeakValueDictionary)
    watcher: Watcher = field(default_factory=Watcher)
    lock: Lock = field(default_factory=Lock)


#: A copy of the parent's events would count for the user's limits, and gather events after the parent's end.
_process = PerProcess(_ProcessState, lambda parent: parent.watcher.close())


class SharedRoot:
    """Root shared by this process' consumers."""

    def __init__(self, storage: Storage, key: object) -> None:
        self.storage, self._key = storage, key

    @classmethod
    def on(cls, storage: Storage) -> SharedRoot:
        """Share an open storage."""
        return cls(storage, id(storage))

    @classmethod
    def open(cls, root: str, storage_options: Mapping[str, object] | None) -> SharedRoot:
        """Open a root by its URL."""
        storage = open_storage(root, storage_options)
        return cls(storage, (storage.url, repr(sorted((storage_options or {}).items()))))

    def topic(self, name: str, storage: Storage | None = None) -> SharedTopic:
        """Topic, existing or not, read at `storage` if given."""
        process = _process.value
        with process.lock:
            topic = process.topics.get((self._key, name))
            if topic is None:
                topic = process.topics[self._key, name] = SharedTopic(storage or self.storage, name)
            return topic

    def wait(self, seen: Mapping[SharedTopic, str], seconds: float) -> None:
        """Wait up to `seconds` for a change, or until the watcher hangs."""
        event = Event()
        waiter = Waiter(event.set, seen)
        watcher = _process.value.watcher
        watcher.add(waiter)
        try:
            while not event.wait(min(seconds, HELD_UP_SECONDS)) and seconds > HELD_UP_SECONDS:
                seconds -= HELD_UP_SECONDS
                if watcher.is_held_up(seen):
                    return
        finally:
            watcher.remove(waiter)

    async def await_news(self, seen: Mapping[SharedTopic, str], seconds: float) -> None:
        """Like `wait`, without blocking the event loop."""
        loop, news, watcher = asyncio.get_running_loop(), asyncio.Event(), _process.value.watcher

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
        """Call `wake` in another thread on changes; return the unsubscriber."""
        waiter = Waiter(wake, seen)
        watcher = _process.value.watcher
        watcher.add(waiter)
        return lambda: watcher.remove(waiter)


async def _comes(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
