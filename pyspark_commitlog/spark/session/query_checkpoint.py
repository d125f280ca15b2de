"""Offsets in the checkpoint of a stopped query (`OffsetSeqLog`, versions 1 and 2).

Spark writes `offsets/<batch>` before a micro-batch and `commits/<batch>` after it. It replays a batch without
commit, whose offsets must stay the same. Version 1 has an offset a line, in the order of the plan's sources; version 2
(`OffsetMap`, of queries whose sources have names) has `name:offset`, in any order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark_commitlog.errors import CorruptionError, NotFoundError, UsageError
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.groups.consumer_groups import moved_to
from pyspark_commitlog.groups.reset_target import Target
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.spark.progress.source_offset import TOPIC_IDS, SourceOffset
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.divergence import Divergence, describe_loss, find_divergence
from pyspark_commitlog.topic.state.lost_ranges import losses_since
from pyspark_commitlog.topic.state.topic_state import TopicState

_BY_POSITION, _BY_NAME = "v1", "v2"
_NAMED = re.compile(r"[A-Za-z0-9_]+:")
_NO_OFFSET = "-"
#: Bytes read of a file at most; the offsets of 10,000 partitions take less.
_FILE_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest micro-batch of a checkpoint.

    `committed`: whether Spark has finished it. `lines`: of the file `where`: version, metadata, and offsets per source.
    """

    batch: int
    committed: bool
    lines: tuple[str, ...]
    where: str

    @property
    def sources(self) -> dict[int, SourceOffset]:
        """Offsets of this format's sources, by line number."""
        offsets = {}
        for number, line in enumerate(self.lines[2:], 2):
            data = _parsed(line.removeprefix(self._prefix(number)))
            if isinstance(data, dict) and TOPIC_IDS in data:
                offsets[number] = SourceOffset.from_json(data, f"{self.where} line {number + 1}")
        return offsets

    def source(self, number: int) -> str | int:
        """Name of the source at a line, or its position in the query if sources have no names."""
        return self._prefix(number)[:-1] or number - 2

    def with_source(self, number: int, offset: SourceOffset) -> Checkpoint:
        """Checkpoint with another offset at a line."""
        lines = list(self.lines)
        lines[number] = self._prefix(number) + json.dumps(offset.to_json())
        return replace(self, lines=tuple(lines))

    def _prefix(self, number: int) -> str:
        name = _NAMED.match(self.lines[number]) if self.lines[0] == _BY_NAME else None
        return name[0] if name else ""


@dataclass(frozen=True, slots=True)
class MovedOffset:
    """Offset of a query in a partition, before and after a move."""

    topic: str
    partition: int
    before: int | None
    after: int


def read_checkpoint(storage: Storage) -> Checkpoint:
    """Read the newest micro-batch of the checkpoint at `storage`.

    Raises:
        NotFoundError: no query has planned a batch there.
        CorruptionError: this release can't read the file of offsets.
    """
    planned, over = _numbers(storage, "offsets"), _numbers(storage, "commits")
    if not planned:
        raise NotFoundError(
            f"there is no checkpoint with offsets at {storage.url}: name the directory that is the query's "
            "checkpointLocation"
        )
    batch = planned[-1]
    text = storage.read(f"offsets/{batch}", 0, _FILE_BYTES).decode(errors="replace")
    lines = tuple(text.split("\n"))
    _check_shape(lines, f"{storage.url}/offsets/{batch}")
    return Checkpoint(batch, bool(over) and over[-1] >= batch, lines, f"{storage.url}/offsets/{batch}")


def _check_shape(lines: Sequence[str], where: str) -> None:
    if lines[0] not in (_BY_POSITION, _BY_NAME) or len(lines) < 3:
        raise CorruptionError(
            f"{where}: version {lines[0][:20]!r} with {len(lines)} lines, expected {_BY_POSITION} or {_BY_NAME}, "
            "metadata and a line for each source"
        )
    nameless = [number for number, line in enumerate(lines[2:], 3) if not _NAMED.match(line)]
    if lines[0] == _BY_NAME and nameless:
        raise CorruptionError(f"{where} line {nameless[0]}: expected the source's name, a colon and its offset")


