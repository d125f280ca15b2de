"""State machine of a group's members, without a coordinator. Pure.

See docs/explanation/design/group-membership.md; `tests/model` explores it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from pyspark_commitlog.groups.assignment.assignors import ASSIGNORS, Assignor, Subscriber, chosen
from pyspark_commitlog.groups.state.members import Member, Members, Phase, Places, Profile, TopicIncarnation

#: Maximum members of a group: bounds an entry's side file.
MAX_MEMBERS = 10_000


@dataclass(frozen=True, slots=True)
class Observation:
    """Changes of members that a process observed since the newest entry.

    `gone` has admission numbers of silent or leaving members, `given_up` generations that files have reached,
    `changed` new profiles.
    """

    joining: Mapping[str, Profile] = field(default_factory=dict)
    gone: Mapping[str, int] = field(default_factory=dict)
    given_up: Mapping[str, int] = field(default_factory=dict)
    changed: Mapping[str, Profile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Step:
    rows: Mapping[str, Member]
    topics: Mapping[str, TopicIncarnation] | None = None


def is_due(before: Members, observation: Observation, topics: Mapping[str, TopicIncarnation]) -> bool:
    """Whether `rebalanced` would change anything."""
    return _step(before, observation, topics) is not None


def rebalanced(before: Members, observation: Observation, topics: Mapping[str, TopicIncarnation]) -> Members:
    """Members after an observation; the same object without changes.

    While partitions are being given up, only departures and returning static members count (Kafka:
    `PREPARING_REBALANCE`).
    """
    step = _step(before, observation, topics)
    if step is None:
        return before
    if step.topics is None:
        return replace(before, admitted=_admitted_to(before, step.rows), rows=step.rows)
    return _assigned(before, step.rows, step.topics, topics)


def _admitted_to(before: Members, rows: Mapping[str, Member]) -> int:
    return max([before.admitted, *(row.joined for row in rows.values())])


def _step(before: Members, observation: Observation, topics: Mapping[str, TopicIncarnation]) -> _Step | None:
    rows = {m: row for m, row in before.rows.items() if observation.gone.get(m) != row.joined}
    departed = len(rows) < len(before.rows)
    asked = _profiles(rows)
    numbers = count(before.admitted + 1)
    returned = _take_over(rows, asked, observation.joining, numbers)
    changed = _Step(rows) if departed or returned else None
    if _is_giving_up(rows, observation.given_up):
        return changed
    rows = _revised(rows, observation.changed)
    rows |= _admitted(rows, observation.joining, numbers)
    wanted = wanted_topics(_profiles(rows).values(), topics)
    due = departed or wanted != before.topics or before.phase is Phase.PREPARING_REBALANCE
    return _Step(rows, wanted) if due or _wishes_differ(rows, asked) else changed


def _profiles(rows: Mapping[str, Member]) -> dict[str, Profile]:
    return {m: row.profile for m, row in rows.items()}


def _revised(rows: Mapping[str, Member], changed: Mapping[str, Profile]) -> dict[str, Member]:
    return {m: replace(row, profile=changed.get(m, row.profile)) for m, row in rows.items()}


def _wishes_differ(rows: Mapping[str, Member], asked: Mapping[str, Profile]) -> bool:
    return any(_wish(row.profile) != _wish(asked.get(member_id)) for member_id, row in rows.items())


def _wish(profile: Profile | None) -> object:
    return profile and (profile.topics, profile.pattern, profile.assignors)


def _take_over(
    rows: dict[str, Member], asked: dict[str, Profile], joining: Mapping[str, Profile], numbers: Iterator[int]
) -> bool:
    """Move rows of returning static members to new ids; return success.

    A restarted process reads nothing: its `revoking` is given up (KIP-345).
    """
    before = set(rows)
    for member_id in sorted(joining.keys() - rows.keys()):
        former = Members(rows=rows).instance(joining[member_id].instance_id)
        if former is not None:
            row = rows.pop(former)
            rows[member_id] = replace(row, profile=joining[member_id], joined=next(numbers), revoking=frozenset())
            asked[member_id] = asked.pop(former)
    return rows.keys() != before


def _is_giving_up(rows: Mapping[str, Member], given_up: Mapping[str, int]) -> bool:
    return any(row.revoking and given_up.get(m, 0) < row.revoked_in for m, row in rows.items())


def _admitted(rows: Mapping[str, Member], joining: Mapping[str, Profile], numbers: Iterator[int]) -> dict[str, Member]:
    """Return new rows of members that share an assignor with all others."""
    admitted: dict[str, Member] = {}
    wishes = [row.profile.assignors for row in rows.values()]
    for member_id in sorted(joining.keys() - rows.keys()):
        profile = joining[member_id]
        if Members(rows={**rows, **admitted}).instance(profile.instance_id) is not None:
            continue  # two joined at once: the other one takes the row over next (`_take_over`)
        if chosen([*wishes, profile.assignors]) is not None and len(wishes) < MAX_MEMBERS:
            wishes.append(profile.assignors)
            admitted[member_id] = Member(profile, next(numbers))
    return admitted


@dataclass(frozen=True, slots=True)
class _Handover:
    """Partitions to give up first (`leaving`), and final ones (`target`)."""

    leaving: Mapping[str, Places]
    target: Mapping[str, Places]

    def blocked(self) -> Places:
        return frozenset().union(*self.leaving.values())


def _assigned(
    before: Members,
    rows: Mapping[str, Member],
    wanted: Mapping[str, TopicIncarnation],
    topics: Mapping[str, TopicIncarnation],
) -> Members:
    """Next generation, of rows with nothing left to give up.

    Eager: all give up everything if anybody has to. Cooperative: only moved partitions are given up, free ones assigned
    at once (KIP-429). Unwanted partitions are given up, too, except of deleted topics, which can't be committed.
    """
    generation, admitted = before.generation + 1, _admitted_to(before, rows)
    if not rows:
        return Members(generation, admitted)
    protocol = chosen([rows[member_id].profile.assignors for member_id in sorted(rows)])
    assert protocol is not None, "a member that shares no assignor with the others is not let in"
    assignor, incarnations = ASSIGNORS[protocol], _lasting(before.topics, topics)
    has = {m: _has(row, incarnations) for m, row in rows.items()}
    had = has if assignor.cooperative else {m: _previous_places(before, m, has[m], incarnations) for m in rows}
    handover = _handover(has, _target(assignor, rows, had, wanted), cooperative=assignor.cooperative)
    blocked = handover.blocked()
    phase = Phase.PREPARING_REBALANCE if blocked else Phase.STABLE
    still = {place.topic: incarnations[place.topic] for place in blocked}
    after = {m: _row_after(row, m, has[m], handover, blocked, generation) for m, row in rows.items()}
    return Members(generation, admitted, phase, protocol, {**still, **wanted}, after)


def _lasting(
    before: Mapping[str, TopicIncarnation], topics: Mapping[str, TopicIncarnation]
) -> dict[str, TopicIncarnation]:
    """Last generation's topics, without deleted or recreated ones."""
    return {
        name: incarnation
        for name, incarnation in before.items()
        if name in topics and topics[name].topic_id == incarnation.topic_id
    }


