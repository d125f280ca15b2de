"""Settings of a log on several roots (defaults, access rules): changed at the metadata root, copied to all others.

Each entry has all of them, so the newest alone is copied. A root that is away then gets it with the next change, or by
``replicate``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.format import paths
from pyspark_commitlog.replicas.roots import Roots
from pyspark_commitlog.storage import Storage

logger = logging.getLogger("pyspark_commitlog.replicas")

#: The journals of settings.
JOURNALS = (paths.CONFIG_JOURNAL, paths.ACCESS_JOURNAL)


def spread(roots: Roots, directory: str) -> None:
    """Copy the newest entry of a journal of settings from the metadata root to all others."""
    listed = roots.listed()
    source = roots.open(listed.metadata[0].id)
    names = [name for name in source.names(directory) if paths.parse_entry(name) is not None]
    if not names:
        return
    path = f"{directory}/{names[-1]}"
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
    found: tuple[str, Storage] | None = None
    for source in sources:
        names = [name for name in source.names(directory) if paths.parse_entry(name) is not None]
        if names and (found is None or names[-1] > found[0]):
            found = names[-1], source
    if found is not None and found[1] is not target:
        path = f"{directory}/{found[0]}"
        _copy(path, found[1].read(path), target)


def _copy(path: str, data: bytes, target: Storage) -> None:
    if target.exists(path):
        return
    directory = path.rpartition("/")[0]
    target.make_directory(directory)
    try:
        target.put_if_absent(path, data)
    except FileExistsError:
        target.sync_directory(directory, fresh=True)
