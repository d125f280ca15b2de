"""What an operation on the settle state changes, where there is no lock (rules O2, O4, O6). Values; no I/O.

Paths are below the topic id's directory: ``objects/…``, ``manifests/…``, ``side/…``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark_commitlog.format.paths import parse_manifest, parse_object, parse_side
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.settle_state import SettleState
from pyspark_commitlog.log.state import Mark

#: Marks of earlier settle entries that a state keeps, and how many of them a retention time holds.
MAX_MARKS = 16
MARKS_A_RETENTION = 8
#: Paths that one entry drops at most: what lets go of more goes on in another.
MAX_DROPS = 500


@dataclass(frozen=True, slots=True)
class Change:
    """What to publish on top of a settle entry.

    Args:
        after: the state; ``drops`` and ``marks`` are added to it.
        made: paths of the objects and manifests that were made for it.
        dropped: paths of objects that partitions had of their own, which ``after`` does not name any more. What the
            tail and the rows name no more is found without that.
    """

    after: SettleState
    made: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A settle entry that is linked by ``prev`` from the newest down; ``at_ms`` is its storage time.

    ``through`` is (sequence, write id) of the entry of the topic's journal that it settled last.
    """

    sequence: int
    write_id: str
    prev: str
    at_ms: int
    through: tuple[int, str]


@dataclass(slots=True)
class Collecting:
    """What a handle remembers of collecting one incarnation of a topic, to ask storage for less: 0 is unknown.

    Args:
        topic_id: whose.
        links: the settle entries that were linked, ascending.
        proof: the settle entry of which all that follows was done.
        settles_from, entries_from: lowest numbers of both journals that may still be there.
        anchors: write ids of entries by number, that a run which was cut short has met on its way down.
        dropped: a settle entry, and how many of the files that it dropped were deleted; -1: all.
        last: the entry up to which such a run goes on: commits may bring more meanwhile than it deletes.
    """

    topic_id: str = ""
    links: tuple[Link, ...] = ()
    proof: int = 0
    settles_from: int = 0
    entries_from: int = 0
    anchors: dict[int, str] = field(default_factory=dict)
    dropped: tuple[int, int] = (0, 0)
    last: int = 0


#: Plans a change on top of an entry and its state; None where its preconditions do not hold.
Operation = Callable[[Stored, SettleState], Change | None]


def begun_at(path: str) -> int:
    """Return the settle number in the name of an object, manifest or table (rule O1; pure)."""
    directory, _, name = path.partition("/")
    if directory == "manifests":
        parsed = parse_manifest(name)
        number = None if parsed is None else parsed[1]
    else:
        number = parse_object(name) if directory == "objects" else parse_side(name)
    assert number is not None, path
    return number


def named_by(state: SettleState) -> set[str]:
    """Return the objects of the tail and the manifests that a state names, as paths (pure)."""
    manifests = {f"manifests/{row.manifest.name}" for row in state.partitions if row.manifest is not None}
    return manifests | {f"objects/{shared.name}" for shared in state.tail}


def published_after(before: SettleState, change: Change, sequence: int, at_ms: int, mark_every_ms: int) -> SettleState:
    """Return the state to publish on top of entry ``sequence``, which carries ``before`` (pure).

    Args:
        before, change: what it is made of.
        sequence, at_ms: of the entry that carries ``before``, or of the last one whose storage time is known (else -1).
        mark_every_ms: how much time lies between two marks, at least.
    """
    gone = sorted(named_by(before) - named_by(change.after))
    marks = before.marks
    if at_ms >= 0 and not (marks and 0 <= at_ms - marks[-1].at_ms < mark_every_ms):
        marks = (*marks, Mark(sequence, at_ms))[-MAX_MARKS:]
    return replace(change.after, drops=(*gone, *change.dropped), marks=marks)