def moved_checkpoint(
    log: Root, checkpoint: Checkpoint, topics: Mapping[str, Sequence[int] | None] | None, target: Target
) -> tuple[Checkpoint, tuple[MovedOffset, ...]]:
    """Checkpoint with moved offsets, and the moves.

    Moves only partitions in the checkpoint; the query begins newer ones at their first record.

    Args:
        log: the root that the query reads; selects among several sources of a topic.
        topics: topic -> partitions; None for all, also of a topic.

    Raises:
        UsageError: the query is in the middle of a batch, does not read a topic or partition, or a loss in a remaining
            partition would go unreported.
    """
    if not checkpoint.committed:
        raise UsageError(
            f"batch {checkpoint.batch} is planned and not over: Spark plays it again, and it must stay the same for "
            "exactly once. Start the query once more and stop it after a batch, then set its offsets"
        )
    sources = checkpoint.sources
    wanted = _wanted_topics(topics, sources)
    changed, moved = checkpoint, list[MovedOffset]()
    read_here = {name: _reading(log, name, sources) for name in wanted}
    for name, partitions in wanted.items():
        _check_read(name, partitions or (), [sources[number] for number in read_here[name]])
    for number, source in sources.items():
        here = {name: wanted[name] for name in sorted(wanted) if number in read_here[name]}
        chosen = _select_partitions(here, source)
        if chosen:  # else it stays as it is
            after, rows = _moved_source(log, source, chosen, target)
            changed = changed.with_source(number, after)
            moved += rows
    return changed, tuple(moved)


def _wanted_topics(
    topics: Mapping[str, Sequence[int] | None] | None, sources: Mapping[int, SourceOffset]
) -> dict[str, Sequence[int] | None]:
    read = {place.topic for source in sources.values() for place in source.offsets}
    wanted = dict.fromkeys(sorted(read)) if topics is None else dict(topics)
    if missing := sorted(set(wanted) - read):
        raise UsageError(f"this checkpoint is of {', '.join(sorted(read)) or 'no topic'}, not of {', '.join(missing)}")
    return wanted


def _select_partitions(
    wanted: Mapping[str, Sequence[int] | None], source: SourceOffset
) -> dict[str, Sequence[int] | None]:
    """Return topic -> partitions that a source reads, None for all."""
    chosen = dict[str, Sequence[int] | None]()
    for name, partitions in wanted.items():
        if partitions is None:
            chosen[name] = None
        elif read := [each for each in partitions if TopicPartition(name, each) in source.offsets]:
            chosen[name] = read
    return chosen


def _moved_source(
    log: Root, source: SourceOffset, chosen: Mapping[str, Sequence[int] | None], target: Target
) -> tuple[SourceOffset, list[MovedOffset]]:
    offsets, ids, lineages = dict(source.offsets), dict(source.topic_ids), dict(source.lineages)
    moved = list[MovedOffset]()
    for name, partitions in chosen.items():
        after, topic_id, mark = _moved(log, name, partitions, source, target)
        if partitions is None:
            offsets = {place: offset for place, offset in offsets.items() if place.topic != name}
        moved += [MovedOffset(*place, source.offsets.get(place), offset) for place, offset in after.items()]
        offsets |= after
        ids[name], lineages[name] = topic_id, mark
    return replace(source, offsets=offsets, topic_ids=ids, lineages=lineages, start=None), moved


def _reading(log: Root, name: str, sources: Mapping[int, SourceOffset]) -> list[int]:
    """Return the sources of a topic at this root; one alone counts."""
    reading = [number for number, source in sources.items() if any(place.topic == name for place in source.offsets)]
    if len(reading) == 1:
        return reading
    _, state = log.topic(name).newest_durable()
    ids = {state.topic_id, *(former for former, _ in state.former_ids)}
    here = [number for number in reading if sources[number].topic_ids.get(name) in ids]
    if not here:
        raise UsageError(
            f"topic {name!r} is read by {len(reading)} sources of this checkpoint, and none of them has read the one "
            f"at {log.url}, of topic id {state.topic_id}: name the root that the source reads"
        )
    return here


