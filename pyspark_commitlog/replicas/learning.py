"""Learn: put what was decided into the journal of another root, when all that it needs is there.

An entry is put with the very same bytes and number, after the one before it, and only when its side files and chunks
lie there whole and durable. So each root's journal is a beginning of the one order of decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from awscrt.checksums import crc32c

from pyspark_commitlog.anchor import Moment
from pyspark_commitlog.errors import (
    CorruptionError,
    ReplicaNotAvailableError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    SyncFailedError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.journal import Journal, Stored
from pyspark_commitlog.replicas import durable_files
from pyspark_commitlog.replicas.entry_fields import state_of
from pyspark_commitlog.replicas.roots import Address, check_identity
from pyspark_commitlog.replicas.unit import NeededFile, Unit
from pyspark_commitlog.storage import Clock, FileInfo, NotPutError, Storage

#: Bytes that are copied at a time.
_PIECE_BYTES = 8 * 2**20
_TRIES = 5


class Allowance:
    """How long a root may learn: for so many seconds, and until that is stopped."""

    def __init__(self, clock: Clock, seconds: float = math.inf, stopped: Callable[[], bool] = lambda: False) -> None:
        self._clock, self._seconds, self._stopped = clock, seconds, stopped
        self.renew()

    def renew(self) -> None:
        """Begin again: segments were copied, which takes as long as it takes."""
        self._until = self._clock.monotonic() + self._seconds

    def is_over(self) -> bool:
        """Return whether to leave the rest."""
        return self.is_stopped() or self._clock.monotonic() >= self._until

    def is_stopped(self) -> bool:
        """Return whether it was stopped, whatever time there is left."""
        return self._stopped()


@dataclass(frozen=True, slots=True)
class Replica:
    """A unit at one root: the root's id and storage, the unit, and its journal there.

    ``data``: it holds the records, too, so what it has collected, or begins after, it has settled.
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
        """Return the newest entry that this root has learned, made safe from power loss: what counts it has to.

        Args:
            decided: what is to be learned; where only that is lacking, nothing is read.

        Raises:
            ReplicaNotAvailableError: it lacks entries before that one.
            CommitLogError, OSError: the root does not answer, or the entry is damaged.
        """
        newest = (decided and self.journal.stands_before(decided)) or self.journal.newest()
        if newest is None:  # a disk that is not mounted is an empty directory
            self.check()
        else:
            self._refuse_gap(newest)
            self.journal.assure(newest)
        return newest

    def _refuse_gap(self, newest: Stored) -> None:
        """Refuse a root that lacks what it has not settled: a process put an entry there while it was restored."""
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
            f"Nothing of it counts: run `commitlog repair {self.storage.url}`"
        )

    def check(self) -> None:
        """Refuse what is not the root that it was.

        Raises:
            ReplicaNotAvailableError: it does not answer, or another root is there.
        """
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
    """Have ``target`` learn all up to an entry that is known to be decided; return the number that it has learned.

    Args:
        source: where the entries are decided.
        target: the root that learns.
        unit: what is learned.
        donors: roots that may have chunks and side files, the likeliest first.
        newest: the entry; what it calls void needs no chunk.
        least: what entries say that the target has learned already.
        allowed: how long that may take; None: as long as it takes. One entry at least is learned.

    Raises:
        ReplicaNotAvailableError: an entry that it lacks is collected already, or what it has is of another history; or
            it was restored from a copy; or the source was.
        CommitLogError, OSError: what it has learned by then stays.
    """
    last, seen = target.learned(newest.entry), Moment.of(target.storage.clock)
    learned = 0 if last is None else last.sequence
    if learned < least:
        raise RestoredError(
            f"root {target.id} at {target.storage.url} ends at entry {learned} and had learned {least}: it was "
            "restored from a copy. Nothing of it counts while it is in sync"
        )
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
        put = stored.entry if ours else None  # another process is at work there, too, and may be ahead
        learned = stored.sequence
        if allowed is not None and allowed.is_over():
            break
    if put is not None:  # once for all: it takes a look
        _remember(target, put)
    if oldest is not None:
        drop_below(oldest, target)
    elif last is not None and not target.journal.stays(last, seen):  # restored meanwhile, or settled and collected
        target.journal.forget()
        now = target.learned()
        return 0 if now is None else now.sequence
    return learned


