"""Descriptions for people, as lines and tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_commitlog.model import Backlog, ReplicationDescription, TopicDescription

_HOUR_MS = 3_600_000
#: Partitions whose offsets a replica's row shows; JSON has all.
_SHOWN = 8
_REPLICA_HEAD = "REPLICA ROOT-ID ROLE HIGH-WATERMARKS LOG-END-OFFSETS ENTRIES-BEHIND BYTES-BEHIND SECONDS-BEHIND"
_HEAD = "PARTITION LOG-START-OFFSET HIGH-WATERMARK LOG-END-OFFSET SEGMENTS BYTES UNSETTLED"


def visible(text: str) -> str:
    r"""Return text with control characters escaped (`\x1b`), for terminals."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\t" else each.encode("unicode_escape").decode() for each in text
    )


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield lines of aligned columns; `-` for None."""
    texts = [head, *([("-" if cell is None else visible(str(cell))) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text in texts:
        yield "  ".join(cell.ljust(width) for cell, width in zip(text, widths, strict=True)).rstrip()


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that resemble a name, nearest first."""
    from difflib import get_close_matches

    return get_close_matches(name, [other for other in known if other != name], n=3, cutoff=0.7)


def did_you_mean(similar: str | None) -> str:
    """Return a hint at a similar name, or an empty string."""
    return f" (did you mean {similar!r}?)" if similar else ""


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 record`, `2 records`."""
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what[:-1]}ies" if what.endswith("y") else f"{number:,} {what}s"


def backlog_line(waiting: Backlog) -> str:
    """Return how much of a topic waits to be settled."""
    if not waiting.entries:
        return "all is settled"
    return (
        f"{counted(waiting.entries, 'journal entry')} ({counted(waiting.size_bytes, 'byte')}) "
        f"{'waits' if waiting.entries == 1 else 'wait'} to be settled, the oldest for {waiting.age_ms // 1000:,} s"
    )


def maintained_line(age_ms: int) -> str:
    """Return when a topic was last maintained; advise after an hour."""
    if age_ms < _HOUR_MS:
        return f"maintained {age_ms // 1000:,} s ago"
    return f"not maintained for {age_ms // 60_000:,} minutes: run `commitlog maintain` as a service, or from cron"


def topic_lines(topic: TopicDescription, *, all_configs: bool = False) -> Iterator[str]:
    """Yield lines like `kafka-topics --describe`: a head, and a row per partition.

    `all_configs`: also configs at their default (`kafka-configs --describe --all`).
    """
    shown = topic.config if all_configs else {name: topic.config[name] for name in topic.overrides}
    config = ",".join(f"{name}={value}" for name, value in sorted(shown.items()))
    copies = f"ReplicationFactor: {len(topic.replication.replicas)}  " if topic.replication else ""
    yield (
        f"Topic: {topic.name}  TopicId: {topic.topic_id}  PartitionCount: {len(topic.partitions)}  {copies}"
        f"Configs: {config}"
    )
    rows = [
        (
            p.partition,
            p.log_start_offset,
            p.high_watermark,
            p.log_end_offset,
            p.segments,
            p.size_bytes + p.unsettled_bytes,
            p.unsettled,
        )
        for p in topic.partitions
    ]
    yield from table(_HEAD.split(), rows)
    if topic.replication is not None:
        yield from replication_lines(topic.name, topic.replication)
    yield f"{topic.name}: {backlog_line(topic.unsettled)}"
    if topic.since_maintained_ms is not None:
        yield f"{topic.name}: {maintained_line(topic.since_maintained_ms)}"
    if topic.unsafe_single_writer:
        yield f"{topic.name}: UNSAFE: its root was made with unsafe.single.writer=true: one process alone may write"
    for partition, why in sorted(topic.damaged.items()):
        yield f"{topic.name}: partition {partition} takes no commits: it can't be settled: {why}"


def replication_lines(name: str, of: ReplicationDescription) -> Iterator[str]:
    """Yield the leader, a row per replica, and silent roots.

    All partitions of a topic share leader and ISR.
    """
    yield (
        f"{name}: Leader: {of.leader_url} ({of.leader})  LeaderEpoch: {of.leader_epoch}  "
        f"Replicas: {_urls(of, [replica.root_id for replica in of.replicas])}  Isr: {_urls(of, of.isr)}"
    )
    rows = [
        (
            replica.url,
            replica.root_id,
            replica.role,
            _first(replica.high_watermarks),
            _first(replica.log_end_offsets),
            replica.entries_behind,
            replica.bytes_behind,
            None if replica.ms_behind is None else f"{replica.ms_behind / 1000:.1f}",
        )
        for replica in of.replicas
    ]
    yield from table(_REPLICA_HEAD.split(), rows)
    if of.elected_ms >= 0:
        at = datetime.fromtimestamp(of.elected_ms // 1000, UTC).isoformat()
        yield f"{name}: last election at {at}: {of.elected_why}"
    for replica in of.replicas:
        if replica.fault is not None:
            yield f"{name}: no answer from {replica.url}: {replica.fault}"
    for root in of.metadata:
        answer = "answers" if root.fault is None else f"does not answer: {root.fault}"
        yield f"{name}: metadata: {root.url} ({root.root_id}) {answer}"


def _urls(of: ReplicationDescription, roots: Sequence[str]) -> str:
    return ",".join(replica.url for replica in of.replicas if replica.root_id in roots)


def _first(offsets: Sequence[int] | None) -> str | None:
    if offsets is None:
        return None
    return ",".join(map(str, offsets[:_SHOWN])) + ",…" * (len(offsets) > _SHOWN)
