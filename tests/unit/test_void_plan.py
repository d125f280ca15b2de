"""Which fragments of a partition an operator's `void` gives up, decided without any storage."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.topic.damage.void import choose
from pyspark_commitlog.topic.read.damage import Fragment
from pyspark_commitlog.topic.segments.frames import Located
from pyspark_commitlog.topic.state.topic_state import Void

_DATA = frame.encode(
    untyped.encode(pa.RecordBatch.from_pylist([], untyped.SPARSE_SCHEMA), "none"),
    rows=10,
    times=frame.Times(0, 0),
    identity=frame.Identity("id", 0, "none", frame.SPARSE, base_offset=0),
    base_offset=0,
)
_FRAME = frame.parse(pa.py_buffer(_DATA), 0)
assert _FRAME is not None
SOUND = Located(_FRAME, 0, 0)
#: A frame, a loss, a frame, a loss.
FRAGMENTS = [
    Fragment(0, 10, SOUND),
    Fragment(10, 20, None, "torn"),
    Fragment(20, 30, SOUND),
    Fragment(30, 40, None, "gone"),
]


def chosen(
    wanted: tuple[int, int] | None = None,
    *voids: tuple[int, int],
    force: bool = False,
    fragments: list[Fragment] = FRAGMENTS,
) -> list[tuple[int, int]]:
    given = [Void(0, start, end) for start, end in voids]
    return [
        (fragment.start, fragment.end) for fragment in choose(fragments, wanted, given, force=force, where="topic 't'")
    ]


def test_without_a_range_all_that_is_lost_goes() -> None:
    assert chosen() == [(10, 20), (30, 40)]
    assert chosen(fragments=[]) == []


def test_only_what_lies_in_the_range_goes() -> None:
    """Both of its ends may lie inside frames that stay."""
    assert chosen((10, 20)) == [(10, 20)]
    assert chosen((5, 25)) == [(10, 20)]
    assert chosen((20, 40)) == [(30, 40)]


def test_what_is_voided_already_stays_as_it_is() -> None:
    """A second call finds nothing to do, and that is no error."""
    assert chosen(None, (10, 20)) == [(30, 40)]
    assert chosen((10, 20), (10, 20)) == []
    assert chosen((10, 20), (10, 15)) == [(10, 20)]


def test_force_gives_up_sound_frames_in_the_range() -> None:
    assert chosen((10, 30), force=True) == [(10, 20), (20, 30)]
    assert chosen((0, 10), (0, 10), force=True) == []


@pytest.mark.parametrize("wanted", [(10, 15), (15, 20)])
def test_a_range_that_ends_inside_a_loss_is_refused(wanted: tuple[int, int]) -> None:
    """Nobody can tell one of its offsets from another."""
    with pytest.raises(UsageError, match=r"offsets 10 to 20 \(exclusive\) can only be given up whole"):
        chosen(wanted)


def test_a_forced_range_that_ends_inside_a_frame_is_refused() -> None:
    with pytest.raises(UsageError, match=r"offsets 20 to 30 \(exclusive\) are one frame"):
        chosen((10, 25), force=True)


def test_a_range_of_sound_frames_is_refused_without_force() -> None:
    """Also where a part of it is voided."""
    with pytest.raises(UsageError, match="all offsets from 0 to 9 can be read"):
        chosen((0, 10))
    with pytest.raises(UsageError, match="all offsets from 10 to 29 can be read"):
        chosen((10, 30), (10, 20))


def test_a_range_of_no_pieces_gives_up_nothing() -> None:
    assert chosen((0, 10), fragments=[]) == []
