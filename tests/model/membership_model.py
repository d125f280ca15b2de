"""An explicit-state model of a group's members, explored exhaustively.

What is modelled
    The group's newest entry, the members' files, and processes. The functions that decide are the real ones
    (`rebalanced`, `Members.has`). A process looks at all there is (a heartbeat, which writes its file first), puts what
    it makes of it, polls, and commits; each is one atomic step, and all steps of all processes interleave freely. Between
    a look and its put anything may happen. A process may take any other for dead at any time, rightly or not, `suspicions` times in
    all: time is not modelled, so nothing can hang on it. Who is not scheduled sleeps, or is dead.

What is checked
    M1  Tenures of a partition do not overlap: once a process has committed it, none that was told to own it before
        can commit it.
    M2  Who is told to give up a partition can commit it until it polls again, if nobody took it for dead.
    M3  From every state, if some processes die and the others go on, the others soon own every partition, each one of
        them, and the group is stable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pyspark_commitlog.groups.assignment.rebalance import Observation, rebalanced
from pyspark_commitlog.groups.state.members import NEVER_IN, Members, Phase, Profile, TopicIncarnation
from pyspark_commitlog.model import TopicPartition

_EVER = 10**6
_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Guards:
    """The rules. The defaults are the whole protocol; a test takes one out at a time."""

    same_admission: bool = True
    """A commit counts for who knows of its last admission only: an id may have been out and in again."""
    own_partition: bool = True
    """A commit counts for a partition in the member's row only."""
    wait: bool = True
    """A partition is handed on only when its owner has given it up, or is gone."""
    given_up_this: bool = True
    """Giving up an earlier generation does not give up what a later one revokes."""
    joined: bool = True
    """Who was removed and let in again has lost all, even if its row says otherwise."""
    notice: bool = True
    """A process that sees its row knows that it is in, before it polls: whoever takes the row over then, fences it."""
    plan_anew: bool = True
    """A put is made on the newest entry, whatever was looked at before (rule R9)."""
    delete_first: bool = True
    """The file of who is taken for dead is deleted before the entry is put."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Who is there: process -> its `group_instance_id`, or none."""

    guards: Guards = field(default_factory=Guards)
    processes: tuple[tuple[str, str | None], ...] = (("a", None), ("b", None))
    assignor: str = "cooperative-sticky"
    partitions: int = 1
    suspicions: int = 2
    max_generation: int = 3
    max_admitted: int = 4
    settle_every: int = 1


@dataclass(frozen=True, slots=True)
class Look:
    """What a process saw, and has not put yet."""

    entry: str
    joining: tuple[str, ...]
    gone: tuple[tuple[str, int], ...]
    given_up: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Process:
    """A process; its member id is its name and how often it began anew."""

    name: str
    lives: int = 0
    joined: int | None = None
    generation: int = NEVER_IN
    given_up: int = NEVER_IN
    held: frozenset[int] = frozenset()
    handing: frozenset[int] = frozenset()
    overtaken: frozenset[int] = frozenset()
    look: Look | None = None
    closed: bool = False

    @property
    def member_id(self) -> str:
        """Return the id that it has now."""
        return f"{self.name}{self.lives}"


@dataclass(frozen=True, slots=True)
class State:
    """Everything; `entry` is the newest entry's members as text, so that a state can be looked up."""

    entry: str
    files: frozenset[tuple[str, int]]
    processes: tuple[Process, ...]
    suspicions: int


@dataclass(frozen=True, slots=True)
class Report:
    """How an exploration ended."""

    states: int
    broken: str | None = None
    trace: tuple[str, ...] = ()


