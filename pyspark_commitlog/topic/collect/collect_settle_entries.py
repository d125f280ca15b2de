"""Lock-free collection of settle entries and their drops, ascending (O6).

Only entries linked by `prev` from the newest are believed. Others were put late at a collected number: deleted by
number, their content ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.journal import Journal, Stored
from pyspark_commitlog.journal.anchor import KEPT_ENTRIES, stays_ms
from pyspark_commitlog.storage.process import REQUESTS_AT_ONCE, results_of
from pyspark_commitlog.topic.state.settle_change import Change, Link, Operation
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Maximum of links in a handle's memory.
_MAX_LINKS = 2**14
#: Dropped files after which a run may stop.
_LEAST_DROPS = 64


def delay_ms(config: TopicConfig) -> int:
    """Age, in ms, an entry must exceed (rule O7; pure)."""
    return stays_ms(config.number("file.delete.delay.ms"))


def plan_proof(links: Sequence[Link], now_ms: int, least_ms: int) -> Link | None:
    """Return the newest entry of known time older than `least_ms` (pure)."""
    return next((link for link in reversed(links) if 0 <= link.at_ms < now_ms - least_ms), None)


def plan_numbers(numbers: Sequence[int], proof: int) -> tuple[list[int], int]:
    """Return the numbers to delete, ascending, and the lowest to stay (pure)."""
    stays = set(sorted(numbers)[-KEPT_ENTRIES:])
    gone = [number for number in sorted(numbers) if number < proof and number not in stays]
    return gone, min(set(numbers).difference(gone), default=0)


@dataclass(frozen=True, slots=True)
class LetGoOf:
    """Numbers of deleted files; `whole` if nothing is left.

    `tables` includes manifests.
    """

    entries: int = 0
    objects: int = 0
    tables: int = 0
    whole: bool = True


class SettleCollector:
    """One run: `prove`, collect topic entries, `let_go`.

    `thorough` lists the journal even if its lowest entry is known, which finds late puts.
    """

    def __init__(self, topic: TopicLog, topic_id: str, *, thorough: bool) -> None:
        self._topic, self._journal = topic, topic.settle_journal(topic_id)
        self._paths, self._memory = topic.paths(topic_id), topic.collecting(topic_id)
        self._thorough = thorough
        self._links: Mapping[int, Link] = {}
        self._numbers: Sequence[int] = ()
        self._proof = 0

    def prove(self, config: TopicConfig) -> SettleState | None:
        """Return the newest state older than the delay, if any is due."""
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
        known = {link.sequence: link for link in self._memory.links}
        links = [_link(newest)]
        lowest = min(self._numbers, default=1)
        while links[-1].sequence > lowest and (below := _below(self._journal, links[-1], known, lowest)):
            links.append(below)
        links.reverse()
        self._memory.links = tuple(link for link in links if link.at_ms >= 0)[-_MAX_LINKS:]
        return tuple(links)

    def _believed(self, number: int) -> Stored | None:
        link = self._links.get(number)
        if link is None:
            return None
        try:
            stored = self._journal.read(number)
        except (FileNotFoundError, CorruptionError):
            return None
        return stored if stored.entry.write_id == link.write_id else None

    def throughs(self) -> dict[int, str]:
        """Last settled topic entries up to the proof, by number."""
        return dict(link.through for number, link in self._links.items() if number <= self._proof)

    def let_go(self, enough: Callable[[], bool], left: int | None, least: int) -> LetGoOf:
        """Delete, per number ascending, an entry's drops and then the entry.

        Last, the drops of the lowest entry that stays: no older entry names them.

        Args:
            left: lowest topic entry to delete; settle entries that name it or later ones stay, as its proof.
            least: entries deleted regardless of `enough`.
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
        below = (n for n, link in self._links.items() if n <= self._proof and link.through[0] < left)
        return max(below, default=0)

    def is_done(self) -> None:
        """Record that all that the proof allows is done."""
        self._memory.proof = self._proof

    def _let_go_of(self, entries: int, lowest: int, dropped: Sequence[str], *, whole: bool) -> LetGoOf:
        self._memory.settles_from = lowest
        self._memory.links = tuple(link for link in self._memory.links if link.sequence >= lowest)
        objects = sum(path.startswith("objects/") for path in dropped)
        return LetGoOf(entries, objects, len(dropped) - objects, whole)

    def _delete_drops(self, number: int, dropped: list[str], again: bool, enough: Callable[[], bool]) -> bool:
        """Delete a believed entry's drops; return whether all are gone.

        `again`: an earlier run has probably deleted them: missing ones do not count.
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
    """Entry that `above` was built on, if there and undamaged; `known` caches links."""
    number = above.sequence - 1
    if number not in known:
        unknown = [n for n in range(max(lowest, number - REQUESTS_AT_ONCE + 1), number + 1) if n not in known]
        known |= {n: _link(stored) for n, stored in journal.read_several(unknown).items()}
    link = known.get(number)
    return link if link is not None and link.write_id == above.prev else None


def touch(topic: TopicLog, topic_id: str, config: TopicConfig) -> Stored | None:
    """Put an unchanged entry if the newest one's drops are due.

    The newest two entries stay: an idle topic would keep drops for ever. Tables alone do not count: every entry drops
    its predecessor's.
    """
    return topic.change(topic_id, _touching(topic, delay_ms(config)))


def _touching(topic: TopicLog, least_ms: int) -> Operation:
    def unchanged(base: Stored, before: SettleState) -> Change | None:
        lets_go = any(not path.startswith("side/") for path in before.drops)
        old = 0 <= base.info.modified_ms < topic.storage.now_ms() - least_ms
        return Change(before) if lets_go and old else None

    return unchanged
