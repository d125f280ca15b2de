"""Roots that belong together: each lists all in `replicas/journal`.

A root is known by the id in its marker, not its URL (rule 11). Lists order themselves (`Listed.order`), as a copy
sets a journal back. A list counts once the first metadata root has it; a change goes to that root first,
or right after added ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Annotated

from msgspec import Meta

from pyspark_commitlog.errors import (
    CommitLogError,
    ConflictError,
    CorruptionError,
    ReplicaNotAvailableError,
    UsageError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.format.marker import MARKER_BYTES, decode_marker
from pyspark_commitlog.format.shape import Id, Shape, Text, Whole, check, damage
from pyspark_commitlog.journal import Draft, Journal, Slot, Stored, Unchanged, no_sides
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.deadline_storage import with_deadlines
from pyspark_commitlog.storage.per_process import PerProcess

#: Roots that belong together, at most.
MAX_ROOTS = 16
#: Between two requests to others for an unknown root.
_ASKED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Address:
    """Id and URL of a root."""

    id: str
    url: str

    def __str__(self) -> str:
        return f"{self.url} (root {self.id})"


@dataclass(frozen=True, slots=True)
class Listed:
    """Roots that belong together.

    Attributes:
        metadata: roots that decide, in the `generation`-th set.
        former: the set before, while it may decide units.
        recoveries: counts runs of `recover`.
        version: counts lists since then; may skip one.
    """

    data: tuple[Address, ...]
    metadata: tuple[Address, ...]
    generation: int = 0
    former: tuple[Address, ...] = ()
    recoveries: int = 0
    version: int = 1

    @property
    def order(self) -> tuple[int, int]:
        """Sort key, higher for a later list of data roots."""
        return self.recoveries, self.version

    @property
    def rank(self) -> tuple[int, int, bool]:
        """Sort key, higher for a newer metadata set."""
        return self.recoveries, self.generation, not self.former

    def followed_by(
        self,
        data: Iterable[Address],
        metadata: Iterable[Address],
        seen: Iterable[Listed] = (),
        *,
        recovers: bool = False,
    ) -> Listed:
        """Next list, with these roots, if they differ.

        `seen`: lists of an interrupted run, to follow too. `recovers`: the metadata roots are given up.
        """
        every = (self, *seen)
        newest = max(every, key=lambda each: each.order)
        after = replace(newest, data=tuple(data), metadata=tuple(metadata))
        if after == newest:
            return newest
        if recovers:
            generation = 1 + max(each.generation for each in every)
            return replace(after, recoveries=newest.recoveries + 1, version=1, generation=generation, former=())
        return replace(after, version=newest.version + 1)

    def deciding(self) -> tuple[str, ...]:
        """Ids of the metadata roots."""
        return tuple(each.id for each in self.metadata)

    def decided_by(self, other: Listed) -> Listed:
        """Return this list with another's metadata roots."""
        return replace(self, metadata=other.metadata, generation=other.generation, former=other.former)

    def held_by(self, other: Listed) -> Listed:
        """Return this list with another's data roots."""
        return replace(self, data=other.data, recoveries=other.recoveries, version=other.version)

    def address(self, root: str) -> Address | None:
        """Return a root's address, if listed."""
        return next((each for each in (*self.data, *self.metadata, *self.former) if each.id == root), None)

    def every(self) -> tuple[Address, ...]:
        """All roots once."""
        return tuple({each.id: each for each in (*self.data, *self.metadata)}.values())

    def deciding_first(self) -> tuple[Address, ...]:
        """All roots once, in the order to change lists."""
        return tuple({each.id: each for each in (*self.metadata, *self.data)}.values())

    def urls(self) -> list[str]:
        """All URLs."""
        return [each.url for each in self.every()]

    def to_json(self) -> Json:
        """JSON form."""
        return {
            "data": [[each.id, each.url] for each in self.data],
            "metadata": [[each.id, each.url] for each in self.metadata],
            "generation": self.generation,
            "former": [[each.id, each.url] for each in self.former],
            "recoveries": self.recoveries,
            "version": self.version,
        }

    @classmethod
    def from_json(cls, body: Json) -> Listed:
        """List of a JSON form."""
        data, metadata, former = (tuple(Address(*row) for row in body[name]) for name in ("data", "metadata", "former"))
        return cls(data, metadata, body["generation"], former, body["recoveries"], body["version"])


class _RootsEntry(Shape):
    data: Annotated[tuple[tuple[Id, Text], ...], Meta(min_length=1, max_length=MAX_ROOTS)]
    metadata: Annotated[tuple[tuple[Id, Text], ...], Meta(min_length=1, max_length=MAX_ROOTS)]
    generation: Whole
    former: Annotated[tuple[tuple[Id, Text], ...], Meta(max_length=MAX_ROOTS)]
    recoveries: Whole
    version: Whole


