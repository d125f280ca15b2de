"""Kafka reads what this project writes: its dump tool, its broker, and three clients.

The topic under test comes from `generate_topic`, the only place here that knows the project's API. All else
is Kafka's programs, and a few lines of our own (`frames.py`) that say what the files hold.

The broker meets the files in two ways, and clients must read the same both times:

- *recovering*: after a crash. Kafka checks every frame and rebuilds every index: they must be what we wrote.
- *trusting*: after a clean shutdown. Kafka believes our files, so that its searches go through our indexes.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.kafka import broker as kafka, frames
from tests.kafka.clients import JavaClient, PythonClient
from tests.kafka.dump import dump
from tests.kafka.frames import Frame, Record
from tests.kafka.toolchain import Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.external

TOPIC = "orders"
BARE = "orders-without-indexes"
PARTITIONS = 3
SEGMENT_BYTES = 65_536
INDEX_INTERVAL_BYTES = 4_096
INDEX_BYTES = 1_048_576
FRAME_BYTES = 4_096
SEEKS = 12
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
WRITTEN = pa.schema(
    [
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


# --- The topic under test: made through the project's public API ---


def generate_topic(root: Path) -> dict[int, Path]:
    """Write a topic of `PARTITIONS` partitions below `root`; return each partition's directory.

    Asked of it (`test_topic_is_worth_testing` checks): several sealed segments of about `SEGMENT_BYTES`
    and an active one; frames of one row and of many; timestamps that sometimes go back; the row at offset
    `o` of partition `p` has a value that starts with `p:o:`.
    """
    from pyspark_commitlog import CommitLog

    config = {
        "segment.bytes": SEGMENT_BYTES,
        "segment.index.bytes": INDEX_BYTES,
        "index.interval.bytes": INDEX_INTERVAL_BYTES,
        "batch.size": FRAME_BYTES,
        "compression.type": "zstd",
        "retention.ms": -1,
    }
    log = CommitLog(str(root))
    log.create_topic(TOPIC, partitions=PARTITIONS, config=config)
    with spark_session() as spark:
        for rows in some_writes():
            frame = spark.createDataFrame(rows).coalesce(1)
            frame.write.format("commitlog").mode("append").options(path=str(root), topic=TOPIC).save()
            log.topic(TOPIC).maintain()  # settles; frames that are published do not merge with later ones
    home = root / "topics" / TOPIC / log.topic(TOPIC).describe().topic_id
    return {number: home / str(number) for number in range(PARTITIONS)}


def some_writes() -> Iterator[pa.Table]:
    """Yield the rows of several writes, large and tiny ones in turn; the last partition gets only a few."""
    some, ends = random.Random(2), [0] * PARTITIONS
    for size in (1, 4000, 2, 3000, 1, 1500, 1):
        rows = list[dict[str, object]]()
        for number in range(PARTITIONS):
            for offset in range(ends[number], ends[number] + max(1, size // (1, 3, 200)[number])):
                value = b"%d:%d:" % (number, offset) + some.randbytes(some.randrange(150))
                microseconds = 1_700_000_000_000_000 + 20_000 * offset + some.randrange(60_000_000)
                rows.append({"partition": number, "value": value, "timestamp": microseconds, "key": value[:5]})
                ends[number] = offset + 1
        yield pa.Table.from_pylist(rows, schema=WRITTEN)


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Start a small Spark of one thread, so that rows keep their order; stop it at the end."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[1]").appName("kafka-tests").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


# --- What is expected of Kafka, said by the files alone ---


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic under test: its partition directories, and what its files hold."""

    directories: Mapping[int, Path]
    frames: Mapping[int, list[Frame]]

    def records(self, partition: int) -> list[Record]:
        """Return the records that a client must find in a partition."""
        return [frame.record for frame in self.frames[partition]]

    def end(self, partition: int) -> int:
        """Return the offset behind a partition's last record."""
        return self.frames[partition][-1].last_offset + 1

    def at_offset(self, partition: int, offset: int) -> Record:
        """Return what must come after seeking to an offset: the first frame that ends at or after it."""
        return next(frame.record for frame in self.frames[partition] if frame.last_offset >= offset)

    def at_time(self, partition: int, milliseconds: int) -> int | None:
        """Return the offset that Kafka must answer for a timestamp: the first record that has at least it."""
        found = (record.offset for record in self.records(partition) if record.timestamp >= milliseconds)
        return next(found, None)


