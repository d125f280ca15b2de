"""A Kafka broker of one node on loopback, whose partition directories can be replaced while it is down."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kafka.toolchain import Java, die_with_parent

START_SECONDS = 120
STOP_SECONDS = 60
_STARTED = "Kafka Server started"
_CLEAN = ".kafka_cleanshutdown"
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_IDENTITY = "partition.metadata"
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
_FLAGS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Djava.net.preferIPv4Stack=true",
)
# Old timestamps are part of the tests: nothing may expire. One node: every internal topic has one replica.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
log.retention.ms=-1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.network.threads=2
num.io.threads=2
log.cleaner.dedupe.buffer.size=8388608
"""


class BrokerError(Exception):
    """The broker or one of its tools did not do what it was asked; the message ends with its last words."""


@dataclass(slots=True)
class Broker:
    """One node: make it with `prepare`, then use it inside `running`, any number of times."""

    java: Java
    home: Path
    port: int
    flags: Sequence[str] = _FLAGS

    @property
    def bootstrap(self) -> str:
        """Return the address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Return the directory that holds the partition directories."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """Return the file of what the broker said since its last start."""
        return self.home / "broker.log"

    def partition(self, topic: str, partition: int) -> Path:
        """Return the directory of a partition."""
        return self.data / f"{topic}-{partition}"

    @contextmanager
    def running(self) -> Iterator[Broker]:
        """Start the broker; stop it cleanly when the block ends, and kill it should it not stop."""
        with running_together([self]):
            yield self

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as said:
            return subprocess.Popen(
                self.java.command("kafka.Kafka", [str(self._properties)], self.flags),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                preexec_fn=die_with_parent(),
            )

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic through Kafka's admin client; the broker must be running."""
        settings = [word for item in config.items() for word in ("--config", "=".join(item))]
        shape = ["--partitions", str(partitions), "--replication-factor", "1", *settings]
        address = ["--bootstrap-server", self.bootstrap]
        self._tool("org.apache.kafka.tools.TopicCommand", *address, "--create", "--topic", topic, *shape)

    def replace_partition(self, topic: str, partition: int, files: Mapping[str, bytes]) -> None:
        """Put these files in place of a partition's own, all but its identity; the broker must be down."""
        directory = self.partition(topic, partition)
        if not (directory / _IDENTITY).is_file():
            raise BrokerError(f"{directory} is no partition of this broker: it has no {_IDENTITY}")
        for file in directory.iterdir():
            if file.name != _IDENTITY:
                file.unlink()
        for name, data in files.items():
            (directory / name).write_bytes(data)

    def forget_clean_shutdown(self) -> None:
        """Make the next start recover all segments, as after a crash; the broker must be down."""
        for name in (_CLEAN, _RECOVERY_POINTS):
            (self.data / name).unlink()

    def said(self) -> str:
        """Return what the broker logged since its last start."""
        return self.log.read_text(errors="replace")

    @property
    def _properties(self) -> Path:
        return self.home / "server.properties"

    def _tool(self, main: str, *arguments: str) -> None:
        done = self.java.run(main, *arguments)
        if done.returncode != 0:
            raise BrokerError(f"{main} ended with code {done.returncode}: {done.stdout.decode()[-2000:]}{done.stderr}")

    def _wait_until_started(self, process: subprocess.Popen[bytes]) -> None:
        limit = time.monotonic() + START_SECONDS
        while _STARTED not in self.said():
            if process.poll() is not None:
                raise BrokerError(f"the broker ended with code {process.returncode}: {self.said()[-4000:]}")
            if time.monotonic() > limit:
                raise BrokerError(f"the broker did not start within {START_SECONDS} s: {self.said()[-4000:]}")
            time.sleep(0.1)


def prepare(java: Java, home: Path, properties: str = "", flags: Sequence[str] = _FLAGS) -> Broker:
    """Return a formatted broker that keeps all under `home` and listens on free ports of loopback.

    `properties` stand behind the tests' own and win over them; `flags` are Java's.
    """
    port, controller = _free_ports(2)
    broker = Broker(java, home, port, flags)
    broker.data.mkdir(parents=True)
    mine = _PROPERTIES.format(port=port, controller=controller, data=broker.data)
    broker._properties.write_text(mine + properties)
    broker._tool("kafka.tools.StorageTool", "format", "--config", str(broker._properties), "--cluster-id", _CLUSTER)
    return broker


def prepare_cluster(
    java: Java, home: Path, nodes: int, properties: str = "", flags: Sequence[str] = _FLAGS
) -> list[Broker]:
    """Return as many formatted brokers of one cluster, each of which votes; see `prepare`."""
    ports = _free_ports(2 * nodes)
    voters = ",".join(f"{node + 1}@127.0.0.1:{ports[2 * node + 1]}" for node in range(nodes))
    brokers = []
    for node in range(nodes):
        port, controller = ports[2 * node : 2 * node + 2]
        broker = Broker(java, home / f"broker{node + 1}", port, flags)
        broker.data.mkdir(parents=True)
        mine = _PROPERTIES.format(port=port, controller=controller, data=broker.data)
        of_node = f"node.id={node + 1}\ncontroller.quorum.voters={voters}\n"
        broker._properties.write_text(mine + of_node + properties)
        broker._tool("kafka.tools.StorageTool", "format", "--config", str(broker._properties), "--cluster-id", _CLUSTER)
        brokers.append(broker)
    return brokers


@contextmanager
def running_together(brokers: Sequence[Broker]) -> Iterator[None]:
    """Start brokers at once; stop them cleanly when the block ends, and kill those that do not stop."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.extend(broker._start() for broker in brokers)
        for broker, process in zip(brokers, processes, strict=True):
            broker._wait_until_started(process)
        yield
    finally:
        for process in processes:  # all at once: the last one would wait for the votes of the others
            if process.poll() is None:
                os.kill(process.pid, signal.SIGTERM)
        for process in processes:
            _stop(process)


def partition_files(directory: Path) -> dict[str, bytes]:
    """Return a partition's segment files by name: `.log`, `.index` and `.timeindex`."""
    suffixes = (".log", ".index", ".timeindex")
    return {file.name: file.read_bytes() for file in sorted(directory.iterdir()) if file.suffix in suffixes}


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
        raise BrokerError(f"the broker did not stop within {STOP_SECONDS} s and was killed") from None


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [opened.getsockname()[1] for opened in sockets]
    finally:
        for opened in sockets:
            opened.close()
