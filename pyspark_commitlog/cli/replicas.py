"""`commitlog replicas`: roots that belong together."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_commitlog.cli.common.arguments import AsJson, Root, Topic, Topics, complete_topic, opened
from pyspark_commitlog.cli.common.background_catch_up import CatchingUp
from pyspark_commitlog.cli.common.endings import EachAlone, ended_by_errors, print_lines, stopped_by_signals
from pyspark_commitlog.cli.common.output import recovered_lines, repaired_lines, replicated_lines, root_lines
from pyspark_commitlog.cli.common.progress import busy, with_progress
from pyspark_commitlog.cli.common.storage_options import storage_options
from pyspark_commitlog.errors import CommitLogError, NotFoundError, StorageDeniedError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.api.replica_sync import ReplicaSync
    from pyspark_commitlog.model import Replicated

replicas = typer.Typer(
    help="Make, show, sync and repair roots that belong together: their topics have replicas.", no_args_is_help=True
)


@replicas.command()
def create(
    roots: Annotated[list[str], typer.Argument(metavar="ROOT...", help="Where topics live: a disk or bucket each.")],
    metadata: Annotated[
        list[str] | None,
        typer.Option(help="Where it is decided what comes next: a small directory elsewhere; else the first root."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the roots afterwards, as list --json does.")] = False,
) -> None:
    """Make roots that belong together, in empty places."""
    with ended_by_errors():
        from pyspark_commitlog.api.commit_log import CommitLog

        log = CommitLog.create(roots, metadata or (), storage_options())
        if as_json:
            _print_roots(log)


@replicas.command()
def add(
    root: Root,
    new: Annotated[list[str], typer.Argument(metavar="NEW_ROOT...", help="Empty places, a disk or bucket each.")],
    as_json: AsJson = False,
) -> None:
    """Add roots; one that stands alone gets company, and decides from then on.

    Its topics stay on it alone until `topics alter --replication-factor` gives them replicas.
    """
    with opened(root) as log:
        with busy("adding roots"):
            log.replicas.add(new)
        if as_json:
            _print_roots(log)


@replicas.command()
def remove(
    root: Root,
    gone: Annotated[list[str], typer.Argument(metavar="REMOVED...", help="Roots by id, directory or URL.")],
    as_json: AsJson = False,
) -> None:
    """Take roots out, lost ones too: others get their replicas, if there are any, and lead in their place."""
    with opened(root) as log:
        with busy("removing roots"):
            log.replicas.remove(gone)
        if as_json:
            _print_roots(log)


@replicas.command()
def move(
    root: Root,
    moved: Annotated[str, typer.Argument(metavar="FROM", help="A root by id, directory or URL; a lost one too.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="Another root, or an empty place.")],
    as_json: AsJson = False,
) -> None:
    """Move all replicas of a root to another or an empty place.

    The root is taken out.
    """
    with opened(root) as log:
        with busy("moving replicas"):
            log.replicas.move(moved, to)
        if as_json:
            _print_roots(log)


@replicas.command("replace-metadata")
def replace_metadata(
    root: Root,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A metadata root by id, directory or URL; a lost one too.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="An empty place; where OLD was, if that is empty now.")],
    as_json: AsJson = False,
) -> None:
    """Replace a metadata root, of three or five, by an empty place.

    All go on meanwhile. The old one has no vote any more, if it comes back. What was cut off is finished when it is run
    again.
    """
    with opened(root) as log:
        with busy("replacing a metadata root"):
            log.replicas.replace_metadata(old, new)
        if as_json:
            _print_roots(log)


@replicas.command("list")
def list_roots(root: Root, as_json: AsJson = False) -> None:
    """Show the roots that belong together: what they are for, whether they answer, how many topics each leads."""
    with opened(root) as log:
        if as_json:
            _print_roots(log)
        else:
            print_lines(root_lines(log.replicas.describe()))


def _print_roots(log: CommitLog) -> None:
    print_lines(json.dumps(asdict(each)) for each in log.replicas.describe())


@replicas.command()
def recover(
    root: Root,
    metadata: Annotated[
        str,
        typer.Option(metavar="ROOT", help="Where it is decided from now on: a root that is left, or an empty place."),
    ],
    lost: Annotated[
        list[str], typer.Option(metavar="ROOT", help="A root that is given up for good, by id or URL; may be repeated.")
    ],
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without, only say what it would come to.")] = False,
    as_json: AsJson = False,
) -> None:
    """Go on without metadata that is lost for good: what only the lost roots knew is given up. A dry run by default.

    The roots that are given up must stay switched off. Exit code 1 if a topic can't be recovered, or a root lacks it.
    """
    with opened(root) as log:
        with busy("recovering"):
            found = log.replicas.recover(metadata, lost, execute=execute)
        if as_json:
            print_lines(json.dumps(asdict(each)) for each in found)
        else:
            print_lines(recovered_lines(found, execute=execute))
    raise typer.Exit(1 if any(each.fault or each.failed for each in found) else 0)


@replicas.command()
def elect(
    root: Root,
    topic: Topic,
    to: Annotated[
        str | None,
        typer.Option(metavar="ROOT", help="The root that shall lead: its id, directory or URL; else any in sync."),
    ] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="If none in sync can lead, one that is not: what it lacks is LOST.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Elect another root in sync as leader of a topic (kafka-leader-election).

    Nothing acknowledged by all is lost. With --unclean also one that is not in sync, if the leader is gone and no other
    can lead: records are lost.
    """
    with opened(root) as log:
        with busy("electing a leader"):
            leader = log.replicas.elect(topic, to, unclean=unclean)
        replication = log.topic(topic).describe().replication
        where = replication.leader_url if replication is not None and replication.leader == leader else "another root"
        if as_json:
            print_lines([json.dumps({"topic": topic, "leader": leader, "leader_url": where})])
        else:
            print_lines([f"{topic}: {where} ({leader}) leads"])


