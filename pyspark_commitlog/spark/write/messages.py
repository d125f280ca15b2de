"""Validation of commit messages, which another release may have pickled. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.paths import CHUNK_NAME
from pyspark_commitlog.format.shape import Crc, Id, Position, TopicName, Whole
from pyspark_commitlog.topic.state.shapes import Partition
from pyspark_commitlog.topic.write.staging import Staged


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """Staged records of one task, per topic; batch writes have no `query_id`."""

    staged: tuple[Staged, ...]
    query_id: str | None


class _StagedExtent(Struct):
    partition: Partition
    position: Whole
    length: Whole
    rows: Annotated[int, Meta(ge=1, le=2**63 - 1)]


class _Chunk(Struct):
    name: Annotated[str, Meta(pattern=CHUNK_NAME)]
    length: Whole
    crc: Crc


class _Staged(Struct):
    topic: TopicName
    topic_id: Annotated[Id, Meta(min_length=1)]
    extents: tuple[_StagedExtent, ...]
    chunk: _Chunk | None
    inline: bytes
    keyless: bool
    checksum: Annotated[int, Meta(ge=0)] | None  # 64 bits
    old: Whole
    schema_at: Position | None


class _Message(Struct):
    staged: tuple[_Staged, ...]
    query_id: str | None


def check_messages(messages: Sequence[StagedMessage | None], topic: str | None) -> None:
    """Check the tasks' messages before use.

    Args:
        messages: one per task; None for a task that sent nothing.
        topic: the only topic written to; None if a column names the topics.
    """
    for number, message in enumerate(messages):
        if message is None:
            continue
        try:
            checked = convert(message, _Message, from_attributes=True, builtin_types=(bytes,))
        except ValidationError as error:
            raise _refused(number, str(error)) from error
        for staged in checked.staged:
            if topic is not None and staged.topic != topic:
                raise _refused(number, f"it is of topic {staged.topic!r}, expected {topic!r}")
            length = len(staged.inline) if staged.chunk is None else staged.chunk.length
            if any(extent.position + extent.length > length for extent in staged.extents):
                raise _refused(number, f"an extent of {staged.topic!r} ends beyond the {length} bytes there are")


def _refused(number: int, why: str) -> UsageError:
    return UsageError(
        f"the commit message of task {number} is none that this release writes: {why}. Nothing was committed: driver "
        "and workers need the same release of pyspark-commitlog"
    )
