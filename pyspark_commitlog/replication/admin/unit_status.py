"""Status of a unit: roots that answer, progress of replicas. Read-only."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.learning import Replica
from pyspark_commitlog.replication.protocol.replica_state import ReplicaState
from pyspark_commitlog.replication.protocol.roots import Address, Roots, check_identity
from pyspark_commitlog.replication.protocol.rules import visible
from pyspark_commitlog.replication.protocol.unit import Unit
from pyspark_commitlog.storage.process import share_out

#: Missing entries that are read at most; the bytes of more are estimated by these.
_READ = 64
#: Roots that are asked at a time.
_AT_ONCE = 4
#: Retries while the newest entry moves on before the one at its high watermark is read.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Lacking:
    """Entries that a root has not learned.

    Attributes:
        size_bytes: with chunks and tables; None if collected.
        age_ms: of the first one; None if collected.
    """

    entries: int = 0
    size_bytes: int | None = 0
    age_ms: int | None = 0


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Status of a replica; with a `fault` the rest is unknown.

    `head`: the newest entry learned, None at an empty root; `visible`: the newest that readers see.
    """

    address: Address
    head: Stored | None = None
    visible: Stored | None = None
    lacks: Lacking | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """Status of a unit at all its roots, by the newest entry.

    `replicas` are in order of assignment; `metadata` has why each root does not answer.
    """

    state: ReplicaState
    leader: Address
    replicas: tuple[ReplicaStatus, ...]
    metadata: tuple[tuple[Address, str | None], ...]


def fault_at(roots: Roots, address: Address) -> str | None:
    """Return why a root does not answer, or None."""
    try:
        check_identity(roots.open(address.id), address)
    except (CommitLogError, OSError) as error:
        return str(error)
    return None


def look(places: Places) -> UnitStatus:
    """Return a unit's status, by the newest entry at any root."""
    listed = places.roots.listed()
    heads, faults = _heads(places, [*listed.data, *listed.metadata])
    if not heads:
        raise ReplicaNotAvailableError(f"{places.unit.directory}: no root answers: {'; '.join(faults.values())}")
    source = max(heads, key=lambda root: heads[root].sequence)  # each journal is a prefix of the decided log
    newest = heads[source]
    state = state_of(newest.entry)
    replicas = [_replica(places, address, heads, faults, source) for address in places.addresses(state)]
    metadata = tuple((address, faults.get(address.id)) for address in listed.metadata)
    leader = listed.address(state.leader) or Address(state.leader, "a root that is not listed")
    return UnitStatus(state, leader, tuple(replicas), metadata)


def _heads(places: Places, addresses: list[Address]) -> tuple[dict[str, Stored], dict[str, str]]:
    heads, faults = dict[str, Stored](), dict[str, str]()

    def read_head(address: Address) -> None:
        try:
            check_identity(places.roots.open(address.id), address)
            newest = places.at(address.id).journal.newest()
            if newest is not None:
                heads[address.id] = newest
        except (CommitLogError, OSError) as error:
            faults[address.id] = str(error)

    share_out(read_head, list({address.id: address for address in addresses}.values()), _AT_ONCE)
    return heads, faults


def _replica(
    places: Places, address: Address, heads: dict[str, Stored], faults: dict[str, str], source: str
) -> ReplicaStatus:
    if address.id in faults:
        return ReplicaStatus(address, fault=faults[address.id])
    try:
        head, visible_entry = _head_and_visible(places.unit, places.at(address.id), heads.get(address.id))
        lacks = _lacking(places.at(source), places.unit, heads[source], head)
    except (CommitLogError, OSError) as error:
        return ReplicaStatus(address, fault=str(error))
    return ReplicaStatus(address, head, visible_entry, lacks)


def _head_and_visible(unit: Unit, replica: Replica, head: Stored | None) -> tuple[Stored | None, Stored | None]:
    for _ in range(_TRIES):
        if head is None or not head.entry.is_replicated:  # written before the unit had replicas: all of it is visible
            return head, head
        if (until := visible(state_of(head.entry))) >= head.sequence:
            return head, head
        try:
            return head, replica.journal.read(until)
        except FileNotFoundError:  # the journal begins later, or it is collected: there is a newer head
            settled = unit.files.settled(replica.storage, head.entry.topic_id)
            if until < settled <= head.sequence:
                return head, replica.journal.read(settled)
            head = replica.journal.newest()
    raise CorruptionError(f"{replica.storage.url}: the entry at the high watermark is missing")


def _lacking(source: Replica, unit: Unit, newest: Stored, head: Stored | None) -> Lacking:
    before = head.sequence if head is not None else source.journal.sequences()[0] - 1
    entries = newest.sequence - before
    if entries <= 0:
        return Lacking()
    some = min(entries, _READ)
    sizes = list[int]()
    since_ms: int | None = None
    for place in range(some):
        try:
            stored = source.journal.timed(source.journal.read(before + 1 + place * entries // some))
            sizes.append(_size(source, unit, stored, newest))
            since_ms = stored.info.modified_ms if place == 0 else since_ms
        except FileNotFoundError:  # collected
            continue
    age_ms = None if since_ms is None else max(0, source.storage.now_ms() - since_ms)
    return Lacking(entries, sum(sizes) * entries // len(sizes) if sizes else None, age_ms)


def _size(source: Replica, unit: Unit, stored: Stored, newest: Stored) -> int:
    files = [*unit.files.tables(stored.entry), *unit.files.chunks(stored.entry, newest.entry, source.journal.side)]
    return stored.info.size + sum(file.checked.length for file in files)
