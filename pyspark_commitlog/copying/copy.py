"""Copy topics between two roots, with configs, access rules and groups' offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark_commitlog.copying.comparison import Compared, compare_topic
from pyspark_commitlog.copying.group_offsets import CopiedGroup, SourceOffsets, read_offsets, write_offsets
from pyspark_commitlog.copying.topic_copy import CopiedTopic, check_stands_alone, copy_topic
from pyspark_commitlog.errors import UsageError, combine_errors
from pyspark_commitlog.failures import Failures
from pyspark_commitlog.model import Progress, silent, watched
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.root.root_marker import make_root
from pyspark_commitlog.topic.access import Access, Operation, Rule

logger = logging.getLogger("pyspark_commitlog.copying")


@dataclass(frozen=True, slots=True)
class Copied:
    """Outcome of `copy_topics`; `rules` were added at the destination."""

    topics: tuple[CopiedTopic, ...]
    groups: tuple[CopiedGroup, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def summary(self) -> str:
        """Copied topics and groups as text; empty if none."""
        parts = [
            ("topics", [each.topic for each in self.topics]),
            ("offsets of groups", [g.group for g in self.groups]),
        ]
        return "; ".join(f"{kind} {', '.join(map(repr, names))}" for kind, names in parts if names)


def copy_topics(
    source: Root,
    destination: Root,
    topics: Sequence[str] | None = None,
    *,
    groups: bool = False,
    progress: Progress = silent,
) -> Copied:
    """Copy topics to another root; see `CommitLog.copy_to`."""
    copied, failures = copy_what_can_be(source, destination, topics, groups=groups, progress=progress)
    if failures:
        error = combine_errors(failures, f"{len(failures)} topics, or groups' offsets, could not be copied")
        if copied.summary:
            error.add_note(f"copied all the same: {copied.summary}")
        raise error
    return copied


def copy_what_can_be(
    source: Root,
    destination: Root,
    topics: Sequence[str] | None = None,
    *,
    groups: bool = False,
    progress: Progress = silent,
) -> tuple[Copied, list[Exception]]:
    """Copy as `copy_topics`; return result and errors of topics and groups.

    Groups get the offsets of copied topics.
    """
    if source.url == destination.url:
        raise UsageError(f"{source.url} can't be copied to itself: name two roots")
    names = _names(source, topics)
    handles = {name: source.topic(name) for name in names}
    make_root(destination)
    _check_two(source, destination)
    _check_begins(destination, names)
    rules = _copy_rules(source.access, destination.access) if topics is None else ()
    watch = watched(progress)
    offsets, unread = read_offsets(source.groups, handles) if groups else ([], [])
    done, failures = [], Failures(watch)
    for number, name in enumerate(names, 1):
        with failures.collected():
            target = destination.topic(name, Operation.ADMIN)
            done.append(copy_topic(handles[name], target, _titled(watch, f"{name} ({number} of {len(names)})")))
    copied = {each.topic for each in done}
    moved, unwritten = _write_all(destination, (each.of_topics(copied) for each in offsets))
    return Copied(tuple(done), moved, rules), [*failures.reported(), *unread, *unwritten]


def _write_all(destination: Root, offsets: Iterable[SourceOffsets]) -> tuple[tuple[CopiedGroup, ...], list[Exception]]:
    """Commit the offsets of groups; return the results and the errors."""
    done, failures = [], Failures()
    for group in offsets:
        if group.positions:
            with failures.collected():
                done.append(write_offsets(destination.groups, group))
    return tuple(done), failures.reported()


def compare_topics(
    source: Root,
    destination: Root,
    topics: Sequence[str] | None = None,
    *,
    progress: Progress = silent,
) -> tuple[Compared, ...]:
    """Compare copied topics at both ends; see `CommitLog.compare_with`."""
    names = _names(source, topics)
    return tuple(
        compare_topic(
            source.topic(name), destination.topic(name), _titled(progress, f"{name} ({number} of {len(names)})")
        )
        for number, name in enumerate(names, 1)
    )


def _names(source: Root, topics: Sequence[str] | None) -> list[str]:
    return _every_topic(source) if topics is None else list(dict.fromkeys(topics))


def _every_topic(source: Root) -> list[str]:
    """Names of all topics; warn of those that can't be seen."""
    names = source.topics()
    unseen = source.unseen_topics(names)
    if unseen:
        logger.warning(
            "topics %s are left out: the principal may not describe them, or their files in %s can not be read",
            ", ".join(map(repr, unseen)), source.url,
        )  # fmt: skip
    return names


def _check_two(source: Root, destination: Root) -> None:
    """Refuse one root under two names, as by a symbolic link."""
    if source.root_id == destination.root_id:
        raise UsageError(
            f"{source.url} and {destination.url} are one root, or one was made of the other's files: a root can't be "
            "copied to itself: name two roots"
        )


def _check_begins(destination: Root, names: Sequence[str]) -> None:
    """Refuse topics that a copy can't begin at the destination, before anything is put there."""
    if destination.storage.together is not None:
        there = destination.listed()
        check_stands_alone(destination.storage, [name for name in names if name not in there])


def _titled(progress: Progress, title: str) -> Progress:
    return lambda what, done, total: progress(f"{title}: {what}", done, total)


def _copy_rules(source: Access, destination: Access) -> tuple[Rule, ...]:
    new = missing_rules(source.rules(), destination.rules())
    if new:
        destination.add(new)
    return new


def missing_rules(given: Iterable[Rule], there: Iterable[Rule]) -> tuple[Rule, ...]:
    """Rules that are not there, sorted (pure)."""
    return tuple(sorted(set(given) - set(there)))
