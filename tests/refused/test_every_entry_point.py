"""What can't heal by itself ends every call and command within seconds, in one line of its own terms.

Permission, a mount that is read only, a path below a file, a root, a topic or a scheme that is not there. The system
refuses another user; only the mount is pretended. Spark's part is in tests/spark/test_refused.py.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

import pytest

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.cli import main
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.progress.source_offset import SourceOffset
from pyspark_commitlog.topic.access import PRINCIPAL_VARIABLE
from tests.support.commands import IMPORTED
from tests.support.records import append, batch_of
from tests.support.refusals import refuse
from tests.support.users import as_another, read_only

#: What nothing may take longer than, s; and after how long a call that goes on is ended.
LIMIT, END = 5.0, 20
Act = Callable[[str, str], object]


# --- the entry points: what each does with a root and a topic ------------------------------------------------


def consume(root: str, topic: str) -> object:
    with Consumer(root, topic, auto_offset_reset="earliest") as consumer:
        return len(consumer.poll(LIMIT))


def consume_in_group(root: str, topic: str) -> object:
    with Consumer(root, topic, group_id="g", auto_offset_reset="earliest") as consumer:
        return len(consumer.poll(LIMIT))


def commit_for_a_group(root: str, topic: str) -> object:
    """It has been given its partition: it joins nobody, and only commits."""
    with Consumer(root, group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=0) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return len(consumer.poll(LIMIT)) + len(consumer.poll())


def send(root: str, topic: str) -> object:
    with Producer(root) as producer:
        return producer.send(topic, b"x").result().topic


def send_durably(root: str, topic: str) -> object:
    with Producer(root, producer_id="p") as producer:
        return producer.send(topic, b"x").result().topic


CALLS: dict[str, tuple[Act, str]] = {
    "Consumer": (consume, "reads"),
    "Consumer of a group": (consume_in_group, "writes"),
    "Consumer that commits for a group": (commit_for_a_group, "writes"),
    "Producer": (send, "writes"),
    "Producer with an id": (send_durably, "writes"),
    "describe": (lambda root, topic: CommitLog(root).topic(topic).describe().name, "reads"),
    "read": (lambda root, topic: len(CommitLog(root).topic(topic).read(0, 0)), "reads"),
    "to_arrow": (lambda root, topic: CommitLog(root).topic(topic).to_arrow().num_rows, "reads"),
    "alter_topic": (lambda root, topic: CommitLog(root).topic(topic).alter({"retention.ms": 1}), "writes"),
    "maintain": (lambda root, topic: CommitLog(root).topic(topic).maintain().topic, "writes"),
}

#: The verbs, run in the root's parent: what they are given, and what they do.
VERBS: dict[str, str] = {
    "access allow ROOT etl write": "writes",
    "access clear ROOT": "writes",
    "access list ROOT": "reads",
    "access revoke ROOT web read": "writes",
    "cat -e ROOT TOPIC": "reads",
    "cat -e -G g ROOT TOPIC": "writes",
    "checkpoint set ROOT root-checkpoint --to-earliest": "reads",
    "checkpoint set ROOT root-checkpoint --to-earliest --execute": "writes",
    "delete-records ROOT TOPIC --offset 0:1": "writes",
    "groups delete ROOT old": "writes",
    "groups describe ROOT old": "reads",
    "groups list ROOT": "reads",
    "groups reset ROOT old --topic TOPIC --to-earliest --execute": "writes",
    "maintain ROOT --once": "writes",
    "maintain ROOT": "writes for ever",
    "maintain ROOT TOPIC": "writes for ever",
    "offsets ROOT TOPIC": "reads",
    "produce ROOT TOPIC": "writes",
    "topics alter ROOT TOPIC --config retention.ms=1": "writes",
    "topics create ROOT new": "makes",
    "topics delete ROOT TOPIC": "writes",
    "topics describe ROOT TOPIC": "reads",
    "topics list ROOT": "reads",
    "verify ROOT": "reads",
    "verify ROOT TOPIC": "reads",
    "void ROOT TOPIC --execute": "writes",
    "probe ROOT": "probes",
    "dump ROOT/topics/TOPIC/journal/00000000000000000001.json": "looks",
    "checkpoint show ROOT-checkpoint": "looks",
}


# --- what stands in the way --------------------------------------------------------------------------------


def with_checkpoint(root: Path) -> tuple[Path, Path]:
    return root, Path(f"{root}-checkpoint")


@contextmanager
def unreadable(root: Path) -> Iterator[None]:
    """Let nobody into a root, nor into the checkpoint beside it."""
    for each in with_checkpoint(root):
        each.chmod(0)
    try:
        yield
    finally:
        for each in with_checkpoint(root):
            each.chmod(0o755)


@contextmanager
def unwritable(root: Path) -> Iterator[None]:
    """Let nobody write there."""
    with ExitStack() as held:
        for each in with_checkpoint(root):
            held.enter_context(read_only(each))
        yield


@dataclass(frozen=True)
class Fault:
    """What stands in the way; `root` and `topic` are what is asked for then, `refuses` what a child pretends."""

    held: Callable[[Path], AbstractContextManager[None]] = lambda root: nullcontext()
    refuses: Callable[[str], None] = lambda root: None
    root: str = "ROOT"
    topic: str = "orders"


FAULTS = {
    "may not read": Fault(held=unreadable),
    "may not write": Fault(held=unwritable),
    "read-only mount": Fault(refuses=lambda root: refuse(root, errno.EROFS)),
    "below a file": Fault(root="ROOT/commitlog.json/root"),
    "no root": Fault(root="ROOT/nothing"),
    "no topic": Fault(topic="ordres"),
    "no such scheme": Fault(root="hdfs://namenode/root"),
}

READABLE = r"cannot (read|list) \S+ under {root}\S*: Permission denied; make it readable for this user"
WRITABLE = r"cannot [^:]*{root}[^:]*: {why}; {do}"
TOLD = {
    "may not read": ("StorageUnreadableError", READABLE),
    "may not write": (
        "StorageReadOnlyError",
        WRITABLE.replace("{why}", "Permission denied").replace("{do}", "make it writable for this user"),
    ),
    "read-only mount": (
        "StorageReadOnlyError",
        WRITABLE.replace("{why}", "Read-only file system").replace("{do}", "mount it writable"),
    ),
    "below a file": (
        "RootNotFoundError",
        "there is no commit log at {asked}: check the path, and that its disk is mounted, or make it with {make}",
    ),
    "no root": (
        "RootNotFoundError",
        "there is no commit log at {asked}: check the path, and that its disk is mounted, or make it with {make}",
    ),
    "no topic": (
        "UnknownTopicError",
        r"unknown topic 'ordres' in {root} \(did you mean 'orders'\?\): (create it with {create}|all that there are: )",
    ),
    "no such scheme": (
        "UnsupportedError",
        "hdfs:// is not supported by this version .*: use s3://",
    ),
}
#: In the terms of a call, and of a command.
IN_PYTHON = {
    "{make}": r"CommitLog\('{asked}'\)\.create_topic\(…\)",
    "{create}": r"CommitLog\('{root}'\)\.create_topic\('ordres', partitions=…\)",
}
IN_SHELL = {"{make}": "commitlog topics create {asked} TOPIC", "{create}": "commitlog topics create {root} ordres"}
FILE = "is no directory: name one, or where to make one"
NOTHING_THERE = "there is no (file|checkpoint with offsets at) {asked}"
#: What some do where others fail, or say otherwise: (what it does, fault) -> the error, or None: all is well.
OTHERWISE: dict[tuple[str, str], tuple[str, str] | None] = {
    ("reads", "may not write"): None,
    ("reads", "read-only mount"): None,
    ("looks", "may not write"): None,
    ("looks", "read-only mount"): None,
    ("makes", "no root"): None,
    ("makes", "below a file"): ("UsageError", FILE),
    ("probes", "no root"): None,
    ("probes", "below a file"): ("UsageError", FILE),
    ("probes", "may not read"): (
        "StorageUnreadableError",
        "cannot read the directory {root}, to make directories in it: Permission denied; make it readable for this user",
    ),
    ("looks", "below a file"): ("NotFoundError", NOTHING_THERE),
    ("looks", "no root"): ("NotFoundError", NOTHING_THERE),
    ("looks", "no topic"): ("NotFoundError", NOTHING_THERE),
}


def expected(does: str, fault: str) -> tuple[str, str] | None:
    """Return the error's class and what it says, as a pattern; None where there is no error."""
    does = does.removesuffix(" for ever")
    return OTHERWISE[does, fault] if (does, fault) in OTHERWISE else TOLD[fault]


