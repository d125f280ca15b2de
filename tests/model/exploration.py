"""Explores a protocol exhaustively: every interleaving of its processes' requests to storage, breadth first.

A process is a chain of *phases*: generators that yield requests to storage and return the next phase. They read like
the protocol. A process' local state is (phase, its arguments, the replies seen in it), so it is hashable and a
generator is only ever replayed. A request is one atomic step; it says in how many ways it may go. The exploration walks
the graph of all states breadth first, so the counter-example that it returns is one of the shortest. A process that the
interleaving never schedules again has crashed; one that it schedules late is a zombie.

A model brings its storage (any hashable value), its requests, its claims (what processes report), and a judge,
which says whether a step or a claim breaks a property.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

Store = Any
"""What a model takes for storage: a hashable value."""


class Outcome(NamedTuple):
    """One way that a request may go: storage afterwards, what the process sees, what really happened."""

    store: Store
    observed: Any
    note: str


class Request(Protocol):
    """One atomic access to storage; `str` of it stands in traces."""

    def outcomes(self, store: Any, world: Any) -> Iterator[Outcome]:
        """Yield every way that it may go; none when it has to wait."""


Claim = Any
"""What a process reports: a value, whose ``str`` stands in traces."""

Judge = Callable[[Any, Any, tuple[Claim, ...]], tuple[Any, "str | None"]]
"""(storage before a step, after it, what is claimed in it) -> (storage that remembers the claims, what is broken)."""


@dataclass(frozen=True, slots=True)
class Next:
    """A phase ends: the next one, its arguments, and what the process claims on the way."""

    phase: Callable[..., Phase]
    args: tuple[Hashable, ...]
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The process ends."""

    claim: Claim | None = None


_T = TypeVar("_T")
Phase = Generator[Request, Any, Next | Done]
Ask = Generator[Request, Any, _T]


# --- Local states -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Local:
    """Where a process stands: a phase, its arguments, and the replies that it has seen in this phase."""

    phase: Callable[..., Phase]
    args: tuple[Hashable, ...]
    replies: tuple[Hashable, ...] = ()


def resume(local: Local) -> Request | Next | Done:
    """Replay a phase up to the first request that has no reply yet, or to its end."""
    steps = local.phase(*local.args)
    try:
        request = next(steps)
        for reply in local.replies:
            request = steps.send(reply)
    except StopIteration as end:
        ended: Next | Done = end.value
        return ended
    return request


def run_on(local: Local) -> tuple[Local | None, tuple[Claim, ...]]:
    """Run through ended phases up to a request, or to the process' end (None); also the claims on the way."""
    claims: tuple[Claim, ...] = ()
    while isinstance(step := resume(local), Next | Done):
        claims += (step.claim,) if step.claim is not None else ()
        if isinstance(step, Done):
            return None, claims
        local = Local(step.phase, step.args)
    return local, claims


# --- Exploration --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Process:
    """A named process and where it starts."""

    name: str
    start: Local


def process(name: str, phase: Callable[..., Phase], *args: Any) -> Process:
    """A process that starts with this phase."""
    return Process(name, Local(phase, args))


