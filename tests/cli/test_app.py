"""What all commands of `commitlog` share: completion, the version, the log."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from pyspark_commitlog import CommitLog, Producer, __version__
from pyspark_commitlog.cli.common.arguments import complete_topic
from pyspark_commitlog.cli.common.endings import ended_by_errors
from pyspark_commitlog.errors import ConfigError
from tests.support.commands import COMMAND, completions, run


@pytest.fixture
def root(tmp_path: Path) -> str:
    log = CommitLog(str(tmp_path / "root"))
    for name in ("orders", "orders-eu", "flights"):
        log.create_topic(name)
    log.groups.commit("reports", {"orders": {0: 0}})
    return str(tmp_path / "root")


def test_names_of_topics_and_groups_are_completed(root: str) -> None:
    assert completions("cat", root, "or") == ["orders", "orders-eu"]
    assert completions("topics", "describe", root, "fl") == ["flights"]
    assert completions("groups", "describe", root, "r") == ["reports"]
    assert completions("cat", f"{root}-none", "or") == []


_COMPLETE = """
. "$HOME/.bash_completions/commitlog.sh"
COMP_WORDS=(commitlog cat "$1" or) COMP_CWORD=3
_commitlog_completion commitlog
echo "${COMPREPLY[@]}"
"""


def test_what_is_installed_for_a_shell_completes(root: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "commitlog"
    program.parent.mkdir()
    program.write_text(f"#!{COMMAND[0]}\n{COMMAND[2]}\n")
    program.chmod(0o755)
    env = {**os.environ, "HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def in_bash(script: str) -> str:
        command = ["bash", "-c", script, "bash", root]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    assert "bash completion installed" in in_bash("commitlog --install-completion; true")
    assert in_bash(_COMPLETE) == "orders orders-eu\n"


def test_a_completion_waits_three_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of a server that does not answer, a bucket out of reach."""
    waits: list[int] = []

    def hang(log: CommitLog) -> list[str]:
        waits.append(signal.alarm(0))
        return ["orders"]

    monkeypatch.setattr(CommitLog, "topics", hang)
    context = typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None)))
    context.params = {"root": "anywhere"}
    assert complete_topic(context, "or") == ["orders"]
    assert waits == [3]
    assert signal.alarm(0) == 0


def test_a_command_line_that_is_wrong_ends_with_2_and_all_else_with_1(root: str, tmp_path: Path) -> None:
    none = str(tmp_path / "none")
    for verb in ("maintain", "verify"):
        once = ["--once"] if verb == "maintain" else []
        assert "topic name 'bad/name' is not allowed" in run(verb, root, "bad/name", "orders", *once, code=2)[1]
        assert "unknown topic 'gone'" in run(verb, root, "gone", *once, code=1)[1]
        assert "there is no commit log at" in run(verb, none, *once, code=1)[1]
    for words in (["maintain", "--once"], ["verify"], ["void", "orders"], ["topics", "list"], ["probe"]):
        verb = words[: 2 if words[0] == "topics" else 1]
        lines, told = run(*verb, "hdfs://namenode/root", *words[len(verb) :], code=1)
        assert lines == []
        assert told.startswith("error: ")
        assert "Traceback" not in told


def test_a_root_that_would_name_another_directory_is_refused(root: str) -> None:
    for command in (["topics", "list"], ["topics", "create"], ["cat"]):
        words = [] if command[1:] == ["list"] else ["orders"]
        answer = run(*command, "s3:/b", *words, code=2)[1]
        assert answer.startswith("error: 's3:/b' is no URL: write s3://b")
        assert "error: '~/log': ~ is resolved by shells alone" in run(*command, f"{root},~/log", *words, code=2)[1]


def test_a_topic_and_a_root_that_are_swapped(root: str, tmp_path: Path) -> None:
    here = str(tmp_path / "orders")
    for command in (["cat"], ["topics", "describe"], ["offsets"]):
        told = run(*command, here, root, code=1)[1]
        assert told.startswith(f"error: there is no commit log at {here}: ")
        assert told.endswith(f" ({root} is one: should it come first?)\n")
    assert "is one" not in run("cat", here, "orders", code=1)[1]


@pytest.mark.parametrize("command", [[], ["topics"], ["cat"], ["groups", "reset"]])
def test_help_by_its_short_name(command: list[str]) -> None:
    assert run(*command, "-h") == run(*command, "--help")
    assert run(*command, "-h")[0]


@pytest.mark.parametrize(
    ("command", "suggested"),
    [
        ("elect", ". Did you mean 'replicas elect'?"),
        ("repair", ". Did you mean 'replicas repair'?"),
        ("list", ". Did you mean 'topics list', 'groups list', "),
    ],
    ids=["elect", "repair", "list"],
)
def test_an_unknown_command_suggests_subcommands_of_that_name(root: str, command: str, suggested: str) -> None:
    lines, told = run(command, root, code=2)
    assert lines == []
    assert f"No such command '{command}'{suggested}" in told
    assert completions(command, root, "or") == []


