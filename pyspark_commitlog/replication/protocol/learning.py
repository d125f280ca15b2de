"""Learn: put decided entries into the journal of another root.

In order, with the same bytes and number, once their files are whole and durable there: each journal is a prefix of the
decided log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from awscrt.checksums import crc32c

from pyspark_commitlog.errors import (
    CorruptionError,
    ReplicaNotAvailableError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    SyncFailedError,
)
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.journal import Journal, Stored
from pyspark_commitlog.journal.anchor import Moment
from pyspark_commitlog.replication.protocol import durable_files
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.roots import Address, check_identity
from pyspark_commitlog.replication.protocol.unit import NeededFile, Unit
from pyspark_commitlog.storage import Clock, FileInfo, NotPutError, Storage
from pyspark_commitlog.storage.clock import Deadline

#: Bytes copied at a time.
_PIECE_BYTES = 8 * 2**20
_TRIES = 5


class Allowance:
    """Deadline of a learning root, and a stop signal."""

    def __init__(self, clock: Clock, seconds: float = math.inf, stopped: Callable[[], bool] = lambda: False) -> None:
        self._clock, self._seconds, self._stopped = clock, seconds, stopped
        self.renew()

    def renew(self) -> None:
        """Restart the deadline, after segments were copied."""
        self._deadline = Deadline(self._clock, self._seconds)

    def is_over(self) -> bool:
        """Whether to leave the rest."""
        return self.is_stopped() or self._deadline.is_over

    def is_stopped(self) -> bool:
        """Whether it was stopped."""
        return self._stopped()


@dataclass(frozen=True, slots=True)
class Replica:
    """A unit at one root.

    `data`: with records, so it has settled what it collected or begins after.
    """

    id: str
    storage: Storage
    unit: Unit
    journal: Journal
    data: bool = False

    @classmethod
    def at(
        cls, root: str, storage: Storage, unit: Unit, check: Callable[[Json, str], object], *, data: bool = False
    ) -> Replica:
        """Return a unit at a root."""
        return cls(root, storage, unit, Journal(storage, unit.directory, unit.kind, unit.sides, check), data)

    def learned(self, decided: Entry | None = None) -> Stored | None:
        """Newest entry learned here, made durable; refuses a gap.

        `decided`: the newest decided entry; nothing is read if only that is missing.
        """
        newest = (decided and self.journal.stands_before(decided)) or self.journal.newest()
        if newest is None:  # a disk that is not mounted is an empty directory
            self.check()
        else:
            self._refuse_gap(newest)
            self.journal.assure(newest)
        return newest

    def _refuse_gap(self, newest: Stored) -> None:
        missing = None if self.unit.whole else self.journal.missing(before=self.data)
        if missing is None:
            return
        files, entry = self.unit.files, newest.entry
        if missing < files.begins(entry) or missing <= files.settled(self.storage, entry.topic_id):
            self.journal.lacks_nothing()
            return
        raise RestoredError(
            f"{self.storage.url}/{self.unit.directory}: entry {missing} is missing, and not settled, below entry "
            f"{newest.sequence}: the root was restored from a copy while others wrote there, or has lost files. "
            f"Nothing of it counts: run `commitlog replicas repair {self.storage.url}`"
        )

    def check(self) -> None:
        """Refuse another root than this one."""
        check_identity(self.storage, Address(self.id, self.storage.url))


def learn(
    source: Replica,
    target: Replica,
    unit: Unit,
    donors: Iterable[Storage],
    newest: Stored,
    least: int = 0,
    allowed: Allowance | None = None,
) -> int:
    """Bring `target` up to a decided entry; return the number learned.

    What was learned before an error stays.

    Args:
        donors: for files, the likeliest first.
        newest: the decided entry; what it voids needs no chunk.
        allowed: at least one entry is learned.

    Raises:
        ReplicaNotAvailableError: an entry is collected; the target has another history; one is a restored copy.
    """
    last, seen = target.learned(newest.entry), Moment.of(target.storage.clock)
    learned = 0 if last is None else last.sequence
    _refuse_shorter(target, learned, least)
    if last is not None:
        _refuse_older(target, last, newest)
    if last is not None and learned > newest.sequence:
        _check_decided(source, target, last)
        return learned
    if learned == newest.sequence and last is not None:
        _check_same(last.entry, newest.entry, target)
        return learned
    source.journal.assure(newest)
    if last is not None and generation(last) < generation(newest) and len(state_of(newest.entry).set.roots) == 1:
        _complete(source, target, unit, donors, last, newest)
    oldest = _begins(source, last) if unit.whole else None
    put: Entry | None = None
    for stored in following(source, last if oldest is None else None, newest, oldest):
        _provide(source, target, unit, donors, stored.entry, newest.entry)
        ours = _put(target, unit, stored.entry, source.journal.bytes_of(stored.entry))
        put = stored.entry if ours else None  # else another process works there too, and may be ahead
        learned = stored.sequence
        if allowed is not None and allowed.is_over():
            break
    if put is not None:  # once for all entries: it takes a look
        _remember(target, put)
    if oldest is not None:
        drop_below(oldest, target)
    elif last is not None and not target.journal.stays(last, seen):  # restored meanwhile, or settled and collected
        target.journal.forget()
        now = target.learned()
        return 0 if now is None else now.sequence
    return learned


def _refuse_shorter(target: Replica, learned: int, least: int) -> None:
    if learned < least:
        raise RestoredError(
            f"root {target.id} at {target.storage.url} ends at entry {learned} and had learned {least}: it was "
            "restored from a copy. Nothing of it counts while it is in sync"
        )


def _begins(source: Replica, last: Stored | None) -> int | None:
    sequences = source.journal.sequences()
    first = 1 if last is None else last.entry.following
    return sequences[0] if sequences and sequences[0] > first else None


def drop_below(oldest: int, target: Replica) -> None:
    """Delete, ascending, all entries below a root's new beginning.

    Readers anchored there look again; what is left is collected.
    """
    for sequence in target.journal.sequences():
        if sequence < oldest:
            target.journal.delete(sequence)


def generation(stored: Stored) -> int:
    """Return the generation of the next deciding set."""
    return state_of(stored.entry).set.generation if stored.entry.is_replicated else 0  # 0: before it had replicas


def _refuse_older(target: Replica, last: Stored, newest: Stored) -> None:
    if generation(last) > generation(newest):
        raise SupersededError(
            f"root {target.id} at {target.storage.url} says that other roots decide since entry {last.sequence}: those "
            "that are asked were given up by `commitlog replicas recover`. Open the log again at this one"
        )


def _complete(
    source: Replica, target: Replica, unit: Unit, donors: Iterable[Storage], last: Stored, newest: Stored
) -> None:
    """Bring chunks of appends learned as void by an abandoned election."""
    settled = state_of(last.entry).hw if last.entry.is_replicated else last.sequence
    for number in target.journal.sequences():
        with suppress(FileNotFoundError):  # collected
            entry = target.journal.read(number).entry
            for needed in unit.files.chunks(entry, newest.entry, source.journal.side):
                try:
                    bring(needed, target.storage, donors)
                except NowhereError:
                    if number > settled:  # settled ones are in segments
                        raise


def _check_decided(source: Replica, target: Replica, last: Stored) -> None:
    """Refuse a metadata root that is behind."""
    try:
        decided = source.journal.read(last.sequence).entry
    except FileNotFoundError as error:
        # one of several may lack a new entry and be whole: callers ask `Places.has_decided`
        raise BehindError(
            f"the metadata root {source.storage.url} has no entry {last.sequence}, which root {target.id} at "
            f"{target.storage.url} has learned: it was restored from a copy. Restore a newer one",
            last.sequence,
        ) from error
    _check_same(last.entry, decided, target)


def _check_same(there: Entry, decided: Entry, target: Replica) -> None:
    if there.write_id != decided.write_id:
        raise ReplicaNotAvailableError(
            f"root {target.id} at {target.storage.url} has another entry {there.sequence} than was decided: its "
            "history is another one (it was restored from a copy). Nothing is copied to it: take it "
            "out, and add it empty"
        )


def following(source: Replica, last: Stored | None, newest: Stored, oldest: int | None) -> Iterator[Stored]:
    """Yield linked entries after `last`, or from `oldest`, to `newest`."""
    before, number = (None, oldest or _first(source)) if last is None else (last.entry, last.entry.following)
    while number <= newest.sequence:
        try:
            stored = newest if number == newest.sequence else source.journal.read(number)
        except FileNotFoundError as error:
            raise CollectedError(
                f"{source.storage.url}: entry {number} is collected, and a replica has not learned it: it lags too far"
            ) from error
        if before is not None and stored.entry.prev != before.write_id:
            raise ReplicaNotAvailableError(
                f"entry {number} at {source.storage.url} does not follow entry {before.sequence} that a replica has: "
                "its history is another one. Take it out, and add it empty"
            )
        yield stored
        before, number = stored.entry, stored.entry.following


def _first(source: Replica) -> int:
    sequences = source.journal.sequences()
    if not sequences or source.journal.read(sequences[0]).entry.prev:
        raise CollectedError(
            f"{source.storage.url}: the first entries are collected: a root that is empty can't begin with what is left"
        )
    return sequences[0]


def _provide(
    source: Replica, target: Replica, unit: Unit, donors: Iterable[Storage], entry: Entry, newest: Entry
) -> None:
    unit.files.prepare(target.storage, entry)
    for needed in unit.files.tables(entry):
        bring(needed, target.storage, chain([source.storage], donors))

    def side(topic_id: str, named: Json) -> bytes:
        return source.journal.side(topic_id, named)

    for needed in unit.files.chunks(entry, newest, side):
        bring(needed, target.storage, donors)


def bring(needed: NeededFile, target: Storage, donors: Iterable[Storage]) -> None:
    """Make a file durable at a root, if need be a copy; raises `NowhereError`."""
    found = _matching_info(needed, target)
    if found is not None:
        if not durable_files.has(target, needed.path, found):  # its writer may have been killed before the sync
            target.sync_file(needed.path)
            target.sync_directory(needed.path.rpartition("/")[0], fresh=True)
            durable_files.add(target, needed.path)
        return
    replace(needed, target, donors)


def replace(needed: NeededFile, target: Storage, donors: Iterable[Storage]) -> None:
    """Copy a file to a root; raise as `bring`."""
    failures = []
    for donor in donors:
        if donor is target:
            continue
        try:
            _copy(needed, donor, target)
            durable_files.add(target, needed.path)
            return
        except (_DonorError, CorruptionError) as error:
            failures.append(str(error))
    raise NowhereError(
        f"{target.url} lacks {needed.path}, and no other root has it: {'; '.join(failures)}. Bring a root back that "
        "may have it; what none has, `commitlog void` gives up"
    )


class SupersededError(ReplicaNotAvailableError):
    """The metadata roots asked were given up."""


class RestoredError(ReplicaNotAvailableError):
    """The learning root is a restored copy."""


class BehindError(ReplicaNotAvailableError):
    """The metadata root lacks entry `number`, learned elsewhere."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class CollectedError(ReplicaNotAvailableError):
    """The next entry to learn is collected."""