def pattern(text: str, terms: dict[str, str], root: Path, fault: Fault) -> str:
    """Return the pattern of what is told about a root that was asked for."""
    for name, term in terms.items():
        text = text.replace(name, term)
    return text.replace("{asked}", fault.root.replace("ROOT", str(root))).replace("{root}", str(root))


# --- a root that others can get to --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with all that the verbs name, and a query's checkpoint beside it."""
    path = tmp_path_factory.mktemp("made")
    log = CommitLog(str(path / "root"), principal="ops")
    log.create_topic("orders", 1)
    append(log.root.topic("orders"), batch_of([b"settled"]))
    log.topic("orders").maintain()
    append(log.root.topic("orders"), batch_of([b"not settled"]))
    log.access.allow("ops", "admin")
    log.access.allow("web", "read")
    with Consumer(str(path / "root"), "orders", group_id="old", auto_offset_reset="earliest", principal="ops") as old:
        assert old.poll(60)
        old.commit()
    planned = SourceOffset({TopicPartition("orders", 0): 2}, {"orders": log.topic("orders").describe().topic_id})
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(planned.to_json())}"), ("commits", "v1\n{}")):
        (path / "root-checkpoint" / name).mkdir(parents=True)
        (path / "root-checkpoint" / name / "0").write_text(text)
    return path