def some_offsets(topic: Topic) -> list[tuple[int, int]]:
    """Return (partition, offset) pairs: the ends and the middle of frames, the same each time."""
    some = random.Random(0)
    found = list[tuple[int, int]]()
    for number, each in topic.frames.items():
        for frame in [each[0], each[-1], *some.choices([frame for frame in each if frame.rows > 2], k=SEEKS)]:
            offsets = {frame.base_offset, (frame.base_offset + frame.last_offset) // 2, frame.last_offset}
            found += [(number, offset) for offset in sorted(offsets)]
    return found


def some_times(topic: Topic) -> list[tuple[int, int]]:
    """Return (partition, milliseconds) pairs: around timestamps that are there, and beyond all of them."""
    some = random.Random(1)
    found = list[tuple[int, int]]()
    for number in topic.frames:
        there = [record.timestamp for record in topic.records(number)]
        for milliseconds in [min(there), max(there), *some.choices(there, k=SEEKS)]:
            found += [(number, milliseconds + step) for step in (-1, 0, 1)]
    return found


def sealed_and_active(directory: Path) -> tuple[list[Path], Path]:
    """Return a partition's `.log` files: the sealed ones, and the active one."""
    *sealed, active = sorted(directory.glob("*.log"))
    return sealed, active


def logs(directory: Path) -> dict[str, bytes]:
    """Return a partition's `.log` files."""
    return {name: data for name, data in kafka.partition_files(directory).items() if name.endswith(".log")}


def closed_time_index(log: Path) -> bytes:
    """Return our time index with the last entry that Kafka adds on rolling, closing and recovering."""
    ours = frames.entries(log.with_suffix(".timeindex"))
    newest = max(frames.read_log(log), key=lambda frame: frame.max_timestamp)  # the first one, where several are
    last = newest.max_timestamp.to_bytes(8) + (newest.last_offset - int(log.stem)).to_bytes(4)
    return ours if ours[-12:] == last else ours + last


def closed(directory: Path) -> dict[str, bytes]:
    """Return a partition's files as a clean shutdown leaves them: trimmed, with a last entry for time."""
    files = kafka.partition_files(directory)
    _, active = sealed_and_active(directory)
    files[f"{active.stem}.index"] = frames.entries(active.with_suffix(".index"))
    files[f"{active.stem}.timeindex"] = closed_time_index(active)
    return files


# --- Fixtures ---


@pytest.fixture(scope="session")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Topic:
    """Return the topic under test; its files stay as they are."""
    directories = generate_topic(tmp_path_factory.mktemp("root"))
    return Topic(directories, {number: frames.read_partition(each) for number, each in directories.items()})


@pytest.fixture(scope="module", params=["recovering", "trusting"])
def broker(
    request: pytest.FixtureRequest, java: Java, topic: Topic, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kafka.Broker]:
    """Start a broker on the topic's files; stop it at the end."""
    node = kafka.prepare(java, tmp_path_factory.mktemp(request.param) / "broker")
    config = {"index.interval.bytes": str(INDEX_INTERVAL_BYTES), "segment.index.bytes": str(INDEX_BYTES)}
    recovering = request.param == "recovering"
    contents = {TOPIC: kafka.partition_files, BARE: logs} if recovering else {TOPIC: closed}
    with node.running():
        for name in contents:
            node.create_topic(name, PARTITIONS, {"retention.ms": "-1", **config})
    for name, (number, directory) in itertools.product(contents, topic.directories.items()):
        node.replace_partition(name, number, contents[name](directory))
    if recovering:
        node.forget_clean_shutdown()
    with node.running():
        yield node


recovering_only = pytest.mark.parametrize("broker", ["recovering"], indirect=True)


@pytest.fixture(params=["confluent-kafka", "kafka-python"])
def python_client(request: pytest.FixtureRequest, clients_python: Path, broker: kafka.Broker) -> PythonClient:
    """Return a client library that talks to the broker."""
    return PythonClient(clients_python, request.param, broker.bootstrap)


@pytest.fixture
def java_client(java: Java, broker: kafka.Broker) -> JavaClient:
    """Return Kafka's own client, which talks to the broker."""
    return JavaClient(java, broker.bootstrap)


# --- The files ---


def test_topic_is_worth_testing(topic: Topic) -> None:
    """The topic has what the tests below are about; a topic without it would pass them for nothing."""
    assert sorted(topic.directories) == list(range(PARTITIONS))
    assert any(len(sealed_and_active(each)[0]) >= 2 for each in topic.directories.values()), "no sealed segments"
    everything = [frame for each in topic.frames.values() for frame in each]
    assert {frame.rows > 2 for frame in everything} == {True, False}, "frames of one size only"
    times = [frame.max_timestamp for frame in topic.frames[0]]
    assert times != sorted(times), "timestamps never go back"


def test_every_row_is_in_a_frame_at_its_offset(topic: Topic) -> None:
    """A frame's one record carries an Arrow message whose rows are the offsets that the frame covers."""
    for number, each in topic.frames.items():
        for frame in each:
            assert (frame.record.offset, frame.record.timestamp) == (frame.last_offset, frame.max_timestamp)
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(frame.record.value), SCHEMA)
            said = [value.split(b":")[:2] for value in batch.column("value").to_pylist()]
            covered = range(frame.base_offset, frame.last_offset + 1)
            assert said == [[b"%d" % number, b"%d" % offset] for offset in covered]


