"""Lock-free changes of the settle state (rules O2, O4, O6). No I/O.

Paths are relative to the topic id's directory: `objects/…`, `manifests/…`, `side/…`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark_commitlog.format.paths import parse_manifest, parse_object, parse_side
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.state.topic_state import Mark

#: Marks of earlier settle entries in a state, and marks per retention time.
MAX_MARKS = 16
MARKS_A_RETENTION = 8
#: Maximum of paths that one entry drops; the rest goes into later entries.
MAX_DROPS = 500


@dataclass(frozen=True, slots=True)
class Change:
    """Change to publish on top of a settle entry.

    Attributes:
        after: the new state, without `drops` and `marks`.
        made: paths of new files.
        dropped: paths of own objects no longer named; those of tail and rows are derived.
    """

    after: SettleState
    made: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """Settle entry in the `prev` chain; `at_ms` is its storage time.

    `through` is (sequence, write id) of the last topic entry it settled.
    """

    sequence: int
    write_id: str
    prev: str
    at_ms: int
    through: tuple[int, str]


@dataclass(slots=True)
class Collecting:
    """Remembered progress of collecting an incarnation; 0 is unknown.

    Attributes:
        links: chained settle entries, ascending.
        proof: settle entry that the rest is based on.
        settles_from, entries_from: lowest numbers that may remain.
        anchors: write ids by entry number, met by an interrupted run.
        dropped: a settle entry, and how many of its drops were deleted; -1: all.
        last: entry at which an interrupted run stops, as commits may outpace it.
    """

    topic_id: str = ""
    links: tuple[Link, ...] = ()
    proof: int = 0
    settles_from: int = 0
    entries_from: int = 0
    anchors: dict[int, str] = field(default_factory=dict)
    dropped: tuple[int, int] = (0, 0)
    last: int = 0


#: Plans a change on top of an entry and its state; None if its preconditions do not hold.
Operation = Callable[[Stored, SettleState], Change | None]


def begun_at(path: str) -> int:
    """Settle number in a file's name (rule O1; pure)."""
    directory, _, name = path.partition("/")
    if directory == "manifests":
        parsed = parse_manifest(name)
        number = None if parsed is None else parsed[1]
    else:
        number = parse_object(name) if directory == "objects" else parse_side(name)
    assert number is not None, path
    return number


def named_by(state: SettleState) -> set[str]:
    """Paths of a state's shared objects and manifests (pure)."""
    manifests = {f"manifests/{row.manifest.name}" for row in state.partitions if row.manifest is not None}
    return manifests | {f"objects/{shared.name}" for shared in state.tail}


def published_after(before: SettleState, change: Change, sequence: int, at_ms: int, mark_every_ms: int) -> SettleState:
    """State to publish on top of `before` (pure).

    `sequence` and `at_ms`: of the base entry, or the last with a known storage time (else -1). Marks are
    `mark_every_ms` apart.
    """
    gone = sorted(named_by(before) - named_by(change.after))
    marks = before.marks
    if at_ms >= 0 and not (marks and 0 <= at_ms - marks[-1].at_ms < mark_every_ms):
        marks = (*marks, Mark(sequence, at_ms))[-MAX_MARKS:]
    return replace(change.after, drops=(*gone, *change.dropped), marks=marks)
