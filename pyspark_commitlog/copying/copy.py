"""Copy topics between two roots, with configs, access rules and groups' offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark_commitlog.access import Access, Operation, Rule
from pyspark_commitlog.commit_log import CommitLog
from pyspark_commitlog.copying.comparison import Compared, compare_topic
from pyspark_commitlog.copying.group_offsets import CopiedGroup, SourceOffsets, read_offsets, write_offsets
from pyspark_commitlog.copying.topic_copy import CopiedTopic, check_stands_alone, copy_topic
from pyspark_commitlog.errors import UsageError, as_reported, combine_errors
from pyspark_commitlog.model import Progress, silent, watched
from pyspark_commitlog.replicas.roots import root_id

logger = logging.getLogger("pyspark_commitlog.copying")


@dataclass(frozen=True, slots=True)
class Copied:
    """Outcome of ``copy_topics``; ``rules`` were added at the destination."""

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
    source: CommitLog | str,
    destination: CommitLog | str,
    topics: Sequence[str] | None = None,
    *,
    groups: bool = False,
    progress: Progress = silent,
) -> Copied:
    """Copy topics to another root, or bring copies up to date.

    Ids, offsets, timestamps and histories are the source's. It may be interrupted and called again, or run several
    times at once, beside readers, writers and maintenance of the source. The destination always shows the source as of
    some commit, of all partitions at once. The first entry that anybody else puts there (a commit, a changed config)
    makes the topic independent, and further copies are refused.

    Args:
        source: the root, opened, or its directory or URL.
        destination: the same; made if it is not there.
        topics: names; None for all, and all access rules. A warning names those that can't be seen.
        groups: copy consumer groups' offsets too, forward only.
        progress: gets a title, and the amount done and in all; may raise to stop.

    Returns:
        What was copied.

    Raises:
        UsageError: both roots are one, or topics would begin at one of several roots.
        UnknownTopicError: the source has no such topic.
        TopicExistsError: the destination has, or had, another topic of that name.
        ConflictError: the topic there was written to, or never was a copy.
        LogTruncationError: the source was restored from something older than the copy.
        AccessDeniedError: reading at the source, or creating topics at the destination, is not allowed.
        CorruptionError: the source is damaged.
        OutcomeUnknownError: run it again.
        ExceptionGroup: several topics or groups failed; its note names what was copied all the same.
    """
    copied, failures = copy_what_can_be(source, destination, topics, groups=groups, progress=progress)
    if failures:
        error = combine_errors(failures, f"{len(failures)} topics, or groups' offsets, could not be copied")
        if copied.summary:
            error.add_note(f"copied all the same: {copied.summary}")
        raise error
    return copied


def copy_what_can_be(
    source: CommitLog | str,
    destination: CommitLog | str,
    topics: Sequence[str] | None = None,
    *,
    groups: bool = False,
    progress: Progress = silent,
) -> tuple[Copied, list[Exception]]:
    """Copy as ``copy_topics``; return result and errors of topics and groups.

    Groups get the offsets of copied topics.
    """
    here, there = (CommitLog(root) if isinstance(root, str) else root for root in (source, destination))
    if here.url == there.url:
        raise UsageError(f"{here.url} can't be copied to itself: name two roots")
    names = _every_topic(here) if topics is None else list(dict.fromkeys(topics))
    handles = {name: here.topic(name) for name in names}
    there.make_root()
    _check_two(here, there)
    _check_begins(there, names)
    rules = _copy_rules(here.access, there.access) if topics is None else ()
    watch = watched(progress)
    offsets, unread = read_offsets(here.groups, handles) if groups else ([], [])
    done, failures = [], list[Exception]()
    for number, name in enumerate(names, 1):
        try:
            target = there.topic(name, Operation.ADMIN)
            done.append(copy_topic(handles[name], target, _titled(watch, f"{name} ({number} of {len(names)})")))
        except Exception as error:
            if watch.ended_by(error):
                raise
            failures.append(as_reported(error))
    copied = {each.topic for each in done}
    moved, unwritten = _write_all(there, (each.of_topics(copied) for each in offsets))
    return Copied(tuple(done), moved, rules), [*failures, *unread, *unwritten]


def _write_all(
    destination: CommitLog, offsets: Iterable[SourceOffsets]
) -> tuple[tuple[CopiedGroup, ...], list[Exception]]:
    done, failures = [], list[Exception]()
    for group in offsets:
        if not group.positions:
            continue
        try:
            done.append(write_offsets(destination.groups, group))
        except Exception as error:  # noqa: BLE001 raised by the caller, when all is copied that can be
            failures.append(as_reported(error))
    return tuple(done), failures


def compare_topics(
    source: CommitLog | str,
    destination: CommitLog | str,
    topics: Sequence[str] | None = None,
    *,
    progress: Progress = silent,
) -> tuple[Compared, ...]:
    """Compare all records of copied topics at both ends; read-only.

    Args:
        source, destination: the roots; compared as far as the second goes.
        topics: names; None for all of the source. A warning names those that can't be seen.
        progress: gets a title, and the amount done and in all; may raise to stop.

    Raises:
        UnknownTopicError: a topic is missing.
        CorruptionError: stored bytes are damaged.
    """
    here, there = (CommitLog(root) if isinstance(root, str) else root for root in (source, destination))
    names = _every_topic(here) if topics is None else list(dict.fromkeys(topics))
    return tuple(
        compare_topic(here.topic(name), there.topic(name), _titled(progress, f"{name} ({number} of {len(names)})"))
        for number, name in enumerate(names, 1)
    )


def _every_topic(source: CommitLog) -> list[str]:
    names = source.topics()
    unseen = source.unseen_topics(names)
    if unseen:
        logger.warning(
            "topics %s are left out: the principal may not describe them, or their files in %s can not be read",
            ", ".join(map(repr, unseen)), source.url,
        )  # fmt: skip
    return names


def _check_two(source: CommitLog, destination: CommitLog) -> None:
    if root_id(source.storage) == root_id(destination.storage):
        raise UsageError(
            f"{source.url} and {destination.url} are one root, or one was made of the other's files: a root can't be "
            "copied to itself: name two roots"
        )


def _check_begins(destination: CommitLog, names: Sequence[str]) -> None:
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
    """Return the rules that are not there, sorted (pure)."""
    return tuple(sorted(set(given) - set(there)))
