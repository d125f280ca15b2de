"""State of a topic's replicas after an entry, complete in each.

No I/O. Roots are named by id. Protocol: docs/explanation/design/replication.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise
from typing import Annotated, Any

from msgspec import Meta

from pyspark_commitlog.format.entry import REPLICAS, Json
from pyspark_commitlog.format.shape import Id, OrNone, Shape, Whole, check, damage

#: Replicas of a topic, and roots of a metadata set, at most.
MAX_ROOTS = 16
#: Living appends above the high watermark at most: every entry lists them with their roots.
MAX_ABOVE_HW = 4096
#: Rows that these take at most (`on_rows`): less than a third of an entry's line.
MAX_ON_ROWS = 1024
#: Elections above the high watermark that voided appends, at most.
MAX_PENDING = 16
#: Characters of the reason of an election at most.
MAX_WHY = 200


@dataclass(frozen=True, slots=True)
class MetadataSet:
    """One, three or five roots that decide the next entry.

    `generation` counts a topic's sets; the random `id` separates two of one generation.
    """

    generation: int
    id: str
    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """State of a topic's replicas after an entry, in Kafka's words.

    Attributes:
        replicas: in order of assignment, the preferred leader first.
        isr, joining: in that order.
        begins: where a root's journal begins, if not at the topic's first entry.
        hw: the entry up to which all of `isr` have learned.
        on: the roots that had the files of each LIVING append above `hw` when it was decided.
        pending_voids: elections above `hw` that voided appends: (first void number, election's number).
        elected_ms: last election by the storage's clock; -1 for never.
        learned: known progress of `isr`; a root that ends below is a restored copy.
    """

    set: MetadataSet
    replicas: tuple[str, ...]
    isr: tuple[str, ...]
    joining: tuple[str, ...]
    begins: Mapping[str, int]
    leader: str
    leader_epoch: int
    hw: int
    on: Mapping[int, tuple[str, ...]]
    pending_voids: tuple[tuple[int, int], ...]
    elected_ms: int = -1
    why: str = ""
    learned: Mapping[str, int] = field(default_factory=dict)

    def ordered(self, roots: Iterable[str]) -> tuple[str, ...]:
        """Return these roots in the order of `replicas`."""
        wanted = frozenset(roots)
        return tuple(root for root in self.replicas if root in wanted)

    def to_json(self) -> Json:
        """JSON form."""
        return {
            "set": {"generation": self.set.generation, "id": self.set.id, "roots": list(self.set.roots)},
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "joining": list(self.joining),
            "begins": dict(self.begins),
            "leader": self.leader,
            "leaderEpoch": self.leader_epoch,
            "hw": self.hw,
            "on": on_rows(self.on, self.replicas),
            "pendingVoids": [list(pair) for pair in self.pending_voids],
            "electedMs": self.elected_ms,
            "why": self.why,
            "learned": dict(self.learned),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReplicaState:
        """State of a JSON form that was checked."""
        of, replicas = data["set"], tuple(data["replicas"])
        return cls(
            set=MetadataSet(of["generation"], of["id"], tuple(of["roots"])),
            replicas=replicas,
            isr=tuple(data["isr"]),
            joining=tuple(data["joining"]),
            begins=dict(data["begins"]),
            leader=data["leader"],
            leader_epoch=data["leaderEpoch"],
            hw=data["hw"],
            on=_read_on(data["on"], replicas),
            pending_voids=tuple((first, election) for first, election in data["pendingVoids"]),
            elected_ms=data["electedMs"],
            why=data["why"],
            learned=dict(data["learned"]),
        )


def on_rows(on: Mapping[int, tuple[str, ...]], replicas: Sequence[str]) -> list[list[int]]:
    """Return `on` as rows of appends on the same roots.

    A row is a bit mask of roots, the first number, and steps.
    """
    bit = {root: 1 << place for place, root in enumerate(replicas)}
    masks = [(number, sum(bit[root] for root in roots)) for number, roots in sorted(on.items())]
    rows = []
    for mask, group in groupby(masks, key=lambda pair: pair[1]):
        numbers = [number for number, _ in group]
        steps = (after - before for before, after in pairwise(numbers))
        rows.append([mask, numbers[0], *steps])
    return rows


def _read_on(rows: Iterable[Sequence[int]], replicas: Sequence[str]) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for mask, *numbers in rows:
        roots = tuple(root for place, root in enumerate(replicas) if mask >> place & 1)
        found.update(dict.fromkeys(accumulate(numbers), roots))
    return found


# --- Validation ----------------------------------------------------------------------------------------------------

RootId = Annotated[Id, Meta(min_length=1)]
Roots = Annotated[tuple[RootId, ...], Meta(max_length=MAX_ROOTS)]
PerRoot = Annotated[dict[RootId, Whole], Meta(max_length=MAX_ROOTS)]
#: roots as bits, number, steps
OnRow = Annotated[tuple[Whole, ...], Meta(min_length=2, max_length=MAX_ABOVE_HW + 1)]


class SetShape(Shape):
    """Shape of the metadata set."""

    generation: Whole
    id: RootId
    roots: Annotated[tuple[RootId, ...], Meta(min_length=1, max_length=MAX_ROOTS)]


class ReplicasShape(Shape):
    """Shape of the state of replicas."""

    set: SetShape
    replicas: Annotated[tuple[RootId, ...], Meta(min_length=1, max_length=MAX_ROOTS)]
    isr: Annotated[tuple[RootId, ...], Meta(min_length=1, max_length=MAX_ROOTS)]
    joining: Roots
    begins: PerRoot
    leader: RootId
    leader_epoch: Whole
    hw: Whole
    on: Annotated[tuple[OnRow, ...], Meta(max_length=MAX_ON_ROWS)]
    pending_voids: Annotated[tuple[tuple[Whole, Whole], ...], Meta(max_length=MAX_PENDING)]
    elected_ms: OrNone
    why: Annotated[str, Meta(max_length=MAX_WHY)]
    learned: PerRoot


def check_replicated(data: object, body: Json, where: str) -> None:
    """Check the state of replicas, present exactly if features say so."""
    if (REPLICAS in body["readFeatures"]) != (data is not None):
        expected = "what readFeatures names" if data is None else "none, as readFeatures names none"
        raise damage(where, "state.replicas", data, expected)
    if data is not None:
        check_replicas(data, body["sequence"], where, "state.replicas")


def check_replicas(data: object, number: int, where: str, field: str = "state.replication") -> None:
    """Check the state of replicas in entry `number`."""
    found = check(data, ReplicasShape, where)
    _check_roots(found, where, field)
    _check_numbers(found, number, where, field)
    _check_on(found, number, where, f"{field}.on")


def _check_roots(found: ReplicasShape, where: str, field: str) -> None:
    replicas = found.replicas
    for name, roots in (("replicas", replicas), ("set.roots", found.set.roots)):
        if len({*roots}) != len(roots):
            raise damage(where, f"{field}.{name}", list(roots), "each root once")
    for name, roots in (("isr", found.isr), ("joining", found.joining)):
        if roots != tuple(root for root in replicas if root in roots):
            raise damage(where, f"{field}.{name}", list(roots), "some of replicas, in that order")
    if {*found.isr} & {*found.joining}:
        raise damage(where, f"{field}.joining", list(found.joining), "none of isr")
    if found.leader not in found.isr:
        raise damage(where, f"{field}.leader", found.leader, "a root of isr")
    for name, rows, those in (("begins", found.begins, replicas), ("learned", found.learned, found.isr)):
        if not {*rows} <= {*those}:
            raise damage(where, f"{field}.{name}", rows, f"roots of {'replicas' if those is replicas else 'isr'}")


def _check_numbers(found: ReplicasShape, number: int, where: str, field: str) -> None:
    if found.hw > number:
        raise damage(where, f"{field}.hw", found.hw, f"at most the entry's own number, {number}")
    for name, rows in (("begins", found.begins), ("learned", found.learned)):
        if any(of_root > number for of_root in rows.values()):
            raise damage(where, f"{field}.{name}", rows, f"numbers up to the entry's own, {number}")
    before = found.hw
    for place, (first, election) in enumerate(found.pending_voids):
        if not (first < election and before < election <= number):
            expected = f"an election after {before}, up to {number}, and a number before it"
            raise damage(where, f"{field}.pendingVoids[{place}]", [first, election], expected)
        before = election


def _check_on(found: ReplicasShape, number: int, where: str, field: str) -> None:
    if sum(len(row) - 1 for row in found.on) > MAX_ABOVE_HW:
        raise damage(where, field, list(found.on), f"at most {MAX_ABOVE_HW} appends")
    before = found.hw
    for place, (mask, *numbers) in enumerate(found.on):
        if mask >> len(found.replicas):
            raise damage(where, f"{field}[{place}][0]", mask, f"bits of {len(found.replicas)} replicas")
        first, *steps = numbers
        last = first + sum(steps)
        if not before < first <= last <= number or 0 in steps:
            raise damage(
                where, f"{field}[{place}]", [mask, *numbers], f"ascending numbers after {before}, up to {number}"
            )
        before = last
