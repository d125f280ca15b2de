"""Create roots that belong together: markers, and lists of all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.replication.metadata.births import Births
from pyspark_commitlog.replication.protocol.roots import MAX_ROOTS, Address, Listed, Roots, distinct, root_id
from pyspark_commitlog.storage import Storage

logger = logging.getLogger("pyspark_commitlog.replication")


def make_roots(data: Sequence[Storage], metadata: Sequence[Storage], make: Callable[[Storage], None]) -> Storage:
    """Create roots that list one another; return the first data root.

    Args:
        metadata: one, perhaps of `data`; or three or five others.
    """
    _check_numbers(data, metadata)
    every = [*data, *(storage for storage in metadata if all(storage.url != other.url for other in data))]
    _check_names(every, [storage.url for storage in data])
    _check_names(every, [storage.url for storage in metadata])
    for storage in every:
        _refuse_alone(storage)
    for storage in every:
        make(storage)
    for storage in metadata if len(metadata) > 1 else ():
        Births(storage).put()
    ids = [root_id(storage) for storage in every]
    distinct(every, ids)
    addresses = {s.url: Address(found, s.url) for s, found in zip(every, ids, strict=True)}
    listed = Listed(tuple(addresses[s.url] for s in data), tuple(addresses[s.url] for s in metadata))
    for storage in every:
        Roots.of(storage).write(listed)
    _warn(data, metadata)
    return data[0]


def _check_numbers(data: Sequence[Storage], metadata: Sequence[Storage]) -> None:
    if not 1 <= len(data) <= MAX_ROOTS:
        raise UsageError(f"{len(data)} replicas were named: 1 to {MAX_ROOTS} roots can belong together")
    if len(metadata) not in (1, 3, 5):
        raise UsageError(f"{len(metadata)} metadata roots were named: 1, 3 or 5 decide, by majority")
    both = {storage.url for storage in metadata}.intersection(storage.url for storage in data)
    if len(metadata) > 1 and both:
        raise UsageError(
            f"{', '.join(sorted(both))} can't hold data and metadata: several metadata roots are places of their own"
        )


def _check_names(every: Sequence[Storage], data: Sequence[str]) -> None:
    twice = sorted({url for url in data if list(data).count(url) > 1})
    if twice:
        raise UsageError(f"{twice[0]} is named twice: each replica needs a place of its own")
    places = {storage.url: storage.place() for storage in every}
    for url, place in places.items():
        same = next((other for other, at in places.items() if other != url and at is not None and at == place), None)
        if same is not None:
            raise UsageError(f"{url} and {same} are one directory: each replica needs a place of its own")


def _refuse_alone(storage: Storage) -> None:
    if storage.exists(paths.ROOT_MARKER) and (
        storage.names(paths.TOPICS) or storage.names(paths.REPLICAS_JOURNAL) or storage.names(paths.GROUPS)
    ):
        raise UsageError(f"there is a commit log at {storage.url} already; nothing was made: name empty places")


def _warn(data: Sequence[Storage], metadata: Sequence[Storage]) -> None:
    devices: dict[object, str] = {}
    for storage in data:
        device = storage.device()
        if device is not None and device in devices:
            logger.warning(
                "%s and %s are on the same device: it takes both replicas with it", devices[device], storage.url
            )
        elif device is not None:
            devices[device] = storage.url
    if any(storage.url == metadata[0].url for storage in data):
        logger.warning(
            "%s holds the metadata and a replica: while it is away nothing can be written or elected. A small "
            "directory elsewhere (metadata=) takes that from it; without, failover is by hand (`commitlog replicas "
            "recover`)", metadata[0].url,
        )  # fmt: skip