#: What another round does not mend, unless one before it went well: then the root is away, or refuses for a while.
_HOPELESS = (NotFoundError, StorageDeniedError, UnsupportedError, UsageError)


@replicas.command()
def sync(
    root: Root,
    topic: Annotated[
        str | None, typer.Argument(help="A topic; all without one.", autocompletion=complete_topic)
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until a signal.")] = False,
    every: Annotated[float, typer.Option(help="With --watch: seconds from one round to the next.", min=0.1)] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Replicate decided entries, readmit replicas that answer again, replace leaders that don't.

    Safe twice at once and beside readers and writers. Exit code 1 if a replica lacks something yet; with --watch 0.
    Where the first round can do nothing at all, as without a root or permission, it ends with --watch too.
    """
    stop = stopped_by_signals() if watch else threading.Event()
    with opened(root) as log:
        from pyspark_commitlog.api.replica_sync import ReplicaSync

        sync = ReplicaSync(log.root)
        code = _round(sync, topic, as_json=as_json, catch_up=not watch, ended_by=_HOPELESS)
        with CatchingUp(lambda: _catch_up(sync, stop), stop) as beside:
            while watch and not stop.is_set():
                beside.go_on()
                if not stop.wait(every):
                    _round(sync, topic, as_json=as_json, catch_up=False)
    raise typer.Exit(0 if watch else code)


def _catch_up(sync: ReplicaSync, stop: threading.Event) -> None:
    """Catch up roots that lagged in the rounds."""
    EachAlone().ask(lambda _: sync.catch_up(stop.is_set))


@replicas.command()
def repair(root: Root, topic: Topics = None, as_json: AsJson = False) -> None:
    """Fetch what is damaged, or missing, at this root from the others that have it; all segments are read.

    Of all topics, or of those named. Safe beside readers and writers. Exit code 1 if no other root has some of it.
    """
    with opened(root) as log:
        each = EachAlone(ended_by=_HOPELESS)
        for name, _ in with_progress(topic or log.root.every_name()):
            done = each.ask(lambda name: log.topic(name).repair(), name)
            if done is None:
                continue
            print_lines([json.dumps(asdict(done))] if as_json else repaired_lines(done))
            if done.left:
                each.found_faults()
        raise typer.Exit(each.code)


def _round(
    sync: ReplicaSync,
    topic: str | None,
    *,
    as_json: bool,
    catch_up: bool,
    ended_by: tuple[type[CommitLogError], ...] = (),
) -> int:
    """Replicate once; return the exit code. Failures are reported, but for `ended_by`."""
    each = EachAlone(ended_by=ended_by)
    for done in each.ask(lambda _: _replicate(sync, topic, catch_up=catch_up)) or ():
        print_lines([json.dumps(asdict(done))] if as_json else replicated_lines(done))
        if done.failed:
            each.found_faults()
    return each.code


def _replicate(sync: ReplicaSync, topic: str | None, *, catch_up: bool) -> Sequence[Replicated]:
    with busy("replicating"):
        if topic is None:
            return sync.sync_all(catch_up=catch_up)
        return [sync.sync(topic) if catch_up else sync.take_turn(topic)]