# --- Kafka's dump tool ---


def copied(topic: Topic, to: Path) -> list[Path]:
    """Copy the topic's segment files, as the tool may write beside them; return the copies."""
    copies = list[Path]()
    for number, directory in topic.directories.items():
        (to / str(number)).mkdir(parents=True)
        names = kafka.partition_files(directory)
        copies += [Path(shutil.copy(directory / name, to / str(number) / name)) for name in names]
    return copies


def test_dump_tool_finds_no_fault(java: Java, topic: Topic, tmp_path: Path) -> None:
    """Kafka's tool looks at every frame and follows every index entry."""
    files = copied(topic, tmp_path)
    verdict = dump(java, files)
    assert verdict.faults == ()
    assert verdict.batches == sum(map(len, topic.frames.values()))
    steps = [(file, frames.ENTRY_BYTES[file.suffix]) for file in files if file.suffix in frames.ENTRY_BYTES]
    assert verdict.entries == sum(len(frames.entries(file)) // step for file, step in steps)


def flip(position: int) -> Callable[[bytearray], None]:
    """Return a damage: one bit at a position, counted from the end when negative."""

    def damage(data: bytearray) -> None:
        data[position] ^= 1

    return damage


def cut(count: int) -> Callable[[bytearray], None]:
    """Return a damage: the last bytes are gone."""

    def damage(data: bytearray) -> None:
        del data[-count:]

    return damage


def zero_second_entry(data: bytearray) -> None:
    """Damage an offset index so that Kafka's tool stops looking at it without a word."""
    data[8:16] = bytes(8)


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        pytest.param(".log", flip(500), id="payload"),
        pytest.param(".log", flip(7), id="base offset, which no CRC covers"),
        pytest.param(".log", flip(8), id="a length that runs over the end"),
        pytest.param(".log", cut(10), id="torn frame"),
        pytest.param(".log", lambda data: data.extend(b"abc"), id="bytes behind the last frame"),
        pytest.param(".log", lambda data: data.extend(bytes(4096)), id="zeros behind the last frame"),
        pytest.param(".index", flip(3), id="offset in the index"),
        pytest.param(".index", flip(4), id="position in the index"),
        pytest.param(".index", cut(3), id="part of an index entry"),
        pytest.param(".index", zero_second_entry, id="zeroed index entry"),
        pytest.param(".timeindex", flip(7), id="timestamp in the time index"),
        pytest.param(".timeindex", flip(11), id="offset in the time index"),
    ],
)
def test_dump_verdict_sees_damage(
    java: Java, topic: Topic, tmp_path: Path, suffix: str, damage: Callable[[bytearray], None]
) -> None:
    """The verdict is not good by habit: each damage, most of them with exit code 0, is a fault."""
    sealed = sealed_and_active(topic.directories[0])[0][0]
    files = [Path(shutil.copy(sealed.with_suffix(each), tmp_path)) for each in (".log", ".index", ".timeindex")]
    target = next(file for file in files if file.suffix == suffix)
    data = bytearray(target.read_bytes())
    damage(data)
    target.write_bytes(data)
    assert not dump(java, files).good


# --- Kafka's broker ---


