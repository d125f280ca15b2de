"""`commitlog ui`: starts, says where, answers, and ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from tests.support.commands import COMMAND, run


@pytest.fixture
def root(tmp_path: Path) -> str:
    CommitLog(str(tmp_path / "root")).create_topic("clicks")
    return str(tmp_path / "root")


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [*COMMAND, "ui", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            if process.poll() is None:
                process.kill()


def get(url: str, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as response:
        content: bytes = response.read()
    return content


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal(root: str, number: signal.Signals) -> None:
    with served(root, "--listen", "127.0.0.1:0") as (url, process):
        assert url.startswith("http://127.0.0.1:")
        assert b"<title>commitlog</title>" in get(url)
        assert json.loads(get(f"{url}api/topics"))["rows"][0]["name"] == "clicks"
        process.send_signal(number)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_beyond_loopback_a_token_is_needed(root: str) -> None:
    with served(root, "--listen", "0.0.0.0:0") as (url, _):
        address, _, token = url.partition("/?token=")
        port = address.rpartition(":")[2]
        assert len(token) >= 32
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"http://127.0.0.1:{port}/api/topics")
        assert get(f"http://127.0.0.1:{port}/api/topics", Authorization=f"Bearer {token}")
    with served(root, "--listen", "127.0.0.1:0", "--token") as (other, _):
        assert other.partition("token=")[2] not in ("", token)


def test_the_principal_masks_and_hosts_are_passed_on(root: str) -> None:
    with subprocess.Popen(
        [
            *COMMAND,
            "--principal",
            "ada",
            "ui",
            root,
            "--listen",
            "127.0.0.1:0",
            "--mask",
            "ssn",
            "--host",
            "log.example",
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        answer = json.loads(get(f"{url}api/root", Host="log.example"))
        process.terminate()
    assert (answer["principal"], answer["masked"]) == ("ada", ["ssn"])


def test_what_is_wrong_is_said_in_one_line(root: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = run("ui", root, "--listen", address, code=2)[1]
    assert told.startswith(f"error: --listen {address}: ")
    assert "port 0 for any free one" in told
    assert "use ADDRESS:PORT" in run("ui", root, "--listen", "8321", code=2)[1]
    assert "there is no commit log at" in run("ui", str(tmp_path / "none"), "--listen", "127.0.0.1:0", code=1)[1]


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_how_to_get_it(root: str, package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from pyspark_commitlog.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "ui", root], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr == "error: the page needs more packages: pip install 'pyspark-commitlog[ui]'\n"
