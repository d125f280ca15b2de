"""Ballots of acceptors, and what several registers prove decided; pure.

CASPaxos: each change of a register is a round of Paxos (docs/explanation/design/replication.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple


class Ballot(NamedTuple):
    """Number and id of an attempt, for one value."""

    number: int
    id: str


#: Below every ballot.
NO_BALLOT = Ballot(0, "")


class Value(NamedTuple):
    """Number and write id of an entry, if any."""

    number: int
    write_id: str


NO_VALUE = Value(0, "")


@dataclass(frozen=True, slots=True)
class Register:
    """State of an acceptor; `ended`: nothing follows the value in this set."""

    promised: Ballot = NO_BALLOT
    accepted: Ballot = NO_BALLOT
    value: Value = NO_VALUE
    ended: bool = False


def promise(register: Register, ballot: Ballot) -> Register | None:
    """Return the register with a ballot promised, if highest."""
    return replace(register, promised=ballot) if ballot > register.promised else None


def accept(
    register: Register, ballot: Ballot, value: Value, *, ahead: Ballot = NO_BALLOT, ended: bool = False
) -> Register | None:
    """Return the register with a value accepted and `ahead` promised.

    None if a higher ballot was promised.
    """
    return Register(max(ballot, ahead), ballot, value, ended) if ballot >= register.promised else None


def majority(many: int) -> int:
    """Size of a majority."""
    return many // 2 + 1


def highest(registers: Iterable[Register]) -> Register:
    """Register whose value a proposer takes."""
    return max(registers, key=lambda register: register.accepted)


def decided(registers: Sequence[Register], many: int) -> Register | None:
    """Register that a majority of `many` shows under one ballot.

    Under two ballots a value is not decided: a ballot between them may win.
    """
    for register in registers:
        if sum(other.accepted == register.accepted for other in registers) >= majority(many):
            return register
    return None


def following(ballot: Ballot, attempt: str) -> Ballot:
    """Return an attempt's ballot to promise ahead."""
    return Ballot(ballot.number + 1, attempt)


def ballot_above(registers: Iterable[Register], attempt: str) -> Ballot:
    """Return an attempt's ballot above all promised ones."""
    return Ballot(1 + max((register.promised.number for register in registers), default=0), attempt)