class NowhereError(ReplicaNotAvailableError):
    """No root has a needed file."""


class _DonorError(Exception):
    """A donor lacks a file, or does not answer."""


def is_there(needed: NeededFile, storage: Storage) -> bool:
    """Whether a root has a file, by its length."""
    return _matching_info(needed, storage) is not None


def _matching_info(needed: NeededFile, storage: Storage) -> FileInfo | None:
    try:
        found = storage.info(needed.path)
    except FileNotFoundError:
        return None
    return found if found.size == needed.checked.length else None


def is_whole(needed: NeededFile, storage: Storage) -> bool:
    """Whether a root has a file, by its CRC."""
    if not is_there(needed, storage):
        return False
    try:
        for _ in _pieces(needed, storage):
            pass
    except CorruptionError:
        return False
    except _DonorError as error:
        raise ReplicaNotAvailableError(str(error)) from error
    return True


def _copy(needed: NeededFile, donor: Storage, target: Storage) -> None:
    pieces = _pieces(needed, donor)
    first = next(pieces, b"")  # before anything is made
    output = target.create(needed.path)
    with call_on_error(output.discard):
        output.write(first)
        for piece in pieces:
            output.write(piece)
    output.close()


def _pieces(needed: NeededFile, donor: Storage) -> Iterator[bytes]:
    position, crc, checked = 0, 0, needed.checked
    while position < checked.length:
        try:
            # not mapped: a bad sector would be a SIGBUS
            piece = donor.read(needed.path, position, min(_PIECE_BYTES, checked.length - position))
        except (OSError, StorageError) as error:
            raise _DonorError(f"{donor.url}: {error}") from error
        if not len(piece):
            break
        crc, position = crc32c(piece, crc), position + len(piece)
        if position < checked.length:
            yield piece
    if (position, crc) != (checked.length, checked.crc):
        raise CorruptionError(
            f"{donor.url}/{needed.path}: {position} bytes with CRC-32C {crc:08x}, expected {checked.length} with "
            f"{checked.crc:08x}"
        )
    if checked.length:
        yield piece


def put_bytes(target: Replica, unit: Unit, entry: Entry, data: bytes) -> None:
    """Put a decided entry's bytes, until that is certain."""
    if _put(target, unit, entry, data):
        _remember(target, entry)


def _remember(target: Replica, entry: Entry) -> None:
    try:
        target.journal.learned(entry)
    except OSError:  # collected, or away: the next look says which
        target.journal.forget()


def _put(target: Replica, unit: Unit, entry: Entry, data: bytes) -> bool:
    path = f"{unit.directory}/{paths.entry_name(entry.sequence)}"
    tries = 0
    while True:
        tries += 1
        try:
            target.storage.put_if_absent(path, data)
            return True
        except FileExistsError:
            with suppress(FileNotFoundError):  # another process learned, settled and collected it
                _check_same(target.journal.read(entry.sequence).entry, entry, target)
            target.storage.sync_directory(unit.directory, fresh=True)
            return False
        except (NotPutError, StorageFullError, StorageDeniedError, SyncFailedError):
            raise
        except OSError:
            if tries == _TRIES:
                raise
