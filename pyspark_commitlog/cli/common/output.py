"""Output of the commands, line by line (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.text import counted, table
from pyspark_commitlog.topic_description import backlog_line

if TYPE_CHECKING:
    from pyspark_commitlog.api.results import Maintained, TopicReport, VoidedRange
    from pyspark_commitlog.groups.descriptions import GroupDescription, MaintainedGroup, OffsetReset
    from pyspark_commitlog.model import Recovered, Repaired, Replicated
    from pyspark_commitlog.topic_description import RootDescription


def maintained_lines(done: Maintained) -> Iterator[str]:
    """Yield a line per thing done, if any."""
    name = done.topic
    if done.busy is not None:
        held = f" ({done.busy_ms // 1000:,} s ago)" if done.busy.since_ms >= 0 else ""
        yield f"{name}: not all was done: the lock of the settlers is held by {done.busy}{held}"
    if done.settled_records:
        yield f"{name}: settled {counted(done.settled_records, 'record')}"
    for partition, (before, after) in sorted(done.retained.log_start.items()):
        yield f"{name}: partition {partition}: retention deleted offsets {before} to {after - 1}"
    if done.retained.segments:
        gone_segments = counted(done.retained.segments, "segment")
        yield f"{name}: let go of {gone_segments}; the files follow after file.delete.delay.ms"
    for one in done.compacted:
        (many, few), (large, small) = one.segments, one.size_bytes
        compacted = f"compacted {counted(many, 'segment')} ({large:,} bytes) to {few} ({small:,} bytes)"
        yield f"{name}: partition {one.partition}: {compacted}"
    for reason, partitions in done.not_compacted.items():
        yield f"{name}: nothing to compact in {counted(partitions, 'partition')}: {reason}"
    if done.merged.merges:
        merges = counted(done.merged.merges, "merge")
        yield f"{name}: {merges} of segment objects wrote {done.merged.size_bytes:,} bytes"
    if done.rebuilt_indexes:
        yield f"{name}: rebuilt the indexes of {counted(done.rebuilt_indexes, 'segment')}"
    yield from _removed_lines(done)


def _removed_lines(done: Maintained) -> Iterator[str]:
    name, gone = done.topic, done.collected
    if gone.segments:
        yield f"{name}: removed {counted(gone.segments, 'segment file')}"
    if done.swept_chunks:
        yield f"{name}: swept {counted(done.swept_chunks, 'chunk')} that nobody committed"
    if done.swept_files:
        yield f"{name}: swept {counted(done.swept_files, 'file')} that nobody named"
    kinds = {"chunk": gone.chunks, "journal entry": gone.entries, "settle entry": gone.settle_entries}
    kinds["table"] = gone.files
    removed = ", ".join(counted(count, kind) for kind, count in kinds.items() if count)
    if removed:
        yield f"{name}: removed {removed} that nothing needs any more"
    if done.removed_lives:
        yield f"{name}: removed {counted(done.removed_lives, 'earlier incarnation')} of the topic"


def root_lines(roots: Sequence[RootDescription]) -> Iterator[str]:
    """Yield a table of roots that belong together, and a line per silent one."""
    rows = [
        (
            root.url,
            root.root_id,
            "data,metadata" if root.data and root.metadata else "data" if root.data else "metadata",
            "yes" if root.fault is None else "NO",
            len(root.leads),
        )
        for root in roots
    ]
    yield from table(["ROOT", "ROOT-ID", "HOLDS", "ANSWERS", "LEADS"], rows)
    for root in roots:
        if root.fault is not None:
            yield f"no answer from {root.url}: {root.fault}"


def recovered_lines(found: Sequence[Recovered], *, execute: bool) -> Iterator[str]:
    """Yield the findings or results of `replicas recover`."""
    for each in found:
        yield from _recovered_lines_of(each, *(("took", "are") if execute else ("would take", "would be")))
    yield "Lost besides: what only the roots that are given up had learned."
    if not execute:
        yield "Nothing was changed: --execute does it. The roots that are given up must stay switched off."


def _recovered_lines_of(one: Recovered, took: str, are: str) -> Iterator[str]:
    ends = ", ".join(f"{root} has entry {number}" for root, number in one.ends.items())
    if one.fault is not None:
        yield f"{one.topic}: NOT RECOVERED: {one.fault}" + (f" ({ends})" if ends else "")
        return
    yield f"{one.topic}: recovered already: {ends}" if one.done else f"{one.topic}: {took} root {one.root}: {ends}"
    if one.root is not None and not one.in_sync:
        yield f"{one.topic}: root {one.root} was NOT in sync: what was acknowledged by others may be lost"
    for partition, start, end in one.gone:
        yield f"{one.topic}: partition {partition}: offsets {start} to {end - 1} {are} lost"
    for root, why in one.failed.items():
        yield f"{one.topic}: root {root} has not learned it yet: {why}"


def repaired_lines(done: Repaired) -> Iterator[str]:
    """Yield what was fetched of a topic, and what is still damaged."""
    for file in done.files:
        yield f"{done.topic}: fetched {file}"
    for partition, start, end in done.ranges:
        yield f"{done.topic}: partition {partition}: fetched offsets {start} to {end - 1}"
    for fault in done.left:
        yield f"{done.topic}: FAULT {fault}"
    for fault in done.away if done.left else ():
        yield f"{done.topic}: a root that does not answer may have it: {fault}"
    if not (done.files or done.ranges or done.left):
        yield f"{done.topic}: nothing is damaged in {done.root}"


def replicated_lines(done: Replicated) -> Iterator[str]:
    """Yield a line per thing done for a topic's replicas, or failed, if any."""
    name = done.topic
    if done.elected is not None:
        yield f"{name}: root {done.elected} leads now: the former leader does not answer"
    for root in done.joined:
        yield f"{name}: root {root} is in sync again"
    for root in done.shrunk:
        yield f"{name}: root {root} is out of the ISR: it did not answer for replica.lag.time.max.ms"
    for root, why in done.failed.items():
        yield f"{name}: root {root} lacks what was decided: {why}"