def opened_up(path: Path) -> Path:
    """Let everybody read and write what is below a directory."""
    for each in (path, *path.rglob("*")):
        each.chmod(0o777 if each.is_dir() else 0o666)
    return path


@pytest.fixture
def root(made: Path, warm: None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        for name in ("root", "root-checkpoint"):
            opened_up(Path(shutil.copytree(made / name, Path(directory, name))))
        yield Path(directory, "root")


# --- calls and commands in a process of another user ----------------------------------------------------------


def call(act: Act) -> Act:
    """Return what calls, and gives the name of an error and what it says, or an empty name and what came."""

    def called(root: str, topic: str) -> object:
        try:
            return ["", str(act(root, topic))]
        except Exception as error:  # noqa: BLE001 told to the parent
            return [type(error).__name__, str(error)]

    return called


def command(arguments: Sequence[str]) -> Act:
    """Return what runs a command in this process, and gives its exit code and what it said on stderr."""

    def run(root: str, topic: str) -> object:
        sys.argv = ["commitlog", *(each.replace("ROOT", root).replace("TOPIC", topic) for each in arguments)]
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as told:
            stdin.write(b"a line\n")
            stdin.seek(0)
            with standard_files(stdin.fileno(), out.fileno(), told.fileno()):
                code: object = 0
                try:
                    main()
                except SystemExit as ended:
                    code = ended.code
            told.seek(0)
            return [code, told.read().decode()]

    return run


@contextmanager
def standard_files(*files: int) -> Iterator[None]:
    """Have this process read from, write to and complain to these files, and log as an interpreter that just began."""
    before, streams = [os.dup(number) for number in range(3)], (sys.stdin, sys.stdout, sys.stderr)
    handlers, logging.root.handlers = logging.root.handlers, []
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, file in enumerate(files):
        os.dup2(file, number)
    try:
        with (
            open(0, closefd=False) as sys.stdin,
            open(1, "w", closefd=False) as sys.stdout,
            open(2, "w", closefd=False) as sys.stderr,
        ):
            yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        logging.root.handlers = handlers
        for number, handler in signals.items():
            signal.signal(number, handler)
        for number, file in enumerate(before):
            os.dup2(file, number)
            os.close(file)


@pytest.fixture(scope="module")
def warm(made: Path) -> None:
    """Have all imported what the acts need: another user may not read where that lies."""
    for module in (*IMPORTED, "zoneinfo"):
        import_module(module)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv(PRINCIPAL_VARIABLE, "ops")
        acts = [act for act, _ in CALLS.values()]
        acts += [command(verb.split()) for verb, does in VERBS.items() if not does.endswith(" for ever")]
        for number, act in enumerate(acts):
            for name in ("root", "root-checkpoint"):
                shutil.copytree(made / name, Path(directory, f"{number}", name))
            monkeypatch.chdir(Path(directory, f"{number}"))
            found = act(str(Path(directory, f"{number}", "root")), "orders")
            assert not isinstance(found, list) or found[0] == 0, found  # without a fault all do what they are to do


def tried(act: Act, root: Path, fault: Fault) -> tuple[float, list[object]]:
    """Return how long an act took another user under a fault, s, and what came of it."""

    def timed() -> object:
        signal.alarm(END)
        os.environ[PRINCIPAL_VARIABLE] = "ops"
        os.chdir(root.parent)
        fault.refuses(str(root))
        began = time.monotonic()
        found = act(fault.root.replace("ROOT", str(root)), fault.topic)
        return [time.monotonic() - began, found]

    with fault.held(root):
        seconds, found = cast("tuple[float, list[object]]", as_another(timed))
    return seconds, found


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("entry", CALLS)
def test_a_call_ends(entry: str, name: str, root: Path) -> None:
    act, does = CALLS[entry]
    fault = FAULTS[name]
    seconds, (error, told) = tried(call(act), root, fault)
    assert seconds < LIMIT
    wanted = expected(does, name)
    assert error == (wanted[0] if wanted else ""), told
    if wanted:
        assert re.search(pattern(wanted[1], IN_PYTHON, root, fault), str(told)), told


CELLS = [(verb, name) for verb in VERBS for name in FAULTS if name != "no topic" or "TOPIC" in verb]


@pytest.mark.parametrize(("verb", "name"), CELLS, ids=[f"{verb}-{name}" for verb, name in CELLS])
def test_a_command_ends_and_speaks_of_commands(verb: str, name: str, root: Path) -> None:
    fault = FAULTS[name]
    seconds, (code, told) = tried(command(verb.split()), root, fault)
    assert seconds < LIMIT
    wanted = expected(VERBS[verb], name)
    lines = str(told).splitlines()
    if wanted is None:
        assert (code, [line for line in lines if "error" in line]) == (0, [])
        return
    assert code == (2 if wanted[0] == "UsageError" else 1), told
    assert re.search(pattern(wanted[1], IN_SHELL, root, fault), str(told)), told
    assert len(set(lines)) == len(lines), "nothing is said twice"
    assert all("error: " in line or line.startswith("orders: sent 0 ") for line in lines)
    assert "CommitLog(" not in str(told)
