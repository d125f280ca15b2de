"""`commitlog doctor` and `version`: what will hurt and what to do about it, and what is installed."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version as installed_version
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_commitlog import __version__
from pyspark_commitlog.cli.common.arguments import AsJson, Root, opened
from pyspark_commitlog.cli.common.endings import print_lines
from pyspark_commitlog.cli.common.progress import with_progress
from pyspark_commitlog.cli.common.storage_options import storage_at
from pyspark_commitlog.config import HOUR_MS
from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.failures import ErrorBoundary
from pyspark_commitlog.text import counted
from pyspark_commitlog.topic_description import TopicDescription, backlog_line, maintained_line

if TYPE_CHECKING:
    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.storage import Storage
    from pyspark_commitlog.storage.local.free_space import FreeSpace
    from pyspark_commitlog.storage.local.probe import Finding

#: Below either, a disk counts as nearly full.
_LEAST_SHARE, _LEAST_BYTES = 0.1, 2**30
#: Findings of `probe` that cost money or mislead, though nothing is lost by them.
_MATTERS = ("versions", "clock")
_PACKAGES = ("pyspark", "pyarrow", "numpy", "fsspec", "awscrt", "msgspec", "sqlglot", "obstore")


def doctor(root: Root, as_json: AsJson = False) -> None:
    """Examine a log: disk, store, clock, permissions, maintenance, topics; each finding says what to do.

    Tries the store as `commitlog probe` does, and leaves no files. Exit code 1 if something is not well.
    """
    with opened(root) as log:
        names = log.topics()  # without a root there is nothing to look at
        is_well = True
        for diagnosis in examine(log, names, [storage_at(place) for place in root.split(",")]):
            is_well = is_well and diagnosis.is_well
            line = f"{'ok' if diagnosis.is_well else '!!'}  {diagnosis.subject}: {diagnosis.found}"
            remedy = [f"    {diagnosis.remedy}"] if diagnosis.remedy else []
            print_lines([json.dumps(asdict(diagnosis))] if as_json else [line, *remedy])
    raise typer.Exit(0 if is_well else 1)


def version(
    of_all: Annotated[bool, typer.Option("--all", help="Also of Python and of the packages it stands on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the version."""
    found = versions() if of_all else {"pyspark-commitlog": __version__}
    print_lines([json.dumps(found)] if as_json else [f"{name} {number}" for name, number in found.items()])


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was examined, whether it is well, what was found, and what to do (empty if well)."""

    subject: str
    is_well: bool
    found: str
    remedy: str = ""


def versions() -> dict[str, str]:
    """Return the versions of the package, its format, Python and what it stands on; those that are installed."""
    from pyspark_commitlog.format.entry import FORMAT_VERSION

    found = {
        "pyspark-commitlog": __version__,
        "formatVersion": f"{FORMAT_VERSION}",
        "python": platform.python_version(),
    }
    for name in _PACKAGES:
        try:
            found[name] = installed_version(name)
        except PackageNotFoundError:
            continue
    return found


def examine(log: CommitLog, names: list[str], places: list[Storage]) -> Iterator[Diagnosis]:
    """Yield findings about a log: versions, its places, its topics.

    Args:
        log: the log.
        names: its topics.
        places: the storages of its roots, which are tried as by `commitlog probe`.
    """
    yield Diagnosis("versions", True, ", ".join(f"{name} {number}" for name, number in versions().items()))
    for place in places:
        yield from _examine_place(place)
    yield from _examine_topics(log, names)


def _examine_place(place: Storage) -> Iterator[Diagnosis]:
    from pyspark_commitlog.storage.local.free_space import free_space
    from pyspark_commitlog.storage.local.probe import probe

    space = free_space(place)
    if space is not None:
        yield disk_diagnosis(place.url, space)
    try:
        findings = probe(place, timed=False)
    except CommitLogError as error:
        yield Diagnosis(place.url, False, f"{error}", "writers and `commitlog maintain` need to write there")
        return
    faults = [finding for finding in findings if not finding.safe or (finding.what in _MATTERS and not finding.held)]
    yield from (place_diagnosis(place.url, fault) for fault in faults)
    if not faults:
        yield Diagnosis(place.url, True, "can be written, and keeps what a log relies on")


def disk_diagnosis(url: str, space: FreeSpace) -> Diagnosis:
    """Judge what is free on a root's disk (pure)."""
    found = f"{space.free_bytes / 2**30:,.1f} of {space.total_bytes / 2**30:,.1f} GiB are free"
    if space.free_bytes >= max(_LEAST_BYTES, _LEAST_SHARE * space.total_bytes):
        return Diagnosis(f"disk of {url}", True, found)
    remedy = "free space, or lower retention.ms or retention.bytes of topics and run `commitlog maintain`"
    return Diagnosis(f"disk of {url}", False, found, f"{remedy}: on a full disk nothing can be written")


def place_diagnosis(url: str, fault: Finding) -> Diagnosis:
    """Judge a fault of a place (pure)."""
    if not fault.safe:
        return Diagnosis(url, False, fault.told, "move the log: `commitlog copy`")  # codespell:ignore told
    remedy = {
        "versions": "add the lifecycle rule",
        "clock": "set this machine's clock by NTP: retention and searches by time go by it",
    }
    return Diagnosis(f"{fault.what} of {url}", False, fault.told, remedy[fault.what])  # codespell:ignore told


def _examine_topics(log: CommitLog, names: list[str]) -> Iterator[Diagnosis]:
    sick = 0
    for name, _ in with_progress(names):
        faults: list[Diagnosis] = []
        with ErrorBoundary(lambda error, name=name, faults=faults: faults.append(_failed(name, error))):  # type: ignore[misc]
            faults += topic_diagnoses(log.topic(name).describe())
        sick += bool(faults)
        yield from faults
    if not sick:
        yield Diagnosis("topics", True, f"{counted(len(names), 'topic')}, nothing to say about them")


def _failed(name: str, error: Exception) -> Diagnosis:
    return Diagnosis(f"topic {name}", False, f"{error}", "`commitlog verify` finds which files")


def topic_diagnoses(topic: TopicDescription) -> Iterator[Diagnosis]:
    """Yield what is wrong with a topic (pure)."""
    subject, maintain = f"topic {topic.name}", "run `commitlog maintain` as a service, or from cron"
    waiting = topic.unsettled
    if waiting.entries and waiting.age_ms > HOUR_MS:
        yield Diagnosis(subject, False, backlog_line(waiting), maintain)
    elif topic.since_maintained_ms is not None and topic.since_maintained_ms > HOUR_MS:
        found = maintained_line(topic).partition(":")[0]
        yield Diagnosis(subject, False, f"{found}: records that have expired stay", maintain)
    for partition, why in sorted(topic.damaged.items()):
        found = f"partition {partition} takes no commits: {why}"
        yield Diagnosis(subject, False, found, "docs/how-to/troubleshooting.md: repair it, or give its records up")
    if topic.unsafe_single_writer:
        yield Diagnosis(subject, False, "two writers at once lose records here", "keep to one process, or move the log")
    if topic.replication is not None and topic.replication.is_under_replicated:
        of = topic.replication
        found = f"{len(of.isr)} of {len(of.replicas)} replicas are in sync"
        yield Diagnosis(
            subject, False, found, "`commitlog replicas describe` names the one that is away; bring it back"
        )
