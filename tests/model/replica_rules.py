"""The rules of replication that decide: what an entry may be on its base, as pure functions of the chain of entries.

`docs/explanation/design/replication.md` has the protocol. A chain is the tuple of all entries from the first to the
newest; an entry's number is its place in it. Roots and batches are numbers from 0, sets of them are bit masks.
Every function takes the guards, so that a test can take a rule out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Guards:
    """The rules. The defaults are the whole protocol; a test takes one out at a time."""

    # --- appends (rule 2)
    on_leader: bool = True
    """An append's chunks are on the leader of its base."""
    on_isr: bool = True
    """Those of an append with acks=all are on all of the ISR of its base."""
    on_metadata: bool = True
    """Those of every append are on the one metadata root, if it is a replica."""
    on_each_attempt: bool = True
    """Leader, ISR and the sweeper's floor are those of the entry that is built on, on every attempt."""
    id_judged: bool = True
    """A batch that the writers' table has is not appended again."""
    rows_hold_last: bool = True
    """The table holds the last living batch: what is at or below it is never appended."""
    in_order: bool = True
    """A writer brings its batches in order."""
    files_on_isr: bool = True
    """The files that an entry's state names anew are on all of the ISR first."""
    # --- acknowledging with acks=all (rule 2)
    ack_not_void: bool = True
    """What is void is not acknowledged."""
    ack_all_learned: bool = True
    """It waits until all of the newest ISR have learned the entry."""
    ack_head_last: bool = True
    """The head is read after what the roots have learned, not before."""
    ack_own_or_hw: bool = True
    """An append whose chunks were not on all of its base's ISR is acknowledged at the high watermark only."""
    ack_min_insync: bool = True
    """The ISR that is acknowledged on has min.insync.replicas roots."""
    # --- high watermark (rule 3)
    hw_learned: bool = True
    """It rises over what all of the ISR have learned, not over what has chunks there."""
    hw_of_base: bool = True
    """The ISR that counts is that of the entry that is built on."""
    hw_not_past_election: bool = True
    """It does not rise to an entry below a void of a later election."""
    hw_of_rest: bool = True
    """An entry that takes a root out raises it over what the rest has learned only."""
    voids_at_hw: bool = True
    """Readers and settlers take the voids of the entry at the high watermark, not of the newest learned."""
    read_below_hw: bool = True
    """Readers stop at the high watermark."""
    hw_of_settled: bool = True
    """The high watermark of a root is at least what it has settled, also where its journal begins with an older one."""
    settle_below_hw: bool = True
    """Settlers stop at the high watermark."""
    # --- ISR and leader (rules 4, 5)
    join_base: bool = True
    """A root joins the ISR when it has learned the base, not only up to the high watermark."""
    elect_from_isr: bool = True
    """The new leader is in the ISR of the base."""
    elect_on_base: bool = True
    """What is void is judged on the newest entry, not on one that was the newest when the elector looked."""
    elect_looked_after_base: bool = True
    """What the new leader has learned is read after the base, not before."""
    elect_voids_all: bool = True
    """Everything above the high watermark that the new leader lacks becomes void."""
    void_stays: bool = True
    """What is void is never judged again."""
    rows_go_back: bool = True
    """A void takes its writer's row back to the last living batch."""
    unclean_waited_for: bool = True
    """A reader that finds no chunk of an append that is void by now waits there, below the high watermark too."""
    # --- learning, copies (learning)
    learn_whole: bool = True
    """A root learns an entry when the chunks of its append are there."""
    learn_void: bool = True
    """What is void is learned without its chunks."""
    copy_synced: bool = True
    """Copied chunks are synced before the entry that needs them is learned."""
    counted_synced: bool = True
    """Who counts an entry as learned, or a chunk as there, has synced its directory."""
    one_life: bool = True
    """A root that starts over has a new id; nothing that was seen of the old one counts."""
    restored_out: bool = True
    """A root that ends below what an entry says that it learned does not count, and starts over."""
    # --- collecting, sweeping, catching up (rule 7)
    collect_learned: bool = True
    """An entry goes when all of the ISR and of those that join have learned it."""
    collect_below_hw: bool = True
    """The entry at the high watermark and those above stay."""
    collect_settled: bool = True
    """An entry goes when the root has settled it."""
    collect_not_void: bool = True
    """A void append's entry goes without its chunk: a retry may name it again."""
    floor_checked: bool = True
    """An append refuses chunks below the floor of its base."""
    floor_learned: bool = True
    """A root sweeps below a floor that it has learned itself."""
    sweep_unnamed: bool = True
    """A chunk that a living append names is not swept."""
    catch_up_settled: bool = True
    """Segments are copied up to what the source has settled, and learning goes on behind that."""
    metadata_kept: bool = True
    """A metadata root that starts over as a replica keeps the entries that its old journal had, for the others."""
    catch_up_whole: bool = True
    """What the source has settled is copied whole before the root's journal begins."""
    # --- metadata lost for good (rule 10)
    recover_by_files: bool = True
    """`recover` voids what its root has no files of, whatever it has learned."""
    recover_alone: bool = True
    """After `recover` the ISR is that root alone."""
    recover_copied: bool = True
    """Before that, the others copy what they lack of living appends that they learned as void."""
    recover_longest: bool = True
    """`recover` takes the longest journal."""


