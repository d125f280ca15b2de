"""Verifies a root's marker, defaults, access rules and groups."""

from __future__ import annotations

from pyspark_commitlog.errors import CorruptionError, UnsupportedError
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.consumer_groups import Groups
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.race import DIRECTORY as PROBES
from pyspark_commitlog.storage.write_once import CLOCK
from pyspark_commitlog.topic.damage.verify import RootReport
from pyspark_commitlog.topic.defaults import RootDefaults

_JOURNALS = (paths.CONFIG_JOURNAL, paths.ACCESS_JOURNAL)
#: Names in a root's directory.
_KNOWN = {
    paths.ROOT_MARKER,
    paths.TOPICS,
    paths.GROUPS,
    paths.REPLICAS,
    PROBES,
    CLOCK,
    *(path.partition("/")[0] for path in _JOURNALS),
}


def verify_root(root: Root) -> RootReport:
    """Check what belongs to no topic; reads only."""
    try:
        root.check()
    except (CorruptionError, UnsupportedError) as error:
        return RootReport((str(error),), ())
    storage = root.storage
    faults = [*RootDefaults(storage).faults(), *root.local_access.faults()]
    groups = Groups(storage, root.local_access)
    unnamed = _unnamed(storage)
    return RootReport((*faults, *groups.verify()), (*unnamed, *groups.unnamed()))


def _unnamed(storage: Storage) -> list[str]:
    """Files of a root, and of its settings, without meaning."""
    unnamed = [name for name in storage.names("") if name not in _KNOWN]
    for path in _JOURNALS:
        home, journal = path.split("/")
        there = (name for name in storage.names(home) if not paths.is_acceptor(name))
        unnamed += [f"{home}/{name}" for name in there if name != journal]
        unnamed += [f"{path}/{name}" for name in storage.names(path) if paths.parse_entry(name) is None]
    return unnamed
