"""Hadoop's own name node and data node on loopback: these tests run by `make test-hdfs` only; Maven fetches the jars."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from tests.kafka.toolchain import ToolMissingError, die_with_parent, jars

POM = Path(__file__).parent / "pom.xml"
_READY_SECONDS = 90
_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this directory."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.external)


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster of one data node."""
    java = Path(os.environ.get("JAVA_HOME", "/usr"), "bin", "java")
    if not java.exists():
        pytest.fail("HDFS needs Java 17 or later: install it, and let JAVA_HOME name it", pytrace=False)
    try:
        classes = jars(POM)
    except ToolMissingError as missing:
        pytest.fail(str(missing), pytrace=False)
    home = tmp_path_factory.mktemp("hdfs")
    rpc, web = _free_port(), _free_port()
    _configure(home, rpc, web)
    command = [str(java), "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{home}/conf:{classes}/*"]
    subprocess.run([*command, _NAME_NODE, "-format", "-force"], check=True, capture_output=True, timeout=120)
    nodes = []
    try:
        for main in (_NAME_NODE, _DATA_NODE):
            output = (home / f"{main}.output").open("wb")
            nodes.append(subprocess.Popen([*command, main], stdout=output, stderr=output, preexec_fn=die_with_parent()))
        _wait(home, web, nodes)
        yield f"webhdfs://127.0.0.1:{web}"
    finally:
        for node in nodes:
            node.kill()
            node.wait()


def _configure(home: Path, rpc: int, web: int) -> None:
    for name in ("hdfs", "datanode"):  # the pages that the servers show, which are in no jar
        (home / "conf" / "webapps" / name / "WEB-INF").mkdir(parents=True)
    settings = {
        "fs.defaultFS": f"hdfs://127.0.0.1:{rpc}",
        "dfs.replication": "1",
        "dfs.namenode.name.dir": f"file://{home}/name",
        "dfs.datanode.data.dir": f"file://{home}/data",
        "dfs.namenode.http-address": f"127.0.0.1:{web}",
        "dfs.datanode.address": "127.0.0.1:0",
        "dfs.datanode.http.address": "127.0.0.1:0",
        "dfs.datanode.ipc.address": "127.0.0.1:0",
        "dfs.datanode.hostname": "127.0.0.1",
        "dfs.permissions.enabled": "false",
    }
    lines = "".join(f"<property><name>{one}</name><value>{value}</value></property>" for one, value in settings.items())
    for name in ("core-site.xml", "hdfs-site.xml"):
        (home / "conf" / name).write_text(f"<configuration>{lines}</configuration>")


def _wait(home: Path, web: int, nodes: list[subprocess.Popen[bytes]]) -> None:
    """Wait until a file can be written."""
    until, where = time.monotonic() + _READY_SECONDS, f"http://127.0.0.1:{web}/webhdfs/v1/ready"
    while True:
        with suppress(requests.RequestException):
            if (
                requests.put(where, params={"op": "CREATE", "overwrite": "true"}, data=b"1", timeout=10).status_code
                == 201
            ):
                return
        if time.monotonic() > until or any(node.poll() is not None for node in nodes):
            said = "".join(path.read_text()[-1000:] for path in home.glob("*.output"))
            raise AssertionError(f"HDFS did not start: {said}")
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
