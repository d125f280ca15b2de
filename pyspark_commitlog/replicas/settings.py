"""Settings of a log on several roots (defaults, access rules): decided at the metadata roots, copied to all others.

Each entry has all of them, so the newest alone is copied. A root that is away then gets it with the next change, or by
``replicate``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.format import paths
from pyspark_commitlog.replicas.roots import Address, Roots, check_identity
from pyspark_commitlog.storage import Storage

logger = logging.getLogger("pyspark_commitlog.replicas")

#: The journals of settings.
JOURNALS = (paths.CONFIG_JOURNAL, paths.ACCESS_JOURNAL)


def spread(roots: Roots, directory: str) -> None:
    """Copy the newest entry of a journal of settings from the metadata roots, where it is decided, to all others.

    Raises:
        ReplicaNotAvailableError: no metadata root answers.
    """
    listed = roots.listed()
    newest = _newest(_answering(roots, listed.metadata), directory)
    if newest is None:
        return
    path, source = newest
    data = source.read(path)
    for address in listed.data:
        try:
            target = roots.open(address.id)
            if target is not source:
                _copy(path, data, target)
        except (CommitLogError, OSError) as error:
            logger.warning("%s has not got the newest of %s yet: %s", address, directory, error)


def copy_newest(sources: Sequence[Storage], directory: str, target: Storage) -> None:
    """Copy the newest entry of a journal of settings that some roots have, if any, to another root."""
    found = _newest(sources, directory)
    if found is not None and found[1] is not target:
        _copy(found[0], found[1].read(found[0]), target)


def _answering(roots: Roots, addresses: Sequence[Address]) -> list[Storage]:
    """Return the roots that answer now, of which one has to."""
    found, failure = list[Storage](), None
    for address in addresses:
        try:
            storage = roots.open(address.id)
            check_identity(storage, address)
            found.append(storage)
        except (CommitLogError, OSError) as error:
            failure = error
    if not found and failure is not None:
        raise failure
    return found


def _newest(sources: Sequence[Storage], directory: str) -> tuple[str, Storage] | None:
    """Return the path of the newest entry that some roots have, and which has it; None where none has any."""
    found: tuple[str, Storage] | None = None
    for source in sources:
        names = [name for name in source.names(directory) if paths.parse_entry(name) is not None]
        if names and (found is None or names[-1] > found[0]):
            found = names[-1], source
    return None if found is None else (f"{directory}/{found[0]}", found[1])


def _copy(path: str, data: bytes, target: Storage) -> None:
    if target.exists(path):
        return
    directory = path.rpartition("/")[0]
    target.make_directory(directory)
    try:
        target.put_if_absent(path, data)
    except FileExistsError:
        target.sync_directory(directory, fresh=True)
