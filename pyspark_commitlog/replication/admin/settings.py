"""Settings (defaults, access rules): decided at metadata roots, copied to others.

The newest entry, which is complete, is copied, also over a damaged one. A root that is away gets it with the next
change, or by `replicate`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.journal import Journal, no_sides
from pyspark_commitlog.replication.protocol.roots import Address, Roots, check_identity
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import is_eio

logger = logging.getLogger("pyspark_commitlog.replication")

#: The settings journals, and their names in messages.
JOURNALS = {paths.CONFIG_JOURNAL: "root-wide defaults", paths.ACCESS_JOURNAL: "access rules"}


class _Entry(NamedTuple):
    directory: str
    number: int
    data: bytes
    source: Storage


def spread(roots: Roots, directory: str) -> None:
    """Copy the newest settings entry to all roots."""
    listed = roots.listed()
    deciding = _answering(roots, listed.metadata, directory)
    number = max(number for _, number in deciding.values())
    if not number:
        return
    sources = chain((storage for storage, _ in deciding.values()), _those_that_answer(roots, listed.data))
    entry = _first_whole_entry(sources, directory, number)
    for address in dict.fromkeys((*listed.data, *deciding)):
        try:
            target = roots.open(address.id)
            if target is not entry.source:
                _copy(entry, target, puts=address in listed.data)
        except (CommitLogError, OSError) as error:
            logger.warning("%s has not got the newest of %s yet: %s", address, directory, error)


def copy_newest(sources: Sequence[Storage], directory: str, target: Storage) -> None:
    """Copy the newest settings entry, if any, to another root."""
    number = max((_newest(source, directory) for source in sources), default=0)
    if number:
        _copy(_first_whole_entry(sources, directory, number), target)


def damage_of(sources: Sequence[Storage], directory: str) -> str | None:
    """Return why the newest entry is whole nowhere, or None."""
    number = max((_newest(source, directory) for source in sources), default=0)
    try:
        if number:
            _first_whole_entry(sources, directory, number)
    except CorruptionError as error:
        return str(error)
    return None


def copy_damaged(sources: Sequence[Storage], directory: str, target: Storage) -> None:
    """Put the newest entry, whole nowhere, at another root.

    Without access rules everybody could change them.
    """
    path = f"{directory}/{paths.entry_name(max(_newest(source, directory) for source in sources))}"
    for source in sources:
        try:
            data = source.read(path)
            break
        except (CommitLogError, OSError):  # a bad sector, or collected
            continue
    else:
        data = b""
    _put(path, data, target)


def _answering(roots: Roots, addresses: Sequence[Address], directory: str) -> dict[Address, tuple[Storage, int]]:
    found, failure = dict[Address, tuple[Storage, int]](), None
    for address in addresses:
        try:
            storage = roots.open(address.id)
            check_identity(storage, address)
            found[address] = storage, _newest(storage, directory)
        except (CommitLogError, OSError) as error:
            failure = error
    if not found and failure is not None:
        raise failure
    return found


def _those_that_answer(roots: Roots, addresses: Sequence[Address]) -> Iterator[Storage]:
    for address in addresses:
        if roots.answers(address.id):
            yield roots.open(address.id)


def _newest(source: Storage, directory: str) -> int:
    return max(_journal(source, directory).sequences(), default=0)


def _first_whole_entry(sources: Iterable[Storage], directory: str, number: int) -> _Entry:
    failures = []
    for source in sources:
        try:
            return _Entry(directory, number, _journal(source, directory).read_whole(number)[1], source)
        except FileNotFoundError:
            continue
        except (CommitLogError, OSError) as error:
            failures.append(f"{source.url}/{directory}: {error}")
    raise CorruptionError(f"no root has entry {number} of {directory} whole, nothing was copied: {'; '.join(failures)}")


def _journal(storage: Storage, directory: str) -> Journal:
    return Journal(storage, directory, directory.partition("/")[0], no_sides, _any_body)


def _any_body(body: Json, where: str) -> None:
    """Accept any body: the CRC suffices."""


def _copy(entry: _Entry, target: Storage, *, puts: bool = True) -> None:
    """Make an entry whole at a root.

    Without `puts` replace only a damaged one.
    """
    path = f"{entry.directory}/{paths.entry_name(entry.number)}"
    try:
        _journal(target, entry.directory).read_whole(entry.number)
    except FileNotFoundError:
        if puts:
            _put(path, entry.data, target)
    except (CorruptionError, OSError) as error:
        if isinstance(error, OSError) and not is_eio(error):
            raise
        target.write_once(path, entry.data)
        logger.warning("%s: replaced by what %s has: %s", target.url, entry.source.url, error)


def _put(path: str, data: bytes, target: Storage) -> None:
    directory = path.rpartition("/")[0]
    target.make_directory(directory)
    try:
        target.put_if_absent(path, data)
    except FileExistsError:
        target.sync_directory(directory, fresh=True)
