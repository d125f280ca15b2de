"""Sweep of files that no settle entry names (rule O4).

An entry first raises the floor: files begun below it are never named again.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark_commitlog.config import MIN_STAGED_MS, TopicConfig
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.paths import TopicPaths, parse_manifest, parse_object, parse_side
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.storage.process import results_in_batches
from pyspark_commitlog.topic.state.settle_change import Change, Operation, named_by
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.state.side_files import SETTLE_TABLES
from pyspark_commitlog.topic.state.topic_state import Mark, plan_floor
from pyspark_commitlog.topic.topic_log import TopicLog


def retention_ms(config: TopicConfig) -> int:
    """Minimum age, in ms, of an unnamed file before deletion (pure)."""
    return max(MIN_STAGED_MS, config.number("staged.retention.ms"))


def sweep_objects(topic: TopicLog, topic_id: str) -> int | None:
    """Raise the floor, and delete unnamed files below; return their number.

    None if the floor does not rise. Nothing is deleted if a manifest of the newest settle entry is damaged.
    """
    _, before = topic.settled(topic_id)
    topic.change(topic_id, _raising(topic, topic_id))
    # Read the newest entry only after the floor counts: a file below the floor that is named later is named by this
    # entry, by one listed now, or by a collected one whose drops went with it.
    _, state = topic.settled(topic_id)
    if state.files_floor <= before.files_floor:
        return None
    doomed = set(_below(topic, topic.paths(topic_id), state.files_floor))
    if doomed:
        try:
            doomed -= _named_now(topic, state)
        except FileNotFoundError:  # collected: a newer entry names other files; left to the next sweep
            return 0
    if doomed:
        retained = _named_by_retained(topic, topic_id)
        doomed = set() if retained is None else doomed - retained
    home = topic.paths(topic_id).home
    for path in sorted(doomed):
        topic.storage.delete(f"{home}/{path}")
    return len(doomed)


def _raising(topic: TopicLog, topic_id: str) -> Operation:
    now = topic.storage.now_ms()
    least_ms = retention_ms(topic.config(topic.newest(topic_id)[1]))

    def raise_floor(base: Stored, before: SettleState) -> Change | None:
        marks = (*before.marks, Mark(*topic.settle_journal(topic_id).dated(base)))
        floor = plan_floor(marks, now, least_ms)
        return Change(replace(before, files_floor=floor)) if floor > before.files_floor else None

    return raise_floor


def _below(topic: TopicLog, paths: TopicPaths, floor: int) -> list[str]:
    names, found = topic.storage.names, list[str]()
    for name in names(paths.objects):
        number = parse_object(name)
        found += [f"objects/{name}"] if number is not None and number < floor else []
    for name in names(paths.manifests):
        parsed = parse_manifest(name)
        found += [f"manifests/{name}"] if parsed is not None and parsed[1] < floor else []
    for name in names(paths.side):
        number = parse_side(name) if name.endswith(SETTLE_TABLES) else None
        found += [f"side/{name}"] if number is not None and number < floor else []
    return found


def _named_now(topic: TopicLog, state: SettleState) -> set[str]:
    """Newest entry's files, without tables, which are above the floor."""
    named = named_by(state)
    for partition, row in enumerate(state.partitions):
        named.update(f"manifests/{leaf.name}" for leaf in topic.leaves(state.topic_id, row.manifest))
        for segment in topic.own_segments(state, partition).every():
            if segment.place is not None:
                named.add(f"objects/{segment.place.object}")
    return named


def _named_by_retained(topic: TopicLog, topic_id: str) -> set[str] | None:
    """Return files that only older entries name; None if unknown.

    Some later entry dropped them, so drops list them, and no manifest is read.
    """
    journal, named = topic.settle_journal(topic_id), set[str]()

    def drops_of(number: int) -> list[str] | None:
        try:
            return list(journal.read(number).entry.body.get("drops", ()))
        except FileNotFoundError:  # collected with its drops
            return []
        except CorruptionError:  # unknown drops
            return None

    for _, drops in results_in_batches(drops_of, journal.sequences(), topic.storage.requests_at_once):
        if drops is None:
            return None
        named.update(drops)
    return named
