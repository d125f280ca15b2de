"""Collect where there is no lock: what settle entries dropped goes before them, in ascending order (rule O6).

Only entries that are linked by ``prev`` from the newest down are believed. Any other below them was put at a number
that had been collected: it goes by its number, and nothing of what it says counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark_commitlog.anchor import KEPT_ENTRIES, stays_ms
from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.journal import Journal, Stored
from pyspark_commitlog.log.settle_change import Change, Link, Operation
from pyspark_commitlog.log.settle_state import SettleState
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage.process import REQUESTS_AT_ONCE, results_of

#: Links that a handle remembers; those below are read again.
_MAX_LINKS = 2**14
#: Files that settle entries dropped, after which a run need not let go of more of these.
_LEAST_DROPS = 64


def delay_ms(config: TopicConfig) -> int:
    """Return how old an entry must be before what it did not need goes (rule O7); more than that, in ms (pure)."""
    return stays_ms(config.number("file.delete.delay.ms"))


def plan_proof(links: Sequence[Link], now_ms: int, least_ms: int) -> Link | None:
    """Return the newest entry that is older than ``least_ms``; one whose time is not known (-1) is not (pure)."""
    return next((link for link in reversed(links) if 0 <= link.at_ms < now_ms - least_ms), None)


def plan_numbers(numbers: Sequence[int], proof: int) -> tuple[list[int], int]:
    """Return the numbers that go, ascending, and the lowest that stays (pure)."""
    stays = set(sorted(numbers)[-KEPT_ENTRIES:])
    gone = [number for number in sorted(numbers) if number < proof and number not in stays]
    return gone, min(set(numbers).difference(gone), default=0)


@dataclass(frozen=True, slots=True)
class LetGoOf:
    """How many files went: settle entries, segment objects, tables and manifests; ``whole``: all that was to go."""

    entries: int = 0
    objects: int = 0
    tables: int = 0
    whole: bool = True


class SettleCollector:
    """One run on a settle journal: ``prove``, then what is settled goes, then ``let_go``.

    Args:
        topic, topic_id: whose.
        thorough: list the journal even where this handle knows its lowest entry: that finds the files put late.
    """

    def __init__(self, topic: TopicLog, topic_id: str, *, thorough: bool) -> None:
        self._topic, self._journal = topic, topic.settle_journal(topic_id)
        self._paths, self._memory = topic.paths(topic_id), topic.collecting(topic_id)
        self._thorough = thorough
        self._links: Mapping[int, Link] = {}
        self._numbers: Sequence[int] = ()
        self._proof = 0

    def prove(self, config: TopicConfig) -> SettleState | None:
        """Return what the newest entry says that is older than the delay; None where nothing is to be done.

        Whatever it has settled is not needed any more; nor are the entries below it.
        """
        newest = self._journal.newest()
        if newest is None:
            return None
        if self._thorough or not self._memory.settles_from:
            self._numbers = self._journal.sequences()
        else:
            self._numbers = range(self._memory.settles_from, newest.sequence + 1)
        links = self._linked(newest)
        proof = plan_proof(links, self._topic.storage.now_ms(), delay_ms(config))
        if proof is None or (proof.sequence == self._memory.proof and not self._thorough):
            return None
        self._links, self._proof = {link.sequence: link for link in links}, proof.sequence
        stored = self._believed(proof.sequence)
        if stored is None:  # another collector is ahead
            return None
        try:
            return self._topic.settle_state(stored.entry)
        except FileNotFoundError:  # as above
            return None

    def _linked(self, newest: Stored) -> tuple[Link, ...]:
        """Return the entries that are linked from the newest down, ascending; what is known is not read again."""
        known = {link.sequence: link for link in self._memory.links}
        links = [_link(newest)]
        lowest = min(self._numbers, default=1)
        while links[-1].sequence > lowest and (below := _below(self._journal, links[-1], known, lowest)):
            links.append(below)
        links.reverse()
        self._memory.links = tuple(link for link in links if link.at_ms >= 0)[-_MAX_LINKS:]
        return tuple(links)

    def _believed(self, number: int) -> Stored | None:
        """Return the entry with this number, if it is the one that was linked."""
        link = self._links.get(number)
        if link is None:
            return None
        try:
            stored = self._journal.read(number)
        except (FileNotFoundError, CorruptionError):
            return None
        return stored if stored.entry.write_id == link.write_id else None

    def throughs(self) -> dict[int, str]:
        """Return the entries of the topic's journal, by number, that were settled last: of all up to the proof."""
        return dict(link.through for number, link in self._links.items() if number <= self._proof)

    def let_go(self, enough: Callable[[], bool], left: int | None, least: int) -> LetGoOf:
        """Delete, for each number in ascending order, what its entry dropped and then the entry.

        Last, what the lowest entry dropped that stays: the entry before it is gone, and no older one names it.

        Args:
            enough: asked before each entry: whether to leave the rest.
            left: the lowest entry of the topic's journal that is still to go: those settle entries stay that name one
                from there on, as what is below is believed because of them. None: nothing is to go.
            least: so many go whatever ``enough`` says.
        """
        gone, lowest = plan_numbers(self._numbers, self._proof if left is None else self._below(left))
        first = min(self._numbers, default=0)
        dropped: list[str] = []

        def is_over(at: int) -> bool:
            return (at >= least or len(dropped) >= _LEAST_DROPS) and enough()

        for at, number in enumerate([*gone, lowest]):
            if at and is_over(at):
                return self._let_go_of(at, number, dropped, whole=False)
            if not self._delete_drops(number, dropped, number == first, partial(is_over, at + 1)):
                return self._let_go_of(at, number, dropped, whole=False)
            if at < len(gone):
                self._journal.delete(number)
        return self._let_go_of(len(gone), lowest, dropped, whole=True)

    def _below(self, left: int) -> int:
        """Return the last settle entry that names an entry below one; 0 where there is none."""
        below = (n for n, link in self._links.items() if n <= self._proof and link.through[0] < left)
        return max(below, default=0)

    def is_done(self) -> None:
        """Note that nothing is left to be done that the proof allows."""
        self._memory.proof = self._proof

    def _let_go_of(self, entries: int, lowest: int, dropped: Sequence[str], *, whole: bool) -> LetGoOf:
        """Note the lowest number that is left; return what went."""
        self._memory.settles_from = lowest
        self._memory.links = tuple(link for link in self._memory.links if link.sequence >= lowest)
        objects = sum(path.startswith("objects/") for path in dropped)
        return LetGoOf(entries, objects, len(dropped) - objects, whole)

    def _delete_drops(self, number: int, dropped: list[str], again: bool, enough: Callable[[], bool]) -> bool:
        """Delete what an entry dropped, if it is believed, several at a time; return whether all of it is gone.

        Args:
            number: the entry's.
            dropped: gets what went.
            again: most often an earlier run has done so, of the lowest entry: what is gone is not counted.
            enough: asked after every few: whether to leave the rest.
        """
        memory, storage = self._memory, self._topic.storage
        begin = memory.dropped[1] if memory.dropped[0] == number else 0
        if begin < 0:  # all of it
            return True
        stored = self._believed(number)
        drops: Sequence[str] = stored.entry.body.get("drops", ()) if stored is not None else ()

        def delete(path: str) -> bool:
            where = f"{self._paths.home}/{path}"
            if again and not storage.exists(where):
                return False
            storage.delete(where)
            return True

        for at in range(begin, len(drops), REQUESTS_AT_ONCE):
            if at > begin and enough():
                memory.dropped = number, at
                return False
            some = drops[at : at + REQUESTS_AT_ONCE]
            went = results_of(delete, some, REQUESTS_AT_ONCE)
            dropped += [path for path, gone in zip(some, went, strict=True) if gone]
        memory.dropped = number, -1
        return True