def check_list(body: Json, where: str) -> None:
    """Check the body of an entry that lists roots."""
    found = check(body, _RootsEntry, where)
    for name, rows in (("data", found.data), ("metadata", found.metadata)):
        if len({row[0] for row in rows}) < len(rows):
            raise damage(where, name, list(rows), "each root once")


class Roots:
    """Roots that a root lists; opens each once. Thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._journal = Journal(storage, paths.REPLICAS_JOURNAL, "replicas", no_sides, check_list)
        self._listed: Listed | None = None
        self._compared = False
        self._asked = float("-inf")
        self._own: str | None = None
        self._opened: dict[str, Storage] = {}
        self._lock = PerProcess(Lock)

    @classmethod
    def of(cls, storage: Storage) -> Roots:
        """Return a root's `Roots`, one per process."""
        with _lock.value:
            if not isinstance(storage.together, cls):
                storage.together = cls(storage)
            return storage.together

    def listed(self) -> Listed:
        """Return this root's list; raise if it is missing or damaged."""
        with self._lock.value:
            if self._listed is None:
                stored = self._journal.newest()
                if stored is None:
                    raise CorruptionError(
                        f"{self._storage.url}/{paths.REPLICAS_JOURNAL}: the list of the roots that belong together is "
                        "missing: copy that directory from another of them"
                    )
                self._listed = Listed.from_json(stored.entry.body)
            return self._listed

    def compare(self, *, again: bool = False) -> bool:
        """Take a newer list from others; return whether there was one.

        Refuse a root that was given up, and has an old list.
        """
        if self._compared and not again:
            return False
        listed = newest = self.listed()
        for address in listed.every():
            if address.url == self._storage.url:
                continue
            try:
                theirs = list_at(with_deadlines(self._storage.peer(address.url)))
            except (CommitLogError, OSError):  # it is asked again when it is needed
                continue
            if theirs is not None:
                newest = self._newer(newest, theirs)
        if newest != listed:
            self._take(newest)
        self._compared = True
        return newest != listed

    def _newer(self, known: Listed, theirs: Listed) -> Listed:
        after = known.held_by(theirs) if self._follows(theirs, known) else known
        return after.decided_by(theirs) if theirs.rank > known.rank else after

    def _follows(self, theirs: Listed, known: Listed) -> bool:
        # of two successors of one list the metadata root took theirs: others ask no root that it does not list
        if theirs.order == known.order and theirs.data != known.data:
            return not self._is_in(theirs)
        return theirs.order > known.order

    def _take(self, listed: Listed) -> None:
        if not self._is_in(listed):
            raise ReplicaNotAvailableError(
                f"{self._storage.url} was given up: the roots that belong together are {', '.join(listed.urls())}. "
                "Nothing is decided here any more; delete it, or add it as an empty root"
            )
        with self._lock.value:
            self._listed = listed

    def _is_in(self, listed: Listed) -> bool:
        """Whether a list has this root, or it is away."""
        ids = [each.id for each in listed.every()]
        with suppress(CommitLogError, OSError):
            if self.own_id() not in ids:
                self._own = None  # it may have been taken out, emptied and added again since it was opened
            return self.own_id() in ids
        return True

    def change(self, listed: Listed) -> None:
        """Put a new list at this root, if it differs.

        Raises:
            ConflictError: its list does not precede this one: nothing was changed.
        """
        self._storage.make_directory(paths.REPLICAS_JOURNAL)

        def plan(base: Stored | None, slot: Slot) -> Draft[Listed] | Unchanged[Listed]:
            known, after = None if base is None else Listed.from_json(base.entry.body), listed
            if known is not None and known.rank > after.rank:  # replaced since it was read
                after = after.decided_by(known)
            if known == after:
                return Unchanged(after)
            if known is not None and known.order >= after.order and known.data != after.data:
                raise ConflictError(
                    f"{self._storage.url} lists other roots since this was begun ({', '.join(known.urls())}): somebody "
                    "else adds roots, or takes some out; nothing was changed there: run it again"
                )
            return Draft("recover", "", after.to_json(), result=after)

        after = self._journal.append(plan).result
        with self._lock.value:
            self._listed = after

    def go_by(self, after: Listed) -> None:
        """Put newer metadata roots of another list at this root."""
        self._storage.make_directory(paths.REPLICAS_JOURNAL)

        def plan(base: Stored | None, slot: Slot) -> Draft[Listed] | Unchanged[Listed]:
            before = after if base is None else Listed.from_json(base.entry.body)
            if base is not None and before.rank >= after.rank:
                return Unchanged(before)
            now = before.decided_by(after)
            return Draft("metadata", "", now.to_json(), result=now)

        now = self._journal.append(plan).result
        with self._lock.value:
            self._listed = now

    def know(self, after: Listed) -> None:
        """Take newer metadata roots of another list in this process."""
        listed = self.listed()
        with self._lock.value:
            if after.rank > listed.rank:
                self._listed = listed.decided_by(after)

    def write(self, listed: Listed) -> None:
        """Put the first list at this root."""
        self._storage.make_directory(paths.REPLICAS_JOURNAL)

        def plan(base: Stored | None, slot: Slot) -> Draft[None]:
            if base is not None:
                raise UsageError(f"{self._storage.url} belongs to other roots already: `commitlog replicas list` shows")
            return Draft("create", "", listed.to_json(), result=None)

        self._journal.append(plan)
        with self._lock.value:
            self._listed = listed

    def own_id(self) -> str:
        """Return this root's id."""
        if self._own is None:
            self._own = root_id(self._storage)
        return self._own

    def open(self, root: str) -> Storage:
        """Return a root's storage, checked by its marker.

        Raises:
            ReplicaNotAvailableError: it is away, unlisted, or another root.
        """
        with self._lock.value:
            found = self._opened.get(root)
        return found if found is not None else self._open(root)

    def _open(self, root: str) -> Storage:
        address = self._address(root)
        if address is None:
            raise ReplicaNotAvailableError(f"{self._storage.url} does not list a root {root}: it was taken out")
        storage = self._storage if address.url == self._storage.url else with_deadlines(self._storage.peer(address.url))
        check_identity(storage, address)
        with self._lock.value:
            return self._opened.setdefault(root, storage)

    def _address(self, root: str) -> Address | None:
        found = self.listed().address(root)
        if found is None:
            with suppress(CommitLogError, OSError):  # this root may be away
                self._read_again()
            found = self.listed().address(root)
        if found is None and self._others_list_more():
            found = self.listed().address(root)
        return found

    def _others_list_more(self) -> bool:
        now = self._storage.clock.monotonic()
        if now - self._asked < _ASKED_SECONDS:
            return False
        found = self.compare(again=True)
        if not found:
            self._asked = now
        return found

    def _read_again(self) -> None:
        with self._lock.value:
            stored = self._journal.newest()
            here = None if stored is None else Listed.from_json(stored.entry.body)
            if here is not None and self._listed is not None:
                here = self._newer(self._listed, here)
            self._listed = here or self._listed

    def names(self, addresses: Sequence[Address], directory: str) -> set[str]:
        """Names in a directory at answering roots."""
        found = set[str]()
        for address in addresses:
            try:
                found.update(self.open(address.id).names(directory))
            except (CommitLogError, OSError):
                continue
        return found

    def answers(self, root: str) -> bool:
        """Whether a root answers under its id."""
        try:
            address = self._address(root)
            if address is None:
                return False
            check_identity(self.open(root), address)
        except ReplicaNotAvailableError:
            return False
        return True


