"""Births: a metadata root notes each register that begins there, so that a copy of the root is recognised.

An empty register looks the same at a root that has voted for nothing, and at a copy of before it voted. So a birth is
put before a register's first record; it names the file of the birth before it, by what storage says of that. A copy of
the root has other files, and one that was restored in place lacks the newest birth, and has an older one as a new file.
"""

from __future__ import annotations

from typing import Annotated
from weakref import WeakKeyDictionary

from msgspec import Meta

from pyspark_commitlog.errors import OutcomeUnknownError, ReplicaNotAvailableError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.format.shape import Shape, check
from pyspark_commitlog.journal import Draft, Journal, ReaderState, Slot, Stored, no_sides
from pyspark_commitlog.storage import Storage


class _BirthShape(Shape):
    """What a birth holds beyond its envelope."""

    before: Annotated[str, Meta(max_length=1000)]


def _check_birth(body: Json, where: str) -> None:
    check(body, _BirthShape, where)


class Births:
    """The births at a metadata root. Not safe for use by several threads at once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._journal = Journal(storage, paths.BIRTHS, "births", no_sides, _check_birth)
        self._journal.is_patient = False

    def refuse_copy(self) -> None:
        """Refuse a root that is a copy of the one that it was.

        Raises:
            ReplicaNotAvailableError: it is; what it lacks says nothing.
            CommitLogError, OSError: it does not answer, or a birth is damaged.
        """
        checked = _checked.get(self._storage)
        if checked is not None:
            self._journal.go_on_from(checked)
        stored = self._journal.newest()
        if stored is None or (checked is not None and stored == checked.anchor):
            return  # roots that an earlier release made have none until a register begins
        refuse_copy(self._storage, self._journal, paths.BIRTHS, stored)
        state = self._journal.reader_state()
        if state is not None and state.anchor == stored:
            _checked[self._storage] = state

    def put(self) -> None:
        """Put a birth, two where there is none: the second one names the first.

        Raises:
            ReplicaNotAvailableError: the root is a copy.
            CommitLogError, OSError: it does not answer, or is not known to have put it.
        """
        self._storage.make_directory(paths.BIRTHS)
        for _ in range(2 if self._journal.newest() is None else 1):
            if self._journal.append(self._plan).stored is None:
                raise OutcomeUnknownError(f"{self._storage.url}/{paths.BIRTHS}: it is not known what was put")
        self._journal.trim()

    def _plan(self, base: Stored | None, slot: Slot) -> Draft[None]:
        if base is None:
            return Draft("birth", "", {"before": ""}, result=None)
        refuse_copy(self._storage, self._journal, paths.BIRTHS, base)
        return Draft("birth", "", {"before": identity(self._storage, paths.BIRTHS, base.sequence)}, result=None)


#: The newest birth of each root that was checked last, as that very file: the one before it is not looked at again.
_checked: WeakKeyDictionary[Storage, ReaderState] = WeakKeyDictionary()


def identity(storage: Storage, directory: str, sequence: int) -> str:
    """Return storage's identity of a record's file."""
    return str(storage.info(f"{directory}/{paths.entry_name(sequence)}").identity)


def refuse_copy(storage: Storage, journal: Journal, directory: str, stored: Stored) -> None:
    """Refuse a root where a record names another file before it than is there.

    Raises:
        ReplicaNotAvailableError: it was restored from a copy.
    """
    before = stored.entry.body["before"]
    if not before:
        return
    try:
        found = identity(storage, directory, stored.sequence - 1)
    except FileNotFoundError:
        if journal.newest() != stored:  # others went on, and trimmed
            return
        found = "nothing"
    if found != before:
        raise ReplicaNotAvailableError(
            f"{storage.url}/{directory}: record {stored.sequence} follows another file {stored.sequence - 1} than "
            "is there: the root was restored from a copy, and may have forgotten what it accepted. It does not count: "
            f"have an empty place replace it (`commitlog replicas replace-metadata ROOT {storage.url} NEW`)"
        )