def test_what_the_system_refuses_is_one_line(root: str, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, "topics", "list", root], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"error: [Errno 28] No space left on device\n")
    (tmp_path / "file").touch()
    told = run("topics", "create", str(tmp_path / "file"), "orders", code=2)[1]
    assert told == f"error: {tmp_path / 'file'} is no directory: name one, or where to make one\n"


def test_several_failures_that_end_a_command_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is that of the worst."""
    failures = [pa.ArrowInvalid("offset overflow"), ConfigError("topic 'u': no such config")]
    with pytest.raises(typer.Exit) as ended, ended_by_errors():
        raise ExceptionGroup("2 partitions could not be settled", failures)
    assert capsys.readouterr().err == "error: ArrowInvalid: offset overflow\nerror: topic 'u': no such config\n"
    assert ended.value.exit_code == 2


def test_what_the_output_has_no_letters_for_is_escaped(root: str) -> None:
    CommitLog(root).groups.commit("gruppe→ü", {"orders": {0: 0}})
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*COMMAND, "groups", "list", root], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"gruppe\\u2192\xfc\nreports\n", b"")


@pytest.mark.parametrize(
    ("words", "closed", "code", "told"),
    [
        (["produce", "ROOT", "orders"], "<&-", 2, "error: the standard input is closed\n"),
        (["produce", "ROOT", "orders", "--file", "FILE"], "<&-", 0, "orders: sent 1 record to 1 partition\n"),
        (["cat", "ROOT", "orders", "-e"], ">&-", 2, "error: the standard output is closed\n"),
        (["topics", "list", "ROOT"], ">&-", 2, "error: the standard output is closed\n"),
        (["topics", "list", "ROOT", "--json"], ">&-", 2, "error: the standard output is closed\n"),
        (["offsets", "ROOT"], ">&-", 2, "error: the standard output is closed\n"),
    ],
    ids=["produce", "produce a file", "cat", "list", "list as JSON", "offsets"],
)
def test_a_stream_that_is_closed_is_no_traceback(
    root: str, tmp_path: Path, words: list[str], closed: str, code: int, told: str
) -> None:
    pq.write_table(pa.table({"value": ["a"]}), tmp_path / "file.parquet")
    given = [{"ROOT": root, "FILE": str(tmp_path / "file.parquet")}.get(word, word) for word in words]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    done = subprocess.run([*shell, *COMMAND, *given], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, told)


def test_the_version_is_told() -> None:
    assert run("--version")[0] == [f"commitlog {__version__}"]


def test_verbose_tells_what_the_library_does(root: str) -> None:
    assert run("cat", root, "orders", "-e") == ([], "")
    lines, told = run("--verbose", "cat", root, "orders", "-G", "reports", "-e")
    assert lines == []
    assert "INFO pyspark_commitlog.consumer: " in told


_SMALL_PIPE, _PARTITIONS = 4096, 200


def is_still(pid: int) -> bool:
    """Return whether a process takes no tick of processor time while it is looked at for half a second."""

    def ticks() -> list[str]:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]

    before = ticks()
    time.sleep(0.5)
    return ticks() == before


@pytest.mark.parametrize(
    "command",
    [
        ["offsets", "{root}", "wide", "--json"],
        ["topics", "describe", "{root}", "wide"],
        ["topics", "describe", "{root}", "wide", "--json"],
        ["cat", "{root}", "wide", "-e", "-f", "%p %s"],
        ["metrics", "{root}", "--once"],
        ["groups", "describe", "{root}", "reports"],
        ["produce", "{root}", "wide", "--help"],
    ],
    ids=lambda command: " ".join([command[0], *command[3:]]),
)
def test_a_slow_reader_gets_all_though_the_pipe_does_not_block(root: str, command: list[str]) -> None:
    """Node, ssh and CI systems leave it so: what did not fit into the pipe was lost, with exit code 0."""
    log = CommitLog(root)
    log.create_topic("wide", _PARTITIONS)
    log.groups.commit("reports", {"wide": dict.fromkeys(range(_PARTITIONS), 0)})
    with Producer(root) as producer:
        for _ in range(_PARTITIONS):
            producer.send("wide", b"v" * 200, partition=0)
    arguments = [word.format(root=root) for word in command]
    wanted = subprocess.run([*COMMAND, *arguments], capture_output=True, check=False)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _SMALL_PIPE)
    os.set_blocking(writing, False)
    with subprocess.Popen([*COMMAND, *arguments], stdout=writing, stderr=writing) as child, open(reading, "rb") as pipe:
        os.close(writing)
        deadline = time.monotonic() + 60
        while child.poll() is None and not (in_pipe(reading) and is_still(child.pid)):
            assert time.monotonic() < deadline, "it neither ends nor waits"
        out = pipe.read()
    assert child.returncode == wanted.returncode
    assert without_numbers(out) == without_numbers(wanted.stdout + wanted.stderr)


def without_numbers(output: bytes) -> bytes:
    """Return an output without what differs from one look to the next: ages."""
    return re.sub(rb"[0-9]+", b"0", output)


def in_pipe(reading: int) -> int:
    """Return how many bytes wait in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, b"\0" * 4))[0])
