"""Kafka's own assignors, called in a Java of their own: py4j, which PySpark brings, needs no compiler.

Each member's subscription goes in as the bytes that its consumer would send (`ConsumerProtocolSubscription`, version 3).
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from pyspark_commitlog.groups.assignment.assignors import Assigned, Subscriber
from pyspark_commitlog.model import TopicPartition
from tests.kafka.toolchain import TOOL_FLAGS, Java
from tests.support.rounds import Round, rounds

_CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
_VERSION = 3
_MEMBER = re.compile(r"([^\s{]+)=Assignment\(partitions=\[(.*?)\]")
_GENERATION = 2
_NO_RACK = struct.pack(">h", -1)


@contextmanager
def kafka_assignors(java: Java) -> Iterator[KafkaAssignors]:
    """Yield Kafka's assignors; their Java ends with the block."""
    (py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = launch_gateway(
        classpath=f"{java.jars}/*",
        jarpath=str(py4j),
        java_path=java.program,
        javaopts=list(TOOL_FLAGS),
        die_on_exit=True,
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield KafkaAssignors(gateway)
    finally:
        gateway.shutdown()


class KafkaAssignors:
    """What Kafka makes of the same input."""

    def __init__(self, gateway: JavaGateway) -> None:
        java, kafka = gateway.jvm.java, gateway.jvm.org.apache.kafka
        consumer = kafka.clients.consumer
        # each name on the way to a class is a question to Java: ask once
        self._map, self._list, self._set = java.util.HashMap, java.util.ArrayList, java.util.HashSet
        self._optional, self._wrap = java.util.Optional.ofNullable, java.nio.ByteBuffer.wrap
        self._cluster, self._partition = kafka.common.Cluster, kafka.common.PartitionInfo
        self._group = consumer.ConsumerPartitionAssignor.GroupSubscription
        self._subscription = consumer.internals.ConsumerProtocol.deserializeSubscription
        self._assignors = {name: getattr(consumer, each) for name, each in _CLASSES.items()}
        self.version: str = kafka.common.utils.AppInfoParser.getVersion()

    def assign(
        self,
        name: str,
        partitions: Mapping[str, int],
        subscribers: Mapping[str, Subscriber],
        late: Container[str] = (),
    ) -> Assigned:
        """Return what a group's leader would be told; members are of one generation, those that are `late` of the one before."""
        members = self._map()
        for member, subscriber in subscribers.items():
            data = _subscription(name, subscriber, _GENERATION - (member in late))
            subscription = self._subscription(self._wrap(bytearray(data)))
            subscription.setGroupInstanceId(self._optional(subscriber.instance_id))
            members.put(member, subscription)
        infos = self._list()
        for topic, count in partitions.items():
            for number in range(count):
                infos.add(self._partition(topic, number, None, None, None))
        cluster = self._cluster("cluster", self._list(), infos, self._set(), self._set())
        found = self._assignors[name]().assign(cluster, self._group(members)).groupAssignment()
        return {
            member: [_place(text) for text in places.split(", ") if text]
            for member, places in _MEMBER.findall(found.toString())
        }

    def rounds(self, name: str, seed: int) -> Iterator[tuple[Round, Assigned]]:
        """Yield the rounds of a group whose members have what Kafka gave them.

        With the cooperative assignor nobody claims what is another's: ours is asked by a group, where nobody can.
        """
        claims = name != "cooperative-sticky"
        return rounds(seed, lambda asked: self.assign(name, asked.partitions, asked.subscribers), claims=claims)


def _place(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def _subscription(name: str, subscriber: Subscriber, generation: int) -> bytes:
    """Return a subscription as a consumer sends it; what it owns is also in what the sticky assignor adds itself."""
    topics, owned = sorted(subscriber.topics), _places(subscriber.owned)
    since = struct.pack(">i", generation)
    user_data = {"sticky": owned + since, "cooperative-sticky": since}.get(name, b"")
    head = struct.pack(">hi", _VERSION, len(topics)) + b"".join(map(_string, topics))
    return head + struct.pack(">i", len(user_data)) + user_data + owned + since + _NO_RACK


def _places(places: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    found = [_string(topic) + _numbers(numbers) for topic, numbers in topics.items()]
    return struct.pack(">i", len(found)) + b"".join(found)


def _numbers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