ALL = Guards()

Kind = Literal[
    "create",
    "append",
    "hw",
    "joining",
    "join",
    "shrink",
    "elect",
    "unclean",
    "sweep",
    "alter",
    "void",
    "recover",
    "touch",
]


class Entry(NamedTuple):
    """The state after an entry, and what it did.

    `on` are the roots that had its chunks; `voids` the numbers that are void by now; `rows` the batches that live by now;
    `hw` the number up to which all of `isr` have learned; `end` the log end.
    """

    kind: Kind
    batch: int
    on: int
    isr: int
    joining: int
    leader: int
    epoch: int
    hw: int
    voids: int
    floor: int
    end: int
    rows: int

    def __str__(self) -> str:
        what = f"{self.kind} {self.batch} on {names(self.on)}" if self.kind == "append" else self.kind
        return f"{what} [leader {'ABCDE'[self.leader]}, isr {names(self.isr)}, hw {self.hw}{_void(self.voids)}]"


def _void(voids: int) -> str:
    return f", void {list(bits(voids))}" if voids else ""


class Chain(tuple[Entry, ...]):
    """All entries, oldest first. Its hash is worked out once."""

    def __hash__(self) -> int:
        kept: int | None = self.__dict__.get("hash")
        if kept is None:
            kept = self.__dict__["hash"] = tuple.__hash__(self)
        return kept


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers in a mask, ascending."""
    place = 0
    while mask:
        if mask & 1:
            yield place
        mask >>= 1
        place += 1


def names(mask: int) -> str:
    """Return roots as letters."""
    return "".join("ABCDE"[root] for root in bits(mask)) or "-"


def first_entry(isr: int, leader: int = 0) -> Chain:
    """A topic that was just created on these roots."""
    return Chain((Entry("create", -1, 0, isr, 0, leader, 0, 0, 0, 0, 0, 0),))


def followed(chain: Chain, entry: Entry) -> Chain:
    """Return the chain with one entry more; where nothing is to be copied, the high watermark goes along (rule 3)."""
    number = len(chain)
    if entry.kind != "append" and entry.hw == chain[-1].hw == number - 1:
        entry = entry._replace(hw=number)
    return Chain((*chain, entry))


def new(chain: Chain, kind: Kind, **changed: int) -> Chain:
    """Return the chain with an entry of this kind, whose state differs from its base's in what is given."""
    return followed(chain, chain[-1]._replace(kind=kind, batch=-1, on=0, **changed) if "batch" not in changed
                    else chain[-1]._replace(kind=kind, **changed))  # fmt: skip


# --- What a chain says ---------------------------------------------------------------------------------------------


def needed(entry: Entry) -> int:
    """The chunk, or the file, that an entry needs on a root, as a mask; 0 for none."""
    return 1 << entry.batch if entry.kind in ("append", "alter") else 0


def is_void(chain: Chain, number: int) -> bool:
    """Whether the newest entry of a chain says that this append is void."""
    return bool(chain[-1].voids >> number & 1) and chain[number].kind == "append"


def log_of(chain: Chain) -> tuple[int, ...]:
    """The log that a chain makes: the batch at each offset, -1 where it is void."""
    voids = chain[-1].voids
    return tuple(-1 if voids >> n & 1 else e.batch for n, e in enumerate(chain) if e.kind == "append")


def living(chain: Chain, batch: int) -> int | None:
    """The number of the append of a batch that is not void, if there is one."""
    found = (n for n, e in enumerate(chain) if e.kind == "append" and e.batch == batch and not is_void(chain, n))
    return next(found, None)


def rows_of(chain: Chain, voids: int) -> int:
    """The writers' table, as a mask of batches that live, if these numbers are void."""
    rows = 0
    for number, entry in enumerate(chain):
        if entry.kind == "append" and not voids >> number & 1:
            rows |= 1 << entry.batch
    return rows


