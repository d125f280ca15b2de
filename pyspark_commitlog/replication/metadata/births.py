"""Births: a metadata root's journal of the registers begun there.

An empty register looks alike at a root that never voted and at an older copy. So a birth, which names the identity of
the previous one's file, precedes a register's first record: a copy has other files, or lacks the newest birth.
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
    before: Annotated[str, Meta(max_length=1000)]


def _check_birth(body: Json, where: str) -> None:
    check(body, _BirthShape, where)


class Births:
    """Births at a metadata root. Not thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._journal = Journal(storage, paths.BIRTHS, "births", no_sides, _check_birth)
        self._journal.is_patient = False

    def refuse_copy(self) -> None:
        """Refuse a restored copy: what it lacks proves nothing."""
        checked = _checked.get(self._storage)
        if checked is not None:
            self._journal.go_on_from(checked)
        stored = self._journal.newest()
        if stored is None or (checked is not None and stored == checked.anchor):
            return  # roots made by an earlier release have none until a register begins
        refuse_copy(self._storage, self._journal, paths.BIRTHS, stored)
        state = self._journal.reader_state()
        if state is not None and state.anchor == stored:
            _checked[self._storage] = state

    def put(self) -> None:
        """Put a birth; at first two, the second naming the first."""
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


#: The newest birth checked at each root, as that very file: the one before it is not looked at again.
_checked: WeakKeyDictionary[Storage, ReaderState] = WeakKeyDictionary()


def identity(storage: Storage, directory: str, sequence: int) -> str:
    """Return the storage's identity of a record's file."""
    return str(storage.info(f"{directory}/{paths.entry_name(sequence)}").identity)


def refuse_copy(storage: Storage, journal: Journal, directory: str, stored: Stored) -> None:
    """Refuse a root whose record names another predecessor: a restored copy."""
    before = stored.entry.body["before"]
    if not before:
        return
    try:
        found = identity(storage, directory, stored.sequence - 1)
    except FileNotFoundError:
        if journal.newest() != stored:  # another process went on, and trimmed
            return
        found = "nothing"
    if found != before:
        raise ReplicaNotAvailableError(
            f"{storage.url}/{directory}: record {stored.sequence} follows another file {stored.sequence - 1} than "
            "is there: the root was restored from a copy, and may have forgotten what it accepted. It does not count: "
            f"have an empty place replace it (`commitlog replicas replace-metadata ROOT {storage.url} NEW`)"
        )