@dataclass(frozen=True, slots=True)
class Alone:
    """What fresh processes, run one after the other while all others stand still, have to achieve from EVERY state.

    `fault` says of the storage that they leave what is missing; None for nothing.
    """

    processes: tuple[Process, ...]
    fault: Callable[[Any], str | None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story: storage, the processes around it, the environment, and the judge.

    `alone` is asked of every reachable storage. `finishes` of every reachable local state: if this process alone
    goes on from there, with no fault any more, does that break something? `must_reach` are phases and kinds of claims
    that some interleaving must come to. `symmetric`: states in which processes with equal starts have changed places
    count as one: those processes take the same steps, and nothing in storage says which of them did.
    """

    name: str
    store: Store
    processes: tuple[Process, ...]
    world: Any
    judge: Judge
    alone: tuple[Alone, ...] = ()
    finishes: Callable[[str, Local, Any, tuple[Claim, ...]], str | None] | None = None
    must_reach: tuple[str, ...] = ()
    symmetric: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What the exploration found. Without a violation, all reachable states were seen.

    `broken` and `trace` are a shortest violation; `reached` names the phases that were run and the kinds of
    claims that were made, so that a test can see that nothing was left out.
    """

    scenario: str
    states: int
    transitions: int
    reached: frozenset[str]
    broken: str | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        size = f"{self.scenario}: {self.states:,} states, {self.transitions:,} transitions"
        if self.broken is None:
            return f"{size}, no violation"
        steps = (f"  {number:2}. {line}" for number, line in enumerate(self.trace, 1))
        return "\n".join([size, *steps, f"  =>  {self.broken}"])


_K = TypeVar("_K", bound=Hashable)


@dataclass(slots=True)
class _Pool(Generic[_K]):
    """Gives equal values one small integer, so that a global state is a short tuple of integers."""

    items: list[_K] = field(default_factory=list)
    ids: dict[_K, int] = field(default_factory=dict)

    def id(self, item: _K) -> int:
        found = self.ids.setdefault(item, len(self.items))
        if found == len(self.items):
            self.items.append(item)
        return found


State = tuple[int, ...]
"""The id of the store, then the id of each process' local state."""


class Move(NamedTuple):
    """One process takes one step: the ids of storage and of its local state afterwards."""

    store: int
    local: int
    broken: str | None
    note: str


class _Space:
    """The state graph of a scenario. Moves depend on (store, local state) only, and are worked out once."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.stores: _Pool[Store] = _Pool()
        self.locals: _Pool[Local | None] = _Pool()
        self.ended = self.locals.id(None)
        self.moves: dict[tuple[int, int], tuple[Move, ...]] = {}
        self.reached: set[str] = set()
        self._judged: dict[int, str | None] = {}
        self._finished: dict[tuple[int, int, int], str | None] = {}
        self._alike = _alike(scenario) if scenario.symmetric else ()

    def first(self) -> State:
        starts = [run_on(process.start)[0] for process in self.scenario.processes]
        return self._one_of_all((self.stores.id(self.scenario.store), *map(self.locals.id, starts)))

    def moves_of(self, store: int, local: int) -> tuple[Move, ...]:
        found = self.moves.get((store, local))
        if found is None:
            found = self.moves[store, local] = tuple(self._work_out(store, local))
        return found

    def _work_out(self, store_id: int, local_id: int) -> Iterator[Move]:
        before, local = self.stores.items[store_id], self.locals.items[local_id]
        if local is None:
            return
        for after, following, claims, broken, note in steps_of(self.scenario, before, local):
            self.reached.add(local.phase.__name__)
            self.reached.update(type(claim).__name__ for claim in claims)
            yield Move(self.stores.id(after), self.locals.id(following), broken, note)

    def successors(self, state: State) -> Iterator[tuple[State, int, Move]]:
        store = state[0]
        for place in range(1, len(state)):
            if state[place] != self.ended:
                for move in self.moves_of(store, state[place]):
                    after = (move.store, *state[1:place], move.local, *state[place + 1 :])
                    yield self._one_of_all(after) if self._alike else after, place, move

    def _one_of_all(self, state: State) -> State:
        """Return the state that stands for all in which processes that are alike have changed places."""
        found = list(state)
        for places in self._alike:
            for place, local in zip(places, sorted(state[each] for each in places), strict=True):
                found[place] = local
        return tuple(found)

    def line(self, place: int, move: Move) -> str:
        return f"{self.scenario.processes[place - 1].name}: {move.note}"

    # What must be possible from here, asked once per storage, and once per storage and local state

    def stuck(self, state: State) -> str | None:
        """Return what can't be achieved any more from a state."""
        if self.scenario.alone and state[0] not in self._judged:
            self._judged[state[0]] = self._alone(self.stores.items[state[0]])
        broken = self._judged.get(state[0])
        if broken is None and self.scenario.finishes is not None:
            for place in range(1, len(state)):
                broken = broken or self._finish(state[0], place, state[place])
        return broken

    def _alone(self, store: Store) -> str | None:
        for each in self.scenario.alone:
            after = store
            for fresh in each.processes:
                after, _ = run_alone(self.scenario, after, run_on(fresh.start)[0])
            if (fault := each.fault(after)) is not None:
                return fault
        return None

    def _finish(self, store_id: int, place: int, local_id: int) -> str | None:
        key = (store_id, place, local_id)
        local = self.locals.items[local_id]
        if local is None or self.scenario.finishes is None:
            return None
        if key not in self._finished:
            _, claims = run_alone(self.scenario, self.stores.items[store_id], local)
            name = self.scenario.processes[place - 1].name
            self._finished[key] = self.scenario.finishes(name, local, self.stores.items[store_id], claims)
        return self._finished[key]


def _alike(scenario: Scenario) -> tuple[tuple[int, ...], ...]:
    """Return the places of processes that start alike, in groups."""
    groups: dict[Local, list[int]] = {}
    for place, each in enumerate(scenario.processes, 1):
        groups.setdefault(each.start, []).append(place)
    return tuple(tuple(places) for places in groups.values() if len(places) > 1)


Step = tuple[Store, "Local | None", tuple[Claim, ...], "str | None", str]


def steps_of(scenario: Scenario, before: Store, local: Local) -> Iterator[Step]:
    """Yield every way in which a process may take its next step."""
    request = resume(local)
    assert not isinstance(request, Next | Done)
    for after, observed, happened in request.outcomes(before, scenario.world):
        following, claims = run_on(replace(local, replies=(*local.replies, observed)))
        judged, broken = scenario.judge(before, after, claims)
        yield judged, following, claims, broken, "; ".join([f"{request} -> {happened}", *map(str, claims)])


def run_alone(
    scenario: Scenario, store: Store, local: Local | None, most: int = 500
) -> tuple[Store, tuple[Claim, ...]]:
    """Let one process go on to its end while all others stand still and each request goes the first, the good, way.

    Returns:
        Storage afterwards, and what the process claimed.
    """
    claimed: tuple[Claim, ...] = ()
    for _ in range(most):
        if local is None:
            return store, claimed
        step = next(steps_of(scenario, store, local), None)
        if step is None:
            return store, claimed
        store, local, claims, _, _ = step
        claimed += claims
    raise AssertionError(f"{scenario.name}: a process alone does not come to its end in {most} steps")


def explore(scenario: Scenario, at_most: int | None = None) -> Report:
    """Visit every reachable state, breadth first; stop at the first violation.

    Raises:
        AssertionError: there are more than `at_most` states.
    """
    space = _Space(scenario)
    first = space.first()
    parents: dict[State, State] = {first: first}
    level, transitions = [first], 0
    asked = bool(scenario.alone) or scenario.finishes is not None
    while level:
        following: list[State] = []
        for state in level:
            if asked and (broken := space.stuck(state)):
                return _report(space, len(parents), transitions, broken, _trace(space, parents, state))
            for successor, place, move in space.successors(state):
                transitions += 1
                if move.broken:
                    trace = (*_trace(space, parents, state), space.line(place, move))
                    return _report(space, len(parents), transitions, move.broken, trace)
                if successor not in parents:
                    parents[successor] = state
                    following.append(successor)
        assert at_most is None or len(parents) <= at_most, f"{scenario.name}: more than {at_most:,} states"
        level = following
    missed = [each for each in scenario.must_reach if each not in space.reached]
    return _report(space, len(parents), transitions, f"no interleaving comes to {missed[0]}" if missed else None)


def wander(scenario: Scenario, runs: int, seed: int = 1) -> Report:
    """Take random schedules, each to its end: for stories that are too large to be explored.

    Which process goes next is drawn first, then how its step goes: a process with many outcomes is not preferred.
    """
    space, chance, seen, transitions = _Space(scenario), Random(seed), set[State](), 0
    for _ in range(runs):
        state, lines = space.first(), list[str]()
        while True:
            ready = [p for p in range(1, len(state)) if state[p] != space.ended and space.moves_of(state[0], state[p])]
            if not ready:
                break
            place = chance.choice(ready)
            move = chance.choice(space.moves_of(state[0], state[place]))
            state = (move.store, *state[1:place], move.local, *state[place + 1 :])
            transitions += 1
            lines.append(space.line(place, move))
            seen.add(state)
            if move.broken:
                return _report(space, len(seen), transitions, move.broken, tuple(lines))
    return _report(space, len(seen), transitions)


def _report(
    space: _Space, states: int, transitions: int, broken: str | None = None, trace: tuple[str, ...] = ()
) -> Report:
    return Report(space.scenario.name, states, transitions, frozenset(space.reached), broken, trace)


def _trace(space: _Space, parents: dict[State, State], state: State) -> tuple[str, ...]:
    lines: list[str] = []
    while parents[state] != state:
        before = parents[state]
        steps = ((place, move) for to, place, move in space.successors(before) if to == state)
        lines.append(space.line(*next(steps)))
        state = before
    return tuple(reversed(lines))
