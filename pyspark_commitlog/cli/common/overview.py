"""`commitlog` alone: the logs that are here, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark_commitlog import __version__
from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.format.paths import ROOT_MARKER
from pyspark_commitlog.storage import open_storage
from pyspark_commitlog.text import counted

#: Directories that are looked into, and topics that are named, at most.
_LOOKED, _NAMED = 200, 8


def overview() -> Iterator[str]:
    """Yield the lines about the working directory."""
    return overview_lines(_roots_here())


def _roots_here() -> dict[str, Sequence[str]]:
    """Return the roots that this directory is, or has, with the topics of each."""
    here = open_storage(".")
    try:
        names = [".", *sorted(here.names(""))[:_LOOKED]]
    except (CommitLogError, OSError):
        return {}
    return {name: topics for name in names if (topics := _topics(name)) is not None}


def _topics(name: str) -> Sequence[str] | None:
    """Return the topics of the root at a path, or None if it is none, or does not let us look."""
    from pyspark_commitlog.api.commit_log import CommitLog

    try:
        return CommitLog(name).topics() if open_storage(name).exists(ROOT_MARKER) else None
    except (CommitLogError, OSError):
        return None


def overview_lines(roots: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what is here, and the commands for it (pure)."""
    yield f"commitlog {__version__}: Kafka's commit log without brokers"
    yield ""
    for root, topics in roots.items():
        more = ", …" if len(topics) > _NAMED else ""
        yield f"  {root}  {counted(len(topics), 'topic')}{': ' * bool(topics)}{', '.join(topics[:_NAMED])}{more}"
    if not roots:
        yield "No log in this directory. Make one, write to it, read it:"
    else:
        yield ""
        yield "Next:"
    root = next(iter(roots), "log")
    topic = next((name for name in roots.get(root, ())), "clicks")
    steps = {
        f"topics create {root} {topic}": not roots.get(root),
        f"topics describe {root}": bool(roots.get(root)),
        f"produce {root} {topic}": True,
        f"cat {root} {topic} -o -10 -e": True,
        f"ui {root}": bool(roots.get(root)),
        f"doctor {root}": bool(roots),
    }
    yield from (f"  commitlog {step}" for step, is_shown in steps.items() if is_shown)
    yield ""
    yield "commitlog --help lists all commands, commitlog COMMAND --help what one takes."
