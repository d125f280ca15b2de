"""Commit messages that another release, or somebody else, wrote."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.spark.write.messages import StagedMessage, check_messages
from pyspark_commitlog.topic.state.topic_state import ChunkRef
from pyspark_commitlog.topic.write.staging import Staged, StagedExtent

_CHUNK = ChunkRef("00000000000000000007-6f1e9a3c-0000-4000-8000-000000000000.chunk", 100, 5)
_INLINE = Staged("t", "id", (StagedExtent(0, 0, 3, 1),), inline=b"abc", checksum=2**64 - 1)
_CHUNKED = Staged("t", "id", (StagedExtent(0, 0, 60, 2), StagedExtent(1, 60, 40, 1)), _CHUNK)


def test_what_tasks_send_is_taken() -> None:
    messages = [
        None,
        StagedMessage((_INLINE,), None),
        StagedMessage((_CHUNKED, _INLINE), "query"),
        StagedMessage((), None),
    ]
    check_messages(pickle.loads(pickle.dumps(messages)), "t")
    check_messages(messages, None)


def _without(staged: Staged, name: str) -> Staged:
    """Return what a release wrote that did not know a field."""
    object.__delattr__(staged, name)
    return staged


@pytest.mark.parametrize(
    ("staged", "told"),
    [
        (replace(_INLINE, topic="u"), "it is of topic 'u', expected 't'"),
        (replace(_INLINE, topic="../t"), r"matching regex .* `\$.staged\[0\].topic`"),
        (replace(_INLINE, topic=None), "Expected `str`, got `null`"),
        (replace(_INLINE, topic_id="../x"), "matching regex"),
        (replace(_INLINE, topic_id=""), "length >= 1"),
        (
            replace(_INLINE, extents=(StagedExtent(-1, 0, 3, 1),)),
            r"`int` >= 0 - at `\$.staged\[0\].extents\[0\].partition`",
        ),
        (replace(_INLINE, extents=(StagedExtent(0, 0, 3, 0),)), "`int` >= 1"),
        (replace(_INLINE, extents=(StagedExtent(0, "0", 3, 1),)), "Expected `int`, got `str`"),
        (replace(_INLINE, extents=(StagedExtent(0, 1, 3, 1),)), "ends beyond the 3 bytes"),
        (replace(_INLINE, extents=((0, 0, 3, 1),)), "Expected `object`"),
        (replace(_INLINE, inline="abc"), "Expected `bytes`"),
        (replace(_INLINE, checksum=-1), "`int` >= 0"),
        (replace(_CHUNKED, chunk=replace(_CHUNK, name="../../x.chunk")), "matching regex"),
        (replace(_CHUNKED, chunk=replace(_CHUNK, length=99)), "ends beyond the 99 bytes"),
        (_without(replace(_INLINE), "checksum"), "missing required field `checksum`"),
    ],
)
def test_what_no_task_of_this_release_sends_is_refused(staged: Any, told: str) -> None:
    good = StagedMessage((_INLINE,), "query")
    with pytest.raises(UsageError, match=told) as raised:
        check_messages([good, StagedMessage((staged,), "query")], "t")
    assert "task 1 is none that this release writes" in str(raised.value)
    assert "Nothing was committed" in str(raised.value)


@pytest.mark.parametrize("message", [{"staged": 5}, "text", 7, StagedMessage((_INLINE,), 7)])  # type: ignore[arg-type]
def test_what_is_no_message_is_refused(message: Any) -> None:
    with pytest.raises(UsageError, match="task 0 is none that this release writes"):
        check_messages([message], "t")