def is_done(guards: Guards, base: Entry, batch: int, writers: tuple[int, ...]) -> bool:
    """Whether the table has this batch, or a later one of its writer."""
    rows = base.rows
    if rows >> batch & 1:
        return True
    later = (v for v in range(batch + 1, len(writers)) if writers[v] == writers[batch] and rows >> v & 1)
    return guards.rows_hold_last and next(later, None) is not None


# --- What may follow -------------------------------------------------------------------------------------------------


def appended(
    guards: Guards, chain: Chain, batch: int, on: int, *, acks_all: bool, writers: tuple[int, ...], isr: int, named: int
) -> Chain | None:
    """Append a batch, or refuse (None): rule 2.

    Args:
        on: The roots where its chunk was seen.
        isr: The ISR that counts: of the base, where every attempt looks at it again.
        named: The number in the chunk's name.
    """
    base = chain[-1]
    if guards.id_judged and is_done(guards, base, batch, writers):
        return None
    before = [v for v in range(batch) if writers[v] == writers[batch]]
    if guards.in_order and before and not is_done(guards, base, before[-1], writers):
        return None
    if guards.floor_checked and named < base.floor:
        return None
    if acks_all and guards.on_isr and isr & ~on:
        return None
    if guards.on_leader and not on >> base.leader & 1:
        return None
    return new(chain, "append", batch=batch, on=on, end=base.end + 1, rows=base.rows | 1 << batch)


def hw_may_be(guards: Guards, chain: Chain, number: int) -> bool:
    """Whether no election after this number has made something at or below it void (rule 3)."""
    if not guards.hw_not_past_election:
        return True
    until, now = chain[number].voids, chain[-1].voids
    return not (now & ~until) & ((2 << number) - 1)


def voided_by(guards: Guards, chain: Chain, leader: int, learned: int, judged: int) -> int:
    """All numbers that are void after this root is elected: rule 5.

    Args:
        learned: The newest entry that the new leader is known to have learned.
        judged: How many entries of the chain the elector knows.
    """
    base = chain[-1]
    voids, writes = base.voids, 0
    if not guards.void_stays:
        voids &= (2 << base.hw) - 1
    for number in range(base.hw + 1, min(len(chain), judged)):
        entry = chain[number]
        if entry.kind != "append" or voids >> number & 1:
            continue
        if not entry.on >> leader & 1 and learned < number:
            if not guards.elect_voids_all and writes:
                continue
            voids |= 1 << number
            writes += 1
    return voids


def elected(guards: Guards, chain: Chain, leader: int, learned: int, judged: int) -> Chain | None:
    """Elect a leader, or refuse (None): rule 5."""
    base = chain[-1]
    if leader == base.leader or (guards.elect_from_isr and not base.isr >> leader & 1):
        return None
    voids = voided_by(guards, chain, leader, learned, len(chain) if guards.elect_on_base else judged)
    isr = base.isr & ~(1 << base.leader) | 1 << leader
    rows = rows_of(chain, voids) if guards.rows_go_back else base.rows
    return new(
        chain,
        "elect",
        leader=leader,
        epoch=base.epoch + 1,
        isr=isr,
        joining=base.joining & ~isr,
        voids=voids,
        rows=rows,
    )


def elected_uncleanly(chain: Chain, leader: int, has: int) -> Chain | None:
    """Elect a root that is not in the ISR: all that it lacks is void, also what was read (rule 8).

    Args:
        has: The numbers of the appends that it can hand out, as a mask.
    """
    base = chain[-1]
    if base.isr >> leader & 1:
        return None
    lacks = sum(1 << n for n, e in enumerate(chain) if e.kind == "append" and not has >> n & 1)
    voids = base.voids | lacks
    return new(chain, "unclean", leader=leader, epoch=base.epoch + 1, isr=1 << leader, joining=0, voids=voids, rows=rows_of(chain, voids))  # fmt: skip


def said_learned(chain: Chain, root: int) -> int:
    """The newest entry that the chain says this root has learned, as it is in the ISR (rule 11)."""
    said = 0
    for number, entry in enumerate(chain):
        if not entry.isr >> root & 1:
            said = 0
        if entry.kind == "hw" and entry.isr >> root & 1:
            said = max(said, entry.hw)
        if entry.kind == "join" and entry.isr >> root & 1 and not chain[number - 1].isr >> root & 1:
            said = max(said, number - 1)
    return said