def group_maintained_lines(done: MaintainedGroup) -> Iterator[str]:
    """Yield a line per thing done to a group, if any."""
    if done.forgotten_topics:
        yield f"group {done.group}: forgot the offsets of {done.forgotten_topics} topics that were deleted"
    if done.expired_topics:
        yield f"group {done.group}: forgot the offsets of {counted(done.expired_topics, 'topic')} that had expired"
    if done.collected_entries:
        yield f"group {done.group}: removed {done.collected_entries} entries that nothing needs any more"


def void_lines(topic: str, given_up: Sequence[VoidedRange], *, execute: bool) -> Iterator[str]:
    """Yield a line per range given up, or to be."""
    for lost in given_up:
        gave_up = f"{'gave' if execute else 'would give'} up offsets {lost.start} to {lost.end - 1}"
        yield f"{topic}: partition {lost.partition}: {gave_up} ({counted(lost.records, 'record')}): {lost.why}"
    if not given_up:
        yield f"{topic}: nothing to give up"
    elif not execute:
        yield f"{topic}: nothing was changed; --execute gives them up for ever"


def fault_lines(report: TopicReport) -> Iterator[str]:
    """Yield a line per fault, and a summary."""
    for fault in report.faults:
        yield f"{report.topic}: FAULT {fault}"
    for file in report.unnamed:
        yield f"{report.topic}: nothing refers to {file}"
    for file in report.under_way:
        yield (
            f"{report.topic}: no entry names {file} yet, which is no fault: its task is under way, or has died; "
            "`maintain` sweeps it after staged.retention.ms"
        )
    if report.faults and report.replicated:
        yield (
            f"{report.topic}: the faults are in {report.root}: `commitlog replicas repair {report.root} "
            f"{report.topic}` fetches what is damaged from other roots"
        )
    what = counted(len(report.faults), "fault") if report.faults else "no fault"
    yield (
        f"{report.topic}: {what} in {counted(report.segments, 'segment')} ({counted(report.segment_bytes, 'byte')}), "
        f"{counted(report.entries, 'journal entry')} and {counted(report.chunks, 'chunk')}; "
        f"{backlog_line(report.unsettled)}"
    )


def dumped_line(row: Mapping[str, Any]) -> str:
    """Format a row of a file as Kafka's `DumpLogSegments`: `baseOffset: 0 lastOffset: 9`."""
    cells = {name: cell if isinstance(cell, str) else json.dumps(cell) for name, cell in row.items()}
    return "  ".join(f"{name}: {cell}" for name, cell in cells.items())


def described_lines(groups: Sequence[GroupDescription]) -> Iterator[str]:
    """Yield a table of groups' partitions, with `kafka-consumer-groups`' columns.

    The columns of members are empty for unassigned partitions. Lag without a commit counts from the log start offset.
    """
    rows = []
    for group in groups:
        owners = {place: member for member in group.members for place in member.partitions}
        for row in group.partitions:
            owner = owners.get(TopicPartition(row.topic, row.partition))
            owned_by = (owner.consumer_id, owner.host, owner.client_id) if owner else (None, None, None)
            rows.append((group.group, row.topic, row.partition, row.offset, row.log_end_offset, row.lag, *owned_by))
    head = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    yield from table(head.split(), rows)


def member_lines(groups: Sequence[GroupDescription]) -> Iterator[str]:
    """Yield a table of groups' members (`kafka-consumer-groups --members --verbose`)."""
    rows = [
        (
            group.group,
            member.consumer_id,
            member.group_instance_id,
            member.host,
            member.client_id,
            len(member.partitions),
            _assignment(member.partitions),
        )
        for group in groups
        for member in group.members
    ]
    head = "GROUP CONSUMER-ID GROUP-INSTANCE-ID HOST CLIENT-ID #PARTITIONS ASSIGNMENT"
    yield from table(head.split(), rows)


def _assignment(partitions: Sequence[TopicPartition]) -> str | None:
    """Format partitions as Kafka's tool: `flights(0,2), orders(1)`."""
    numbers: dict[str, list[str]] = {}
    for place in partitions:
        numbers.setdefault(place.topic, []).append(str(place.partition))
    return ", ".join(f"{topic}({','.join(texts)})" for topic, texts in numbers.items()) or None


def state_lines(groups: Sequence[GroupDescription]) -> Iterator[str]:
    """Yield a table of groups (`kafka-consumer-groups --state`); there is no coordinator."""
    rows = [(group.group, None, group.protocol, group.state, len(group.members)) for group in groups]
    yield from table(["GROUP", "COORDINATOR", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"], rows)


def moved_lines(group: str, moved: Sequence[OffsetReset], *, execute: bool) -> Iterator[str]:
    """Yield a table of a reset's moves, made or planned."""
    rows = [(group, row.topic, row.partition, row.before, row.after) for row in moved]
    yield from table(["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"], rows)
    if not execute:
        yield f"{group}: nothing was changed; --execute moves it"