def _begins(source: Replica, last: Stored | None) -> int | None:
    """Return the oldest entry that is left, where those are collected that a root would learn next; else None."""
    sequences = source.journal.sequences()
    first = 1 if last is None else last.entry.following
    return sequences[0] if sequences and sequences[0] > first else None


def drop_below(oldest: int, target: Replica) -> None:
    """Delete, ascending, what a root had before what it went on with: readers that go by one look again.

    What is put first is whole; where this is cut off, the older ones are collected as all are.
    """
    for sequence in target.journal.sequences():
        if sequence < oldest:
            target.journal.delete(sequence)


def generation(stored: Stored) -> int:
    """Return which set of metadata roots decides after an entry: one of before is not gone on from."""
    return state_of(stored.entry).set.generation if stored.entry.features else 0  # it has got replicas since


def _refuse_older(target: Replica, last: Stored, newest: Stored) -> None:
    """Refuse to go on with a history that was given up where the target has learned so."""
    if generation(last) > generation(newest):
        raise SupersededError(
            f"root {target.id} at {target.storage.url} says that other roots decide since entry {last.sequence}: those "
            "that are asked were given up by `commitlog replicas recover`. Open the log again at this one"
        )


def _complete(
    source: Replica, target: Replica, unit: Unit, donors: Iterable[Storage], last: Stored, newest: Stored
) -> None:
    """Have the target's own appends whole that live by the newest entry.

    It may have learned them as void, so without their chunks, by an election that was given up with the metadata.
    """
    settled = state_of(last.entry).hw if last.entry.features else last.sequence
    for number in target.journal.sequences():
        with suppress(FileNotFoundError):  # collected
            entry = target.journal.read(number).entry
            for needed in unit.files.chunks(entry, newest.entry, source.journal.side):
                try:
                    bring(needed, target.storage, donors)
                except NowhereError:
                    if number > settled:  # below it is in segments
                        raise


def _check_decided(source: Replica, target: Replica, last: Stored) -> None:
    """Refuse a metadata root that lacks what others have learned; else the entry was decided a moment ago.

    One of several may lack it and be whole: most of the others have decided it since. ``Places.has_decided`` asks them.
    """
    try:
        decided = source.journal.read(last.sequence).entry
    except FileNotFoundError as error:
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
    """Yield the entries after ``last``, or from ``oldest`` on, up to ``newest``, each linked to the one before it."""
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
    """Return the number of the first entry, which nothing follows: a root begins with it.

    Raises:
        ReplicaNotAvailableError: it is collected.
    """
    sequences = source.journal.sequences()
    if not sequences or source.journal.read(sequences[0]).entry.prev:
        raise CollectedError(
            f"{source.storage.url}: the first entries are collected: a root that is empty can't begin with what is left"
        )
    return sequences[0]


def _provide(
    source: Replica, target: Replica, unit: Unit, donors: Iterable[Storage], entry: Entry, newest: Entry
) -> None:
    """Have all that an entry needs at the target, durable."""
    unit.files.prepare(target.storage, entry)
    for needed in unit.files.tables(entry):
        bring(needed, target.storage, chain([source.storage], donors))

    def side(topic_id: str, named: Json) -> bytes:
        return source.journal.side(topic_id, named)

    for needed in unit.files.chunks(entry, newest, side):
        bring(needed, target.storage, donors)


