"""Several metadata roots, for groups and their members' heartbeats."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError
from pyspark_commitlog.replication.metadata.births import Births
from pyspark_commitlog.replication.protocol.ballots import majority
from pyspark_commitlog.replication.protocol.roots import Address, Roots, check_identity
from pyspark_commitlog.storage import Storage


class Deciders:
    """Three or five metadata roots."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    @property
    def majority(self) -> int:
        """Number of them that must answer."""
        return majority(len(self._roots.listed().metadata))

    def reachable_roots(self) -> list[Storage]:
        """Roots that have answered once, in order."""
        found = list[Storage]()
        for address in self._roots.listed().metadata:
            try:
                found.append(self._roots.open(address.id))
            except (CommitLogError, OSError):  # the others suffice
                continue
        return found

    def names(self, directory: str) -> list[str]:
        """Names in a directory at any of them."""
        return names_at(self._roots, self._roots.listed().deciding(), directory)


def names_at(roots: Roots, ids: Sequence[str], directory: str) -> list[str]:
    """Names in a directory at any metadata root."""
    found, failures, answered = set[str](), list[str](), 0
    for root in ids:
        try:
            storage = roots.open(root)
            check_identity(storage, Address(root, storage.url))  # an unmounted one has no marker
            if len(ids) > 1:
                Births(storage).refuse_copy()
            found.update(storage.names(directory))
            answered += 1
        except (CommitLogError, OSError) as error:
            failures.append(str(error))
    if answered < majority(len(ids)):
        raise ReplicaNotAvailableError(
            f"{directory}: {answered} metadata roots answer, no majority: {'; '.join(failures)}"
        )
    return sorted(found)
