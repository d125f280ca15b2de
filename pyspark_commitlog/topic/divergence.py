"""Divergence of a topic's history from a remembered lineage.

A root restored from a copy keeps topic ids and offsets, but has other records after some entry
(docs/explanation/design/restored-roots.md; Kafka: KIP-320).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_commitlog.errors import CorruptionError, LogTruncationError
from pyspark_commitlog.format.lineage import Lineage, Verdict, common, compare
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class Divergence:
    """Difference between a topic's history and a remembered one.

    `seen` and `newest` are the entries' sequences; below `ends`, by partition, both are the same (None if unknown).
    """

    seen: int
    newest: int
    ends: tuple[int, ...] | None

    def end(self, partition: int) -> int | None:
        """End of the common offsets; None if unknown."""
        if self.ends is None:
            return None
        return self.ends[partition] if partition < len(self.ends) else 0

    def loses(self, partition: int, offset: int) -> bool:
        """Whether a position is after the known common offset."""
        return offset > (self.end(partition) or 0)

    @property
    def reason(self) -> str:
        """Description of the divergence."""
        return (
            f"the topic was restored from an older copy: it was seen with journal entry {self.seen}, and the journal "
            f"that ends with entry {self.newest} is another one"
        )


def find_divergence(topic: TopicLog, seen: Lineage | None, state: TopicState) -> Divergence | None:
    """Return how a topic's history diverges from `seen`, or None."""
    if seen is None or compare(seen, state.lineage) is not Verdict.PARTED:
        return None
    return Divergence(seen.sequence, state.lineage.sequence, _common_ends(topic, seen, state))


def _common_ends(topic: TopicLog, seen: Lineage, state: TopicState) -> tuple[int, ...] | None:
    last = common(seen, state.lineage)
    if last == state.lineage.sequence:
        return state.log_end
    if last < state.created:
        return None
    try:
        entry = topic.journal.read(last).entry
    except (FileNotFoundError, CorruptionError):
        return None
    if entry.lineage.at.get(last) != seen.at[last]:  # put late, after it was collected (anchor rule)
        return None
    return topic.state_of(entry).log_end


def check_parted(topic: TopicLog, seen: Lineage | None, state: TopicState, offsets: Sequence[tuple[int, int]]) -> None:
    """Refuse (partition, offset) positions of a history that is gone.

    `seen` is the lineage they were reached under, if known.
    """
    other = find_divergence(topic, seen, state)
    if other is None:
        return
    for partition, offset in offsets:
        if other.loses(partition, offset):
            raise truncated(topic.name, partition, offset, other)


def truncated(topic: str, partition: int, offset: int, other: Divergence) -> LogTruncationError:
    """Return the error for a position of a lost history (pure)."""
    return LogTruncationError(
        f"{describe_loss(topic, partition, offset, other)}. Start from an offset of the log that is there"
    )


def describe_loss(topic: str, partition: int, offset: int, other: Divergence) -> str:
    """Describe the loss of a position (pure)."""
    end = other.end(partition)
    kept = "which of its records are the same, nobody can tell" if end is None else f"the same up to offset {end}"
    return f"topic {topic!r} partition {partition}: offset {offset} means nothing any more: {other.reason} ({kept})"
