"""Ballots: what an acceptor may promise and accept, and what several registers show to be decided; pure.

CASPaxos: a register holds the newest decided entry, or one that is being decided, and each change of it is a round of
Paxos. docs/explanation/design/replication.md has the rules, and which interleaving forces each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple


class Ballot(NamedTuple):
    """A ballot: a number, and the id of the attempt that it stands for. It carries one value."""

    number: int
    id: str


#: Below every ballot.
NO_BALLOT = Ballot(0, "")


class Value(NamedTuple):
    """An entry, by its number and write id; 0 and "" for none."""

    number: int
    write_id: str


NO_VALUE = Value(0, "")


@dataclass(frozen=True, slots=True)
class Register:
    """What an acceptor holds: the highest ballot that it has promised, the one it has accepted, and its value.

    ``ended``: the value is the last one of its set of metadata roots. It may be decided again, and nothing after it.
    """

    promised: Ballot = NO_BALLOT
    accepted: Ballot = NO_BALLOT
    value: Value = NO_VALUE
    ended: bool = False


def promise(register: Register, ballot: Ballot) -> Register | None:
    """Return the register that has promised a ballot; None where one as high was promised."""
    return replace(register, promised=ballot) if ballot > register.promised else None


def accept(
    register: Register, ballot: Ballot, value: Value, *, ahead: Ballot = NO_BALLOT, ended: bool = False
) -> Register | None:
    """Return the register that has accepted a value, and promised ``ahead``; None where a higher one was promised."""
    return Register(max(ballot, ahead), ballot, value, ended) if ballot >= register.promised else None


def majority(many: int) -> int:
    """Return how many of so many acceptors are a majority."""
    return many // 2 + 1


def highest(registers: Iterable[Register]) -> Register:
    """Return the register with the highest accepted ballot: a proposer that was promised by these takes its value."""
    return max(registers, key=lambda register: register.accepted)


def decided(registers: Sequence[Register], many: int) -> Register | None:
    """Return a register whose value is decided: a majority of ``many`` acceptors shows it under one ballot.

    The same value under two ballots proves nothing: a third acceptor's ballot between them wins.
    """
    for register in registers:
        if sum(other.accepted == register.accepted for other in registers) >= majority(many):
            return register
    return None


def following(ballot: Ballot, attempt: str) -> Ballot:
    """Return the ballot of an attempt that follows another ballot: its accepts promise it."""
    return Ballot(ballot.number + 1, attempt)


def ballot_above(registers: Iterable[Register], attempt: str) -> Ballot:
    """Return a ballot of an attempt above all that these have promised."""
    return Ballot(1 + max((register.promised.number for register in registers), default=0), attempt)