def _link(stored: Stored) -> Link:
    entry = stored.entry
    sequence, write_id = entry.body["through"]
    return Link(entry.sequence, entry.write_id, entry.prev, stored.info.modified_ms, (sequence, write_id))


def _below(journal: Journal, above: Link, known: dict[int, Link], lowest: int) -> Link | None:
    """Return the entry that another one was built on; None where it is gone or damaged, or another has its number.

    Args:
        journal: the settle journal.
        above: the entry.
        known: links that need no reading, to which those are added that were read.
        lowest: the lowest number that there may be.
    """
    number = above.sequence - 1
    if number not in known:
        unknown = [n for n in range(max(lowest, number - REQUESTS_AT_ONCE + 1), number + 1) if n not in known]
        known |= {n: _link(stored) for n, stored in journal.read_several(unknown).items()}
    link = known.get(number)
    return link if link is not None and link.write_id == above.prev else None


def touch(topic: TopicLog, topic_id: str, config: TopicConfig) -> Stored | None:
    """Put an entry that changes nothing where the newest has let go of something longer than the delay ago.

    The newest two entries stay, so of a topic that is idle the one before would keep it for ever. Tables alone are not
    worth it: every entry drops those of the one before.
    """
    return topic.change(topic_id, _touching(topic, delay_ms(config)))


def _touching(topic: TopicLog, least_ms: int) -> Operation:
    def unchanged(base: Stored, before: SettleState) -> Change | None:
        lets_go = any(not path.startswith("side/") for path in before.drops)
        old = 0 <= base.info.modified_ms < topic.storage.now_ms() - least_ms
        return Change(before) if lets_go and old else None

    return unchanged