def _has(row: Member, incarnations: Collection[str]) -> Places:
    return frozenset(place for place in row.owned if place.topic in incarnations)


def _previous_places(before: Members, member_id: str, has: Places, incarnations: Collection[str]) -> Places:
    """Add partitions revoked by an eager rebalance, for stickiness."""
    row = before.rows.get(member_id)
    return has | frozenset(place for place in row.revoking if place.topic in incarnations) if row else has


def _target(
    assignor: Assignor, rows: Mapping[str, Member], had: Mapping[str, Places], wanted: Mapping[str, TopicIncarnation]
) -> dict[str, Places]:
    subscribers = {
        m: Subscriber(frozenset(row.profile.topics), tuple(sorted(had[m])), row.profile.instance_id)
        for m, row in rows.items()
    }
    partitions = {name: incarnation.partitions for name, incarnation in wanted.items()}
    return {m: frozenset(places) for m, places in assignor.assign(partitions, subscribers).items()}


def _handover(has: Mapping[str, Places], target: Mapping[str, Places], *, cooperative: bool) -> _Handover:
    """Give up all first if any moves, with an eager assignor."""
    leaving = {m: has[m] - target[m] for m in has}
    if any(leaving.values()) and not cooperative:
        return _Handover(has, dict.fromkeys(has, frozenset()))
    return _Handover(leaving, target)


def _row_after(
    row: Member, member_id: str, has: Places, handover: _Handover, blocked: Places, generation: int
) -> Member:
    leaving = handover.leaving[member_id]
    owned = (has - leaving) | (handover.target[member_id] - blocked)
    return Member(row.profile, row.joined, owned, leaving, generation if leaving else row.revoked_in)


def wanted_topics(profiles: Iterable[Profile], topics: Mapping[str, TopicIncarnation]) -> dict[str, TopicIncarnation]:
    """Existing topics that members want, sorted by name.

    Each evaluates its own pattern, so that a bad one harms no other.
    """
    names = {name for topics_of_one in {profile.topics for profile in profiles} for name in topics_of_one}
    return {name: topics[name] for name in sorted(names) if name in topics}