def bring(needed: NeededFile, target: Storage, donors: Iterable[Storage]) -> None:
    """Have a file at a root, durable, copied from the first of others that has it whole.

    Raises:
        NowhereError: none has it.
        CommitLogError, OSError: it can't be written.
    """
    found = _matching_info(needed, target)
    if found is not None:
        if not durable_files.has(
            target, needed.path, found
        ):  # the process that put it may have been killed before it could
            target.sync_file(needed.path)
            target.sync_directory(needed.path.rpartition("/")[0], fresh=True)
            durable_files.add(target, needed.path)
        return
    replace(needed, target, donors)


def replace(needed: NeededFile, target: Storage, donors: Iterable[Storage]) -> None:
    """Copy a file to a root from the first of others that has it whole, whatever is there; raises as ``bring``."""
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
    """The metadata roots that were asked were given up: a root has learned of others."""


class RestoredError(ReplicaNotAvailableError):
    """The root that was to learn was restored from a copy: nothing of it counts."""


class BehindError(ReplicaNotAvailableError):
    """The metadata root that is read lacks an entry, ``number``, that another root has learned."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class CollectedError(ReplicaNotAvailableError):
    """What a root has to learn next is collected."""


class NowhereError(ReplicaNotAvailableError):
    """No root has a file that another one needs."""


class _DonorError(Exception):
    """A root has no such file, or does not answer."""


def is_there(needed: NeededFile, storage: Storage) -> bool:
    """Return whether a root has a file in the length that was named."""
    return _matching_info(needed, storage) is not None


def _matching_info(needed: NeededFile, storage: Storage) -> FileInfo | None:
    try:
        found = storage.info(needed.path)
    except FileNotFoundError:
        return None
    return found if found.size == needed.checked.length else None


def is_whole(needed: NeededFile, storage: Storage) -> bool:
    """Return whether a root has a file whole, by its CRC.

    Raises:
        ReplicaNotAvailableError: the root does not answer.
    """
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
    """Copy a file; it appears when it is whole.

    Raises:
        _DonorError: the donor does not have it, or does not answer.
        CorruptionError: the donor's bytes are not what was named.
    """
    pieces = _pieces(needed, donor)
    first = next(pieces, b"")  # before anything is made
    output = target.create(needed.path)
    try:
        output.write(first)
        for piece in pieces:
            output.write(piece)
    except BaseException:
        output.discard()
        raise
    output.close()


def _pieces(needed: NeededFile, donor: Storage) -> Iterator[bytes]:
    """Yield a file's bytes; raises as ``_copy`` does, at the end for bytes that are not what was named.

    They are not mapped: a bad sector would be a SIGBUS.
    """
    position, crc, checked = 0, 0, needed.checked
    while position < checked.length:
        try:
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
    """Put the very bytes of a decided entry at the target, until the outcome is certain.

    Raises:
        ReplicaNotAvailableError: another entry has its number there.
        CommitLogError, OSError: it may be there or not.
    """
    if _put(target, unit, entry, data):
        _remember(target, entry)


def _remember(target: Replica, entry: Entry) -> None:
    """Remember an entry as the newest there, which was just put; it counts without that, too."""
    try:
        target.journal.learned(entry)
    except OSError:  # collected, or the root does not answer: the next look says which
        target.journal.forget()


def _put(target: Replica, unit: Unit, entry: Entry, data: bytes) -> bool:
    """Put the bytes of a decided entry; return whether it was not there; raises as ``put_bytes``."""
    path = f"{unit.directory}/{paths.entry_name(entry.sequence)}"
    tries = 0
    while True:
        tries += 1
        try:
            target.storage.put_if_absent(path, data)
            return True
        except FileExistsError:
            with suppress(FileNotFoundError):  # learned by another, settled and collected
                _check_same(target.journal.read(entry.sequence).entry, entry, target)
            target.storage.sync_directory(unit.directory, fresh=True)
            return False
        except (NotPutError, StorageFullError, StorageDeniedError, SyncFailedError):
            raise
        except OSError:
            if tries == _TRIES:
                raise
