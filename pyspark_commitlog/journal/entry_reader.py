"""Read entries of a journal by their numbers, and check them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

from pyspark_commitlog.errors import CommitLogError, CorruptionError, missing
from pyspark_commitlog.format import entry as codec, paths
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.journal import own_writes
from pyspark_commitlog.journal.entries import Stored
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.process import results_of

_HEAD_BYTES = codec.MAX_LINE_BYTES * 2
#: A file no longer than this is kept until the next read: its inline frames are usually needed next.
_TAIL_BYTES = 8192
#: Maximum length of a line, in bytes.
LONGEST_LINE_BYTES = 4 * 2**20
#: (topic id, file name) -> path of a side file.
Sides = Callable[[str, str], str]
#: (body, path); raises `CorruptionError` for an invalid body.
Check = Callable[[Json, str], object]


class EntryReader:
    """Reads the entries of a journal, and the files that they name."""

    def __init__(self, storage: Storage, directory: str, kind: str, sides: Sides, check: Check) -> None:
        self._storage, self._check = storage, check
        self._directory = directory
        self._kind = kind
        self._sides = sides
        self._tail: tuple[str, bytes | None] = "", None  # write id and inline bytes of a small entry read last
        self.listings = 0
        self._complete = -1  # the listing after which no entry was missing

    def sequences(self) -> list[int]:
        """Return the stored numbers, ascending."""
        parsed = (paths.parse_entry(name) for name in self._storage.names(self._directory))
        return [sequence for sequence in parsed if sequence is not None]

    def missing(self, *, before: bool = False) -> int | None:
        """Last missing number between existing entries, else None.

        Checked once per listing. `before`: the first entry's predecessor counts, too.
        """
        if self._complete == self.listings:
            return None
        sequences = self.sequences()
        found: int | None = None
        if before and sequences:
            with suppress(FileNotFoundError):  # collected while it was listed
                found = sequences[0] - 1 if self.read(sequences[0]).entry.prev else None
        for _, after in self._gaps(sequences):
            found = after - 1
        if found is None:
            self.lacks_nothing()
        return found

    def before_gap(self) -> Stored | None:
        """Last entry before the first gap; None without gaps."""
        return next((before for before, _ in self._gaps(self.sequences())), None)

    def unbroken_from(self) -> int | None:
        """First number after the last gap; None without entries."""
        sequences = self.sequences()
        return next((after for _, after in reversed(list(self._gaps(sequences)))), next(iter(sequences), None))

    def _gaps(self, sequences: list[int]) -> Iterator[tuple[Stored, int]]:
        for last, after in pairwise(sequences):
            if after == last + 1:
                continue
            with suppress(FileNotFoundError):  # collected while it was listed, and what came after it perhaps
                before = self.read(last)
                following = before.entry.following
                if following < after and not self._storage.exists(self._path(following)):
                    yield before, after

    def lacks_nothing(self) -> None:
        """Skip the check for gaps until the next listing."""
        self._complete = self.listings

    def read(self, sequence: int) -> Stored:
        """Entry at a number.

        Raises:
            FileNotFoundError: not put yet, or collected.
            CorruptionError: the file is damaged.
        """
        path = self._path(sequence)
        head, info = self._storage.fetch(path, _HEAD_BYTES)
        if len(head) == _HEAD_BYTES and b"\n" not in head:  # thousands of partitions make a longer line
            head, info = self._storage.fetch(path, LONGEST_LINE_BYTES)
            if len(head) == LONGEST_LINE_BYTES and b"\n" not in head:
                raise CorruptionError(
                    f"{path}: its line is longer than {LONGEST_LINE_BYTES} bytes, the most that one may have; restore "
                    "the file"
                )
        entry = codec.decode(head, where=path, journal=self._kind, sequence=sequence)
        self._check(entry.body, path)
        kept = len(head) <= (
            _TAIL_BYTES if self._storage.can_append else _HEAD_BYTES - 1
        )  # elsewhere a look is a request
        self._tail = entry.write_id, head[entry.line_bytes :] if kept else None
        return Stored(entry, info)

    def read_several(self, sequences: Sequence[int]) -> dict[int, Stored]:
        """Intact entries among these numbers, read concurrently.

        `inline` reads all but one of them again.
        """

        def look(sequence: int) -> Stored | None:
            try:
                return self.read(sequence)
            except (FileNotFoundError, CorruptionError):
                return None

        found = results_of(look, sequences, self._storage.requests_at_once)
        return {stored.sequence: stored for stored in found if stored is not None}

    def put_before(self, entry: Entry) -> Entry | None:
        """Return an entry's predecessor if this process put it lately; no request."""
        sequence = entry.sequence - 1
        path = self._path(sequence)
        data = own_writes.recall(self._storage, path, entry.prev)
        return None if data is None else codec.decode(data, where=path, journal=self._kind, sequence=sequence)

    def bytes_of(self, entry: Entry) -> bytes:
        """Return an entry's file, checked, to put it elsewhere.

        Raises:
            FileNotFoundError: it is collected.
            CorruptionError: the file is damaged, or another entry's.
        """
        path = self._path(entry.sequence)
        own = own_writes.recall(self._storage, path, entry.write_id)
        if own is not None:  # read once before it was put
            return own
        data = self._storage.read(path)
        if self._entry_of(data, entry.sequence).write_id != entry.write_id:
            raise CorruptionError(f"{path}: holds another entry than before; look again")
        return data

    def read_whole(self, sequence: int) -> tuple[Entry, bytes]:
        """Entry at a number and its file, checked; thread-safe.

        Raises:
            FileNotFoundError: not put yet, or collected.
            CorruptionError: the file is damaged.
        """
        data = self._storage.read(self._path(sequence))
        entry = self._entry_of(data, sequence)
        self._check(entry.body, self._path(sequence))
        return entry, data

    def _entry_of(self, data: bytes, sequence: int) -> Entry:
        path = self._path(sequence)
        entry = codec.decode(data, where=path, journal=self._kind, sequence=sequence)
        if entry.inline is not None:
            entry.inline.check(data[entry.line_bytes :], f"inline frames of {path}")
        return entry

    def inline(self, entry: Entry) -> bytes:
        """Return an entry's inline bytes, checked.

        Raises:
            CorruptionError: length or CRC differ.
        """
        if entry.inline is None:
            return b""
        path, data = self._path(entry.sequence), self.at_hand(entry)
        if data is None:
            data = self._storage.read(path, entry.line_bytes, entry.inline.at_most)
        return entry.inline.check(data, f"inline frames of {path}")

    def at_hand(self, entry: Entry) -> bytes | None:
        """Return an entry's unchecked inline bytes; None if that takes a request."""
        write_id, data = self._tail
        if data is None or write_id != entry.write_id:
            own = own_writes.recall(self._storage, self._path(entry.sequence), entry.write_id)
            data = None if own is None else own[entry.line_bytes :]
        return data

    def side(self, topic_id: str, named: Json) -> bytes:
        """Return a side file that an entry names, checked.

        Raises:
            FileNotFoundError: collected with its entry.
            CorruptionError: length or CRC differ.
        """
        path, checked = self._sides(topic_id, named["file"]), codec.Checked.from_json(named)
        return checked.check(self._storage.read(path, 0, checked.at_most), path)

    def faults(self) -> list[str]:
        """Faults of existing entries."""

        def look(sequence: int) -> str | None:
            try:
                self.inline(self.read(sequence).entry)
            except FileNotFoundError as error:
                return str(missing(error)) if sequence in self.sequences() else None
            except CommitLogError as error:
                return str(error)
            return None

        found = results_of(look, self.sequences(), self._storage.requests_at_once)
        return [fault for fault in found if fault is not None]

    def older_than(self, before_ms: int) -> int:
        """Newest entry stored until `before_ms`; 0 if none.

        An older one if storage's clock was set back.
        """
        sequences, oldest = self.sequences(), 0
        low, high = 0, len(sequences)
        while low < high:
            middle = (low + high) // 2
            try:
                is_old = self._storage.info(self._path(sequences[middle])).modified_ms <= before_ms
                oldest = sequences[middle] if is_old else oldest
            except FileNotFoundError:  # another collector was here
                is_old = True
            low, high = (middle + 1, high) if is_old else (low, middle)
        return oldest

    def _path(self, sequence: int) -> str:
        return f"{self._directory}/{paths.entry_name(sequence)}"