def list_at(storage: Storage) -> Listed | None:
    """Return the list of a root, or None."""
    stored = Journal(storage, paths.REPLICAS_JOURNAL, "replicas", no_sides, check_list).newest()
    return None if stored is None else Listed.from_json(stored.entry.body)


def check_identity(storage: Storage, address: Address) -> None:
    """Refuse another root at an address."""
    try:
        found = root_id(storage)
    except (CommitLogError, OSError) as error:
        raise ReplicaNotAvailableError(f"{address} does not answer: {error}") from error
    if found != address.id:
        raise ReplicaNotAvailableError(
            f"{address} is another root now, {found}: it was emptied, restored, or something else is mounted there. "
            "Nothing of it is read"
        )


def root_id(storage: Storage) -> str:
    """Id in a root's marker; set `single_writer` by it too.

    Raises:
        FileNotFoundError: there is no root.
    """
    data = storage.read(paths.ROOT_MARKER, 0, MARKER_BYTES)
    marker = decode_marker(data, f"{storage.url}/{paths.ROOT_MARKER}")
    storage.single_writer = marker.unsafe_single_writer
    return marker.root_id


def distinct(storages: Sequence[Storage], ids: Sequence[str]) -> None:
    """Refuse one root under two names."""
    seen: dict[str, str] = {}
    for storage, found in zip(storages, ids, strict=True):
        if found in seen:
            raise UsageError(f"{seen[found]} and {storage.url} are one root: each replica needs a place of its own")
        seen[found] = storage.url


_lock = PerProcess(Lock)