def _check_read(name: str, partitions: Sequence[int], sources: Sequence[SourceOffset]) -> None:
    read = {place.partition for source in sources for place in source.offsets if place.topic == name}
    if strange := sorted(set(partitions) - read):
        raise UsageError(
            f"topic {name!r}: the query does not read partition {', '.join(map(str, strange))} (yet): it has offsets "
            f"of {', '.join(map(str, sorted(read)))}"
        )


def write_checkpoint(storage: Storage, changed: Checkpoint, before: Checkpoint) -> str:
    """Replace the offsets by the changed ones; return the backup's name."""
    backup = f"offsets-before-{storage.new_id()}"
    storage.write_once(backup, "\n".join(before.lines).encode())
    storage.delete(f"offsets/.{changed.batch}.crc")  # Hadoop's checksum of the old bytes; it is optional
    storage.write_once(f"offsets/{changed.batch}", "\n".join(changed.lines).encode())
    return backup


def _moved(
    log: Root, name: str, partitions: Sequence[int] | None, source: SourceOffset, target: Target
) -> tuple[dict[TopicPartition, int], str, str]:
    topic = log.topic(name)
    _, state = topic.newest_durable()
    same = source.topic_ids.get(name) == state.topic_id
    if partitions is not None and not same:
        raise UsageError(
            f"topic {name!r} was deleted and made again since this query read it: set the offsets of all its partitions"
        )
    seen = Lineage.of_position(source.lineages.get(name, ""))
    gone = find_divergence(topic, seen, state) if same else None
    if partitions is None:
        partitions = _partitions_there(name, source, state)
    elif gone is not None:
        _check_left(name, partitions, source, gone)
    else:
        _check_reported(name, partitions, source, state, seen)
    after = {}
    for partition in partitions:
        place = TopicPartition(name, partition)
        current = _current_offset(place, source, gone) if same else None
        after[place] = moved_to(topic, state, partition, target, current)
    return after, state.topic_id, state.lineage.position


def _partitions_there(name: str, source: SourceOffset, state: TopicState) -> list[int]:
    read = (place.partition for place in source.offsets if place.topic == name)
    return sorted(partition for partition in read if partition < state.partitions)


def _current_offset(place: TopicPartition, source: SourceOffset, gone: Divergence | None) -> int | None:
    current = source.offsets.get(place)
    if gone is not None and current is not None and gone.loses(place.partition, current):
        return gone.end(place.partition)
    return current


def _check_left(name: str, partitions: Sequence[int], source: SourceOffset, gone: Divergence) -> None:
    """Reject keeping offsets of a lost history under the present lineage mark."""
    for place, offset in sorted(source.offsets.items()):
        if place.topic == name and place.partition not in partitions and gone.loses(place.partition, offset):
            raise UsageError(f"{describe_loss(*place, offset, gone)}: set the offsets of all its partitions")


def _check_reported(
    name: str, partitions: Sequence[int], source: SourceOffset, state: TopicState, seen: Lineage | None
) -> None:
    """Reject keeping offsets under a mark that hides an unreported election loss."""
    for place, offset in sorted(source.offsets.items()):
        if place.topic != name or place.partition in partitions:
            continue
        for gap in losses_since(state, place.partition, offset, seen):
            raise UsageError(
                f"topic {name!r} partition {place.partition}: {gap.description}; the checkpoint is at offset {offset} "
                "since before that: set the offsets of all its partitions, or run the query first, which reports it"
            )


def _numbers(storage: Storage, directory: str) -> list[int]:
    return sorted(int(name) for name in storage.names(directory) if name.isdigit())


def _parsed(line: str) -> Any:
    if line == _NO_OFFSET:
        return None
    try:
        return json.loads(line)
    except ValueError:
        return None
