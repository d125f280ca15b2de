"""Roots whose metadata is lost for good, and how they go on."""

from __future__ import annotations

from pathlib import Path

from pyspark_commitlog.model import Recovered
from pyspark_commitlog.replication.protocol.roots import Roots
from tests.support.replicas import Replicated


def url(roots: Replicated, root: str) -> str:
    return str(roots.path / root)


def recover(roots: Replicated, *lost: str, to: str = "n", at: str = "b", execute: bool = True) -> Recovered:
    (found,) = roots.log(at).replicas.recover(url(roots, to), [url(roots, each) for each in lost], execute=execute)
    return found


def at(roots: Replicated, root: str) -> Replicated:
    """Return the same roots, as a process sees them that decides by what a root lists."""
    listed = {Path(each.url).name for each in Roots.of(roots.storage(root)).listed().data}
    other = Replicated(roots.path, "".join(sorted(listed)), roots.clock, roots.hooks)
    other.decided_log = lambda root=root, name="t": roots.at(root, name).journal.decided_log()  # type: ignore[method-assign]
    return other