class Space:
    """The states that a scenario can reach."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.guards = scenario, scenario.guards
        self.topics = {"t": TopicIncarnation("id", scenario.partitions)}
        self.instances = dict(scenario.processes)
        self._entries: dict[str, Members] = {}

    def first(self) -> State:
        """Return the beginning: nobody is in the group."""
        entry = self.text(Members())
        return State(
            entry, frozenset(), tuple(Process(n) for n, _ in self.scenario.processes), self.scenario.suspicions
        )

    def text(self, members: Members) -> str:
        """Return an entry as text."""
        text = json.dumps(members.to_json(), sort_keys=True)
        self._entries.setdefault(text, members)
        return text

    def members(self, entry: str) -> Members:
        """Return the members of an entry."""
        return self._entries[entry]

    def profile(self, member_id: str) -> Profile:
        """Return who has an id."""
        name = member_id[0]
        return Profile(name, name, ("t",), None, (self.scenario.assignor,), self.instances[name])

    def is_far(self, state: State) -> bool:
        """Return whether a state is beyond what is explored."""
        members = self.members(state.entry)
        far = members.generation > self.scenario.max_generation or members.admitted > self.scenario.max_admitted
        return far or any(process.lives > 1 for process in state.processes)

    # --- steps ----------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[str, State, str | None]]:
        """Yield what may happen next: what is told of it, the state after, and what it breaks."""
        for process in state.processes:
            if process.closed:
                continue
            name = process.member_id
            yield f"{name} polls", *self.poll(state, process)
            for gone in self.suspects(state, process):
                yield f"{name} looks, takes {gone or 'nobody'} for dead", self.look(state, process, gone), None
            if process.look is not None:
                yield f"{name} puts", self.put(state, process), None
            for partition in sorted(process.held | process.handing):
                after, broken = self.commit(state, process, partition)
                if after != state or broken:
                    yield f"{name} commits {partition} in {process.generation}", after, broken

    def beat(self, state: State, process: Process) -> State:
        """The process writes its file."""
        files = {(m, g) for m, g in state.files if m != process.member_id}
        reached = process.given_up if process.joined is None else max(process.given_up, 0)
        return replace(state, files=frozenset(files | {(process.member_id, reached)}))

    def suspects(self, state: State, process: Process) -> Iterator[tuple[str, ...]]:
        """Yield whom a look may take for dead."""
        yield ()
        if state.suspicions:
            for member_id in self.members(state.entry).rows:
                if member_id != process.member_id:
                    yield (member_id,)

    def look(self, state: State, process: Process, gone: tuple[str, ...]) -> State:
        """The process looks at entry and files; it deletes the files of who is dead, or comes back under a new id."""
        members, state = self.members(state.entry), self.beat(state, process)
        files = dict(state.files)
        joining = {m for m, g in files.items() if g == NEVER_IN and m not in members.rows and m not in gone}
        if process.member_id not in members.rows and process.joined is None:
            joining.add(process.member_id)
        given_up = {m: files[m] for m, row in members.rows.items() if row.revoking and m in files}
        if process.member_id in members.rows:
            given_up[process.member_id] = process.given_up
        if not self.guards.wait:
            given_up = dict.fromkeys(members.rows, _EVER)
        if not self.guards.given_up_this:
            given_up = {m: _EVER if g >= 0 else g for m, g in given_up.items()}
        if self.guards.delete_first:
            former = {members.instance(self.instances[m[0]]) for m in joining}
            files = {m: g for m, g in files.items() if m not in former and m not in gone}
        found = Look(
            state.entry,
            tuple(sorted(joining)),
            tuple((m, members.rows[m].joined) for m in gone if m in members.rows),
            tuple(sorted(given_up.items())),
        )
        suspicions = state.suspicions - (bool(gone) and state.suspicions > 0)
        after = replace(state, files=frozenset(files.items()), suspicions=suspicions)
        row = members.rows.get(process.member_id)
        joined = row.joined if row is not None and process.joined is None and self.guards.notice else process.joined
        return self.with_process(after, replace(process, look=found, joined=joined))

    def put(self, state: State, process: Process) -> State:
        """The process puts what it makes of its look."""
        look = process.look
        assert look is not None
        seen = Observation({m: self.profile(m) for m in look.joining}, dict(look.gone), dict(look.given_up))
        before = self.members(state.entry if self.guards.plan_anew else look.entry)
        after = rebalanced(before, seen, self.topics)
        entry = state.entry if after is before else self.text(after)
        return self.with_process(replace(state, entry=entry), replace(process, look=None))

    def poll(self, state: State, process: Process) -> tuple[State, str | None]:
        """The process gives up what it was told to, looks at the newest entry, and goes by it."""
        members = self.members(state.entry)
        row = members.rows.get(process.member_id)
        now = replace(process, given_up=process.generation, handing=frozenset())
        state = self.beat(state, now)
        begun = Process(process.name, process.lives + 1)
        if row is None and process.joined is None:
            return self.with_process(state, now), None
        if row is None:
            fenced = members.instance(self.instances[process.name]) is not None
            return self.with_process(state, replace(begun, closed=fenced)), None
        if self.guards.joined and process.joined not in (None, row.joined):
            return self.with_process(state, replace(Process(process.name, process.lives), joined=row.joined)), None
        if process.generation != members.generation:
            owned = frozenset(place.partition for place in row.owned)
            now = replace(
                now,
                joined=row.joined,
                generation=members.generation,
                held=owned,
                handing=process.held - owned,
                overtaken=process.overtaken & process.held,
            )
            after = self.with_process(state, now)
            for partition in now.handing:
                if process.joined == row.joined and not self.counts(after, now, partition):
                    return after, f"M2: {now.member_id} is told to give up {partition} and can't commit it any more"
            return after, None
        return self.with_process(state, now), None

    def counts(self, state: State, process: Process, partition: int) -> bool:
        """Return whether a commit counts (`tenure.check_generation`)."""
        members = self.members(state.entry)
        current = members.generation == process.generation
        own = members.has(process.member_id, TopicPartition("t", partition), "id")
        row = members.rows.get(process.member_id)
        known = row is None or row.joined == process.joined or not self.guards.same_admission
        return current and known and (own or not self.guards.own_partition)

    def commit(self, state: State, process: Process, partition: int) -> tuple[State, str | None]:
        """The process commits; all that were told to own the partition before are overtaken."""
        if not self.counts(state, process, partition):
            return state, None
        if partition in process.overtaken:
            return state, f"M1: {process.member_id} commits {partition} after its successor did"
        others = tuple(
            each if each.name == process.name else replace(each, overtaken=each.overtaken | ({partition} & (each.held | each.handing)))
            for each in state.processes
        )  # fmt: skip
        return replace(state, processes=others), None

    def with_process(self, state: State, process: Process) -> State:
        """Return the state with one process changed."""
        return replace(state, processes=tuple(process if p.name == process.name else p for p in state.processes))

    def handed_over(self, state: State) -> str | None:
        """Return how a state breaks M2: by somebody else's step."""
        members = self.members(state.entry)
        for process in state.processes:
            row = members.rows.get(process.member_id)
            if row is not None and row.joined == process.joined:
                for partition in process.handing:
                    if not self.counts(state, process, partition):
                        return f"M2: {process.member_id} has not given up {partition} and can't commit it any more"
        return None

    # --- what comes of it -----------------------------------------------------------------------------------

    def settled(self, state: State, alive: frozenset[str]) -> str | None:
        """Let the living go on, fairly; return how that breaks M3."""
        for _ in range(_ROUNDS):
            before = state
            for name in sorted(alive):
                state = self.turn(state, name, alive)
            if state == before:
                break
        members = self.members(state.entry)
        there = [p for p in state.processes if p.name in alive and not p.closed]
        held = sorted(partition for process in there for partition in process.held)
        right = held == list(range(self.scenario.partitions)) and members.phase is Phase.STABLE
        if there and not (right and members.rows.keys() == {p.member_id for p in there}):
            return f"M3: in the end {', '.join(f'{p.member_id} has {sorted(p.held)}' for p in there)}; {state.entry}"
        return None

    def turn(self, state: State, name: str, alive: frozenset[str]) -> State:
        """One living process does all that it can, and takes the dead for dead."""
        for act in ("look", "put", "poll"):
            process = next(p for p in state.processes if p.name == name)
            if process.closed:
                return state
            if act == "poll":
                state = self.poll(state, process)[0]
            elif act == "look":
                living = {p.member_id for p in state.processes if p.name in alive and not p.closed}
                gone = tuple(m for m in self.members(state.entry).rows if m not in living)
                state = self.look(state, process, gone)
            else:
                state = self.put(state, process)
        return state


def explore(scenario: Scenario) -> Report:
    """Visit every reachable state, breadth first; stop at the first violation."""
    space = Space(scenario)
    first = space.first()
    parents: dict[State, tuple[State, str] | None] = {first: None}
    level = [first]
    names = [name for name, _ in scenario.processes]
    groups = [frozenset(n for i, n in enumerate(names) if bits >> i & 1) for bits in range(1, 2 ** len(names))]
    while level:
        following = []
        for state in level:
            if space.is_far(state):
                continue
            for told, after, broken in space.steps(state):
                if broken is None and after in parents:
                    continue
                broken = broken or space.handed_over(after)
                if broken is None and len(parents) % scenario.settle_every == 0:
                    broken = next(filter(None, (space.settled(after, alive) for alive in groups)), None)
                parents.setdefault(after, (state, told))
                if broken:
                    return Report(len(parents), broken, (*_trace(parents, state), told))
                following.append(after)
        level = following
    return Report(len(parents))


def _trace(parents: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    lines: list[str] = []
    found = parents[state]
    while found is not None:
        lines.append(found[1])
        found = parents[found[0]]
    return tuple(reversed(lines))
