"""The rules of replicas against those of the model that was explored: the same steps on the same chains, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import pytest

from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.replica_state import MetadataSet, ReplicaState, check_replicas
from pyspark_commitlog.replication.protocol.rules import Ack, RefusedError
from tests.model import replica_rules as model, replica_steps as steps
from tests.model.replica_rules import ALL, Chain, bits, said_learned

ROOTS = "abc"
CHAINS, ENTRIES = 600, 40


def mask_of(roots: tuple[str, ...]) -> int:
    return sum(1 << ROOTS.index(root) for root in roots)


def roots_of(mask: int) -> tuple[str, ...]:
    return tuple(ROOTS[place] for place in bits(mask))


class SideBySide:
    """A chain of the model, our state of its newest entry, and what each root has learned.

    `metadata` is whether one root decides alone, a at first: what it decides it has learned.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.metadata = self.random.random() < 0.3
        isr = self.random.choice((1, 3, 7))
        self.chain = model.first_entry(isr)
        self.learned = [0, 0, 0]
        of = MetadataSet(1, "s", ("a",) if self.metadata else ("m",))
        self.state = rules.created(of, roots_of(isr), "a", 0)
        for root in ROOTS[len(self.state.replicas) :]:
            self.state = rules.added(self.state, root)
        self.states = [self.state]
        self.seen: Counter[str] = Counter()

    @property
    def base(self) -> int:
        return len(self.chain) - 1

    def told(self) -> dict[str, int]:
        return {**dict(zip(ROOTS, self.learned, strict=True)), "m": self.base}

    def said(self, place: int) -> int:
        """What the chain says of a root; an entry that takes another out may state it as well."""
        raised = [
            entry._replace(kind="hw") if n and entry.kind == "shrink" and self.chain[n - 1].hw < entry.hw < n else entry
            for n, entry in enumerate(self.chain)
        ]
        return said_learned(Chain(raised), place)

    def counts(self, place: int) -> bool:
        return self.learned[place] >= self.said(place)

    def put(self, what: str, longer: Chain | None, ours: Callable[[], ReplicaState]) -> None:
        """Put an entry on both sides; both refuse it, or neither does."""
        try:
            state: ReplicaState | None = ours()
        except RefusedError:
            state = None
        assert (longer is None) == (state is None), f"{what} on {self.base}: {longer and longer[-1]}, {state}"
        self.seen[f"{what}{' refused' if state is None else ''}"] += 1
        if longer is not None and state is not None:
            self.chain, self.state = longer, state
            self.states = [*self.states[: self.base], state]
            if self.metadata and what != "recover":
                self.learned[ROOTS.index(self.state.set.roots[0])] = self.base
            self.compare()

    def compare(self) -> None:
        head, state = self.chain[-1], self.state
        assert (mask_of(state.isr), mask_of(state.joining)) == (head.isr, head.joining)
        assert (state.leader, state.leader_epoch, state.hw) == (ROOTS[head.leader], head.epoch, head.hw)
        living = {
            n: entry.on
            for n, entry in enumerate(self.chain)
            if entry.kind == "append" and n > head.hw and not head.voids >> n & 1
        }
        assert {n: mask_of(roots) for n, roots in state.on.items()} == living
        assert [state.learned.get(root, 0) for root in ROOTS] == [self.said(place) for place in range(3)]
        check_replicas(state.to_json(), self.base, "entry")
        assert ReplicaState.from_json(state.to_json()) == state

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        names = ["learn"] * 5 + ["append"] * 4 + ["raise_hw"] * 3 + ["elect", "joining", "joined", "shrink"] * 2
        getattr(
            self,
            self.random.choice([*names, "touch", "elect_uncleanly", "restore", "recover", "acknowledge", "collect"]),
        )()

    def learn(self) -> None:
        place = self.random.randrange(3)
        self.learned[place] = min(self.base, self.learned[place] + self.random.choice((1, 2, ENTRIES)))

    def restore(self) -> None:
        """A root comes back as of a copy; the metadata root does not."""
        place = self.random.randrange(3)
        if self.random.random() < 0.3 and not (self.metadata and ROOTS[place] in self.state.set.roots):
            self.learned[place] = self.random.randint(0, self.learned[place])

    def touch(self) -> None:
        self.put("touch", model.new(self.chain, "touch"), lambda: self.other(self.state))

    def other(self, state: ReplicaState) -> ReplicaState:
        return rules.after_other(state, self.base, self.base + 1)

    def append(self) -> None:
        on, acks_all = self.random.randrange(8), self.random.random() < 0.5
        batch = sum(entry.kind == "append" for entry in self.chain)
        longer = model.appended(ALL, self.chain, batch, on, acks_all=acks_all, writers=tuple(range(batch + 1)),
                                isr=self.chain[-1].isr, named=99)  # fmt: skip
        if self.metadata and not on & mask_of(self.state.set.roots):
            longer = None
        self.put("append", longer, lambda: rules.after_append(
            self.state, self.base + 1, roots_of(on), acks_all=acks_all, min_insync=1))  # fmt: skip

    def may_rise(self, isr: int) -> Iterator[int]:
        """The numbers that an entry may state, by the model, if these are the ISR."""
        for number in range(self.chain[-1].hw + 1, self.base + 1):
            learned = all(self.learned[r] >= number and self.counts(r) for r in bits(isr))
            if learned and model.hw_may_be(ALL, self.chain, number):
                yield number

    def raise_hw(self) -> None:
        head = self.chain[-1]
        may = [head.hw, *self.may_rise(head.isr)]
        assert rules.hw_may_rise_to(self.state, self.base, self.told()) == may[-1]
        hw = self.random.choice(may)
        if hw > head.hw:
            self.put("hw", model.new(self.chain, "hw", hw=hw), lambda: rules.with_hw(self.other(self.state), hw))

    def joining(self) -> None:
        place, base = self.random.randrange(3), self.chain[-1]
        free = not (base.isr | base.joining) >> place & 1
        longer = model.new(self.chain, "joining", joining=base.joining | 1 << place) if free else None
        self.put("joining", longer, lambda: self.other(rules.joining(self.state, ROOTS[place])))

    def joined(self) -> None:
        place, base = self.random.randrange(3), self.chain[-1]
        bit, learned = 1 << place, self.learned[place]
        fits = base.joining & bit and learned >= self.base
        longer = model.new(self.chain, "join", isr=base.isr | bit, joining=base.joining & ~bit) if fits else None
        self.put("join", longer, lambda: self.other(rules.joined(self.state, self.base, ROOTS[place], learned)))

    def shrink(self) -> None:
        place, base = self.random.randrange(3), self.chain[-1]
        fits = (base.isr | base.joining) >> place & 1 and place != base.leader
        rest, raises = base.isr & ~(1 << place), self.random.random() < 0.5
        hw = max(self.may_rise(rest), default=base.hw) if raises else base.hw
        longer = model.new(self.chain, "shrink", isr=rest, joining=base.joining & ~(1 << place), hw=hw)
        self.put("shrink", longer if fits else None, partial(self.shrunk, ROOTS[place], raises))

    def shrunk(self, root: str, raises: bool) -> ReplicaState:
        state = rules.shrunk(self.state, root)
        hw = rules.hw_may_rise_to(state, self.base, self.told()) if raises else state.hw
        return rules.with_hw(self.other(state), hw)

    def elect(self) -> None:
        place = self.random.randrange(3)
        learned = self.learned[place]
        longer = model.elected(ALL, self.chain, place, learned, len(self.chain)) if self.counts(place) else None
        self.elected("elect", longer, lambda: rules.elected(
            self.state, self.base, self.base + 1, ROOTS[place], learned, gone=self.state.leader))  # fmt: skip

    def elect_uncleanly(self) -> None:
        if self.random.random() < 0.7:
            return
        place, has = self.random.randrange(3), self.random.getrandbits(len(self.chain))
        voids = self.chain[-1].voids
        living = [n for n, entry in enumerate(self.chain) if entry.kind == "append" and not voids >> n & 1]
        longer = model.elected_uncleanly(self.chain, place, has)
        self.elected("unclean", longer, lambda: rules.elected_uncleanly(
            self.state, self.base, self.base + 1, ROOTS[place], living, set(bits(has))))  # fmt: skip

    def recover(self) -> None:
        """The one metadata root is lost with what nobody else has learned; the longest journal that is left goes on."""
        gone = ROOTS.index(self.state.set.roots[0]) if self.metadata else -1
        left = [place for place in range(3) if place != gone]
        place = max(left, key=lambda r: self.learned[r])
        if not self.metadata or self.random.random() < 0.8:
            return
        self.chain = Chain(self.chain[: self.learned[place] + 1])
        self.state, self.learned[gone] = self.states[self.base], 0
        head, has = self.chain[-1], self.random.getrandbits(len(self.chain))
        voids = head.voids
        for n in range(head.hw + 1, len(self.chain)):
            if self.chain[n].kind == "append" and not has >> n & 1:
                voids |= 1 << n
        rows = model.rows_of(self.chain, voids)
        longer = model.new(self.chain, "recover", leader=place, epoch=head.epoch + 1, isr=1 << place, joining=0, voids=voids, rows=rows)  # fmt: skip
        generation = self.state.set.generation + 1
        of = MetadataSet(generation, f"s{generation}", (ROOTS[place],))
        self.elected("recover", longer, lambda: rules.recovered(
            self.state, self.base, self.base + 1, ROOTS[place], set(bits(has)), of))  # fmt: skip
        self.learned[place] = self.base

    def elected(
        self, what: str, longer: Chain | None, ours: Callable[[], tuple[ReplicaState, tuple[int, ...]]]
    ) -> None:
        """Put an election on both sides, which make the same void."""

        def state() -> ReplicaState:
            after, voids = ours()
            assert longer is not None, f"{what} on {self.base}: the model refuses, we void {voids}"
            assert voids == tuple(bits(longer[-1].voids & ~self.chain[-1].voids))
            self.seen["void"] += len(voids)
            return after

        self.put(what, longer, state)

    # --- what is asked -------------------------------------------------------------------------------------------------

    def acknowledge(self) -> None:
        appends = [n for n, entry in enumerate(self.chain) if entry.kind == "append"]
        if not appends:
            return
        number, least = self.random.choice(appends), self.random.randint(1, 3)
        entry, base = self.chain[number], self.chain[number - 1]
        there = sum(1 << r for r in range(3) if self.learned[r] >= number and self.counts(r))
        theirs = steps.may_return(ALL, self.chain, least, entry.batch, steps.Seen(number, there))
        ours = rules.may_return(self.state, number, self.told(), own_on_all_isr=not base.isr & ~entry.on,
                                is_void=model.is_void(self.chain, number), min_insync=least)  # fmt: skip
        assert theirs == (ours is Ack.YES)
        self.seen[f"ack {ours.name}"] += 1

    def collect(self) -> None:
        head = self.chain[-1]
        least = min(self.learned[r] for r in bits(head.isr | head.joining))
        assert rules.collectable(self.state, self.told()) == min(head.hw - 1, least)


def walked(seed: int) -> Counter[str]:
    both = SideBySide(seed)
    both.compare()
    while len(both.chain) < ENTRIES:
        both.step()
    return both.seen


@pytest.mark.parametrize("first", range(0, CHAINS, 100))
def test_the_rules_are_those_of_the_model(first: int) -> None:
    seen: Counter[str] = sum((walked(seed) for seed in range(first, first + 100)), Counter())

    refused = {f"{what} refused" for what in ("append", "joining", "join", "shrink", "elect", "unclean")}
    accepted = {"append", "touch", "hw", "joining", "join", "shrink", "elect", "unclean", "recover", "void"}
    assert refused | accepted | {f"ack {ack.name}" for ack in Ack} <= set(seen), f"a story is too short: {seen}"