def test_broker_leaves_every_log_as_it_is(broker: kafka.Broker, topic: Topic) -> None:
    """No segment is cut, dropped or added, neither by recovery nor on trust."""
    for number, directory in topic.directories.items():
        assert logs(broker.partition(TOPIC, number)) == logs(directory)


@recovering_only
def test_recovery_checks_every_segment_and_finds_no_fault(broker: kafka.Broker, topic: Topic) -> None:
    """The broker did recover: it says so for each segment."""
    for name, (number, directory) in itertools.product((TOPIC, BARE), topic.directories.items()):
        said = [line for line in broker.said().splitlines() if f"[LogLoader partition={name}-{number}," in line]
        recovered = [re.search(r"Recovering unflushed segment (\d+)", line) for line in said]
        assert [int(each[1]) for each in recovered if each] == sorted(int(log.stem) for log in directory.glob("*.log"))
        assert [line for line in said if re.search("invalid|corrupt|truncat", line, re.IGNORECASE)] == []


@recovering_only
@pytest.mark.parametrize("name", [TOPIC, BARE])
def test_rebuilt_indexes_are_ours(broker: kafka.Broker, topic: Topic, name: str) -> None:
    """Indexes that Kafka builds from our frames alone are byte for byte those that we wrote."""
    for number, directory in topic.directories.items():
        sealed, active = sealed_and_active(directory)
        theirs = broker.partition(name, number)
        for log in sealed:
            for index in (log.with_suffix(".index"), log.with_suffix(".timeindex")):
                assert (theirs / index.name).read_bytes() == index.read_bytes(), index
        rebuilt = theirs / active.name
        assert frames.entries(rebuilt.with_suffix(".index")) == frames.entries(active.with_suffix(".index"))
        assert frames.entries(rebuilt.with_suffix(".timeindex")) == closed_time_index(active)


# --- Clients ---


def test_python_client_reads_every_record(python_client: PythonClient, topic: Topic) -> None:
    """From the earliest offset, a client finds one record for each frame, the same in all its parts."""
    found = python_client.read(TOPIC, list(topic.directories))
    assert found == {number: topic.records(number) for number in topic.directories}


def test_python_client_seeks_into_frames(python_client: PythonClient, topic: Topic) -> None:
    """After seeking to any offset, a client gets the frame that covers it."""
    targets = some_offsets(topic)
    assert python_client.seek(TOPIC, targets) == [topic.at_offset(number, offset) for number, offset in targets]


def test_python_client_finds_offsets_for_times(python_client: PythonClient, topic: Topic) -> None:
    """The broker answers the end of the first frame that has the timestamp, or a later one."""
    targets = some_times(topic)
    found = python_client.offsets_for_times(TOPIC, targets)
    assert found == [topic.at_time(number, milliseconds) for number, milliseconds in targets]


@pytest.mark.parametrize("number", range(PARTITIONS))
def test_java_consumer_reads_every_record(java_client: JavaClient, topic: Topic, number: int) -> None:
    """Kafka's console consumer finds the same, and checks each CRC."""
    expected = topic.records(number)
    assert java_client.read(TOPIC, number, "earliest", len(expected)) == expected


@pytest.mark.parametrize("number", range(PARTITIONS))
def test_java_consumer_seeks_into_a_frame(java_client: JavaClient, topic: Topic, number: int) -> None:
    """From the middle of a frame, Kafka's console consumer gets that frame first."""
    frame = next(frame for frame in reversed(topic.frames[number]) if frame.rows > 2)
    assert java_client.read(TOPIC, number, frame.base_offset + 1, 1) == [frame.record]


def test_java_offset_tool_agrees(java_client: JavaClient, topic: Topic) -> None:
    """Kafka's offset tool knows the ends, the newest record and a timestamp."""
    newest = {number: max(topic.records(number), key=lambda record: record.timestamp) for number in topic.directories}
    middle = topic.records(0)[len(topic.records(0)) // 2].timestamp
    assert java_client.offsets(TOPIC, "earliest") == dict.fromkeys(topic.directories, 0)
    assert java_client.offsets(TOPIC, "latest") == {number: topic.end(number) for number in topic.directories}
    assert java_client.offsets(TOPIC, "max-timestamp") == {number: each.offset for number, each in newest.items()}
    answers = {number: topic.at_time(number, middle) for number in topic.directories}
    assert java_client.offsets(TOPIC, middle) == {number: each for number, each in answers.items() if each is not None}
