"""The rules for what is compacted, and for what is deleted, notice each broken promise, and are silent on a right history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.nemesis.cleaned import compacted_faults, retained_faults
from tests.nemesis.history import (
    Acked,
    Deleted,
    Event,
    Overtaken,
    Polled,
    Read,
    Recorder,
    Sent,
    Shown,
    histories_of,
    path_of,
)

# --- compacted: key x is written three times, y is deleted, of z the first record is void -----------------

LOG = ("x=k-1", "y=k-2", "x=k-3", "y=!k-4", "x=k-5", "z=k-6")
SENT: list[Event] = [Sent("k", text) for text in LOG]
ACKED: list[Event] = [Acked("k", text, "all", 0, at) for at, text in enumerate(LOG)]


def at_root(root: str, *offsets: int, start: int = 0, end: int = 6) -> Read:
    return Read(root, 0, start, end, tuple((at, LOG[at]) for at in offsets))


#: One root has compacted all but the last, the other one less, and has the deletion still.
COMPACT = {"a": [at_root("a", 4, 5)], "b": [at_root("b", 2, 3, 4, 5)]}


def of_compacted(*events: Event, final: dict[str, list[Read]] | None = None, acked: Sequence[Event] = ACKED) -> str:
    found = compacted_faults([[*SENT, *acked], list(events)], COMPACT if final is None else final)
    return "\n".join(found)


def test_a_right_history_of_a_compacted_topic_has_no_fault() -> None:
    reads = [at_root("a", 0, 1, 2, end=3), at_root("a", 2, 3, 4, end=5), at_root("b", 4, 5, start=1)]
    assert of_compacted(*reads, Shown("a", 3, (3,)), Shown("a", 4, (6,))) == ""


def test_the_newest_record_of_a_key_is_gone() -> None:
    assert "x=k-5, the newest of its key, at (0, 4), is not there at a" in of_compacted(
        final={**COMPACT, "a": [at_root("a", 5)]}
    )
    assert "is not there at b, where 4 to 5 was read" in of_compacted(at_root("b", start=4, end=5)), "at no time"


def test_a_newer_attempt_counts_where_it_is_there() -> None:
    unknown = [event for event in ACKED if event != Acked("k", "x=k-5", "all", 0, 4)]
    assert of_compacted(acked=unknown) == "", "it landed"
    lost = {"a": [at_root("a", 2, 5)], "b": [at_root("b", 2, 3, 5)]}
    assert of_compacted(acked=unknown, final=lost) == "", "it did not"
    neither = {**lost, "a": [at_root("a", 5)]}
    assert "x=k-3, the newest of its key" in of_compacted(acked=unknown, final=neither)


def test_what_may_be_deleted_may_be_gone() -> None:
    unknown = [event for event in ACKED if event != Acked("k", "y=!k-4", "all", 0, 3)]
    gone = {"a": [at_root("a", 4, 5)], "b": [at_root("b", 4, 5)]}
    assert of_compacted(acked=unknown, final=gone) == "", "the deletion that was sent may have landed"
    earlier = [Sent("k", "x=!k-0")]
    assert "x=k-5, the newest" in of_compacted(*earlier, final={**COMPACT, "a": [at_root("a", 5)]}), (
        "not an earlier one"
    )


def test_a_deleted_key_comes_back() -> None:
    back = {"a": [at_root("a", 1, 4, 5)], "b": [at_root("b", 1, 4, 5)]}
    assert "y=k-2 at (0, 1) is the newest of its key, and was superseded by y=!k-4 at (0, 3)" in of_compacted(
        final=back
    )


def test_an_older_value_comes_back() -> None:
    back = {"a": [at_root("a", 2, 5)], "b": [at_root("b", 2, 5)]}
    assert "x=k-3 at (0, 2) is the newest of its key" in of_compacted(final=back)


def test_an_offset_of_a_compacted_topic_changes_its_record() -> None:
    other = Read("b", 0, 4, 5, ((4, "z=k-6"),))
    assert "offset 4: x=k-5 for k, then z=k-6 at b" in of_compacted(other)
    unacked = [at_root("a", 5, start=5), Read("b", 0, 5, 6, ((5, "x=k-5"),))]
    assert "offset 5: z=k-6 for a, then x=k-5 at b" in of_compacted(*unacked, acked=ACKED[:-1])


def test_a_record_of_a_compacted_topic_is_twice() -> None:
    assert "x=k-1 is twice" in of_compacted(Read("a", 0, 0, 9, ((0, "x=k-1"), (8, "x=k-1"))))


def test_offsets_that_do_not_rise() -> None:
    assert "offsets do not rise at a" in of_compacted(at_root("a", 5, 4))
    assert "offsets do not rise at a" in of_compacted(at_root("a", 4, 4, start=4, end=5))


def test_what_nobody_sent() -> None:
    assert "nobody sent x=k-9" in of_compacted(Read("a", 0, 6, 7, ((6, "x=k-9"),)))


def test_roots_of_a_compacted_topic_that_differ() -> None:
    unknown = ACKED[:-1]
    assert "z is None at b, ((0, 5), 'z=k-6') at a" in of_compacted(
        final={**COMPACT, "b": [at_root("b", 2, 3, 4)]}, acked=unknown
    )
    assert "b ends at {0: 7}, a at {0: 6}" in of_compacted(final={**COMPACT, "b": [at_root("b", 2, 3, 4, 5, end=7)]})


def test_nothing_was_compacted() -> None:
    assert "nothing was compacted at b: 6 records are left of 6" in of_compacted(
        final={**COMPACT, "b": [at_root("b", *range(6))]}
    )


def test_the_order_of_a_writer_of_keys() -> None:
    assert "out of order" in of_compacted(acked=[*ACKED[:4], Acked("k", "x=k-5", "all", 0, 5), Acked("k", "z=k-6", "all", 0, 4)])  # fmt: skip


# --- whose oldest records are deleted ---------------------------------------------------------------------

ROWS = tuple((at, f"p-{at}") for at in range(10))


def kept(root: str, start: int = 4, end: int = 10, lacks: int | None = None) -> Read:
    return Read(root, 0, start, end, tuple(row for row in ROWS[start:end] if row[0] != lacks))


KEPT = {root: [kept(root)] for root in "ab"}
ALL: list[Event] = [Acked("p", value, "all", 0, at) for at, value in ROWS]
RIGHT: list[Event] = [
    *ALL, Shown("a", 3, (5,), 0, (0,)), kept("a", 0, 5), Shown("a", 5, (8,), 0, (2,)), kept("a", 5, 8), Deleted(0, 3),
    Overtaken("a", 0, 1), Polled(0, 0, ROWS[:2], 0), Polled(0, 2, ROWS[4:6], 4), Polled(0, 6, ROWS[6:7], 0),
]  # fmt: skip


def of_retained(*events: Event, final: dict[str, list[Read]] | None = None, least: int = 0) -> str:
    return "\n".join(retained_faults([RIGHT, list(events)], KEPT if final is None else final, least))


def test_a_right_history_of_a_topic_with_retention_has_no_fault() -> None:
    assert of_retained(least=6) == ""


def test_a_record_above_the_log_start_offset_is_lost() -> None:
    lacks = {root: [kept(root, lacks=6)] for root in "ab"}
    assert "lost at a: Acked(writer='p', value='p-6'" in of_retained(final=lacks)
    assert "offset 6: p-6 at a, then a gap" in of_retained(final=lacks), "and somebody had read it"


def test_the_log_start_offset_goes_back() -> None:
    back = [Shown("a", 3, (5,), 0, (2,)), Shown("a", 4, (5,), 0, (1,))]
    assert "a log start offset went back" in of_retained(*back)
    assert of_retained(back[0], replace(back[1], number=2, life=1)) == "", "a root that came back with old contents may"
    assert of_retained(back[0], replace(back[1], root="b")) == "", "and another root"


def test_what_is_deleted_is_read() -> None:
    shown = Shown("b", 5, (8,), 0, (2,))
    assert "offsets below the log start offset 2 were read" in of_retained(shown, kept("b", 1, 5))
    assert "offsets below the log start offset 2 were read" in of_retained(shown, Read("b", 0, 0, 1, ())), "a gap, too"
    assert of_retained(shown, kept("b", 2, 5)) == ""


def test_a_consumer_passes_over_records_that_are_there() -> None:
    assert "was not handed out [4] of partition 0" in of_retained(Polled(0, 2, ROWS[5:7], 4))
    assert "was not handed out [7] of partition 0" in of_retained(Polled(0, 6, (ROWS[6], ROWS[8]), 4))
    assert "a consumer at 6 was handed out [5]" in of_retained(Polled(0, 6, ROWS[5:6], 4))
    back = Shown("b", 1, (1,), 1, (0,))
    assert of_retained(back, Polled(0, 6, ROWS[4:6], 0)) == "", "it may go back where a root was set back"
    assert "was not handed out [5]" in of_retained(back, Polled(0, 6, (ROWS[4], ROWS[6]), 0)), "but skips nothing then"
    assert "a consumer at 4 was handed out [5, 4]" in of_retained(Polled(0, 4, (ROWS[5], ROWS[4]), 4))


def test_a_consumer_is_handed_out_another_record() -> None:
    assert "offset 5: p-5 at a, then p-4 at a consumer" in of_retained(Polled(0, 5, ((5, "p-4"),), 4))


def test_what_was_deleted_comes_back() -> None:
    assert "Deleted(partition=0, offset=5), and the log start offset at a is 4" in of_retained(Deleted(0, 5))


def test_somebody_is_told_wrongly_that_records_are_deleted() -> None:
    assert "offset=4), and the log start offset at a is 4" in of_retained(Overtaken("a", 0, 4))


def test_too_many_are_deleted() -> None:
    assert "fewer than 7 offsets are left: Shown(root='a', number=5" in of_retained(least=7)
    assert "ends=(5,)" not in of_retained(least=7), "where nothing was deleted there may be few"


def test_nothing_was_deleted() -> None:
    whole = {root: [kept(root, 0)] for root in "ab"}
    assert "nothing of partition 0 was deleted at a" in "\n".join(retained_faults([ALL], whole))


def test_roots_with_other_log_start_offsets() -> None:
    assert "b ends at {0: (5, 10)}, a at {0: (4, 10)}" in of_retained(final={**KEPT, "b": [kept("b", 5)]})


# --- files -------------------------------------------------------------------------------------------------


def test_what_is_written_down_of_a_topic_is_read(tmp_path: Path) -> None:
    Recorder(path_of(tmp_path, "r", "p")).add(*RIGHT, Sent("k", "x=k-1"))
    Recorder(path_of(tmp_path, "k", "p")).add(Sent("k", "x=k-2"))
    assert histories_of(tmp_path, "r") == [[*RIGHT, Sent("k", "x=k-1")]]
    assert histories_of(tmp_path, "k") == [[Sent("k", "x=k-2")]]
