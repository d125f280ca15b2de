"""Kafka reads segments that did not come about by appending alone: compacted, voided and preallocated ones.

A broker meets their `.log` files after a crash, without indexes: what it builds must be what we wrote.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kafka import broker as kafka, frames, scenes
from tests.kafka.clients import JavaClient, PythonClient
from tests.kafka.dump import Batch, dump
from tests.kafka.frames import Frame
from tests.kafka.scenes import Scene
from tests.kafka.toolchain import Java

pytestmark = pytest.mark.external

ZEROS = "Found record size 0 smaller than minimum record overhead"


@pytest.fixture(scope="module")
def every_scene(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Scene]:
    """Return the topics under test; their files stay as they are."""
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in scenes.MAKE.items()}


@pytest.fixture(params=list(scenes.MAKE))
def scene(request: pytest.FixtureRequest, every_scene: Mapping[str, Scene]) -> Scene:
    """Return one of the topics."""
    return every_scene[request.param]


@pytest.fixture(scope="module")
def broker(
    java: Java, every_scene: Mapping[str, Scene], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kafka.Broker]:
    """Start a broker that recovers all topics from their `.log` files; stop it at the end."""
    node = kafka.prepare(java, tmp_path_factory.mktemp("recovering") / "broker")
    config = {"retention.ms": "-1", "index.interval.bytes": str(scenes.INDEX_INTERVAL_BYTES)}
    with node.running():
        for name in every_scene:
            node.create_topic(name, 1, config)
    for name, each in every_scene.items():
        node.replace_partition(name, 0, {log.name: log.read_bytes() for log in logs(each)})
    node.forget_clean_shutdown()
    with node.running():
        yield node


def logs(scene: Scene) -> list[Path]:
    """Return the topic's `.log` files; the active one is the last."""
    return sorted(scene.directory.glob("*.log"))


def sealed_frames(scene: Scene) -> list[list[Frame]]:
    """Return the frames of each sealed segment."""
    return [frames.read_log(log) for log in logs(scene)[:-1]]


def published(scene: Scene, log: Path) -> bytes:
    """Return what counts of a `.log`."""
    data = log.read_bytes()
    return data[: scene.active_bytes] if log == logs(scene)[-1] else data


# --- The files ---


def test_compacted_topic_is_worth_testing(every_scene: Mapping[str, Scene]) -> None:
    """One frame without rows is a whole segment, with others on both sides; another one is a segment's last."""
    segments = sealed_frames(every_scene["compacted"])
    bare = [[scenes.rows_in(frame) == 0 for frame in each] for each in segments]
    assert [True] in bare[1:-1]
    assert any(each[-1] and not any(each[:-1]) for each in bare if len(each) > 1)
    everything = [frame for each in segments for frame in each]
    assert {frame.delete_horizon is None for frame in everything} == {True, False}
    assert {dict(frame.record.headers)["kind"] for frame in everything} == {"arrow-ipc", "arrow-ipc-thinned"}
    assert [frame.max_timestamp for frame in everything] != sorted(frame.max_timestamp for frame in everything)


def test_voided_topic_is_worth_testing(every_scene: Mapping[str, Scene]) -> None:
    """Frames without rows are the topic's first, a segment's last, two that follow each other, and the topic's last."""
    segments = [frames.read_log(log) for log in logs(every_scene["voided"])]
    bare = [[scenes.rows_in(frame) == 0 for frame in each] for each in segments]
    assert bare[0][0]
    assert bare[-1][-1]
    assert any(each[-1] for each in bare[:-1])
    assert any(both == (True, True) for each in bare[:-1] for both in pairwise(each))


def test_preallocated_topic_is_worth_testing(every_scene: Mapping[str, Scene]) -> None:
    """The active segment is as large as reserved, all zeros behind its frames, and there are sealed ones."""
    scene = every_scene["preallocated"]
    *sealed, active = logs(scene)
    assert len(sealed) > 2
    assert active.stat().st_size == scenes.SEGMENT_BYTES
    assert not any(active.read_bytes()[scene.active_bytes :])
    assert 0 < scene.active_bytes < scenes.SEGMENT_BYTES


# --- Kafka's dump tool ---


def ours(scene: Scene, log: Path) -> list[Batch]:
    """Return what our own dump says of a `.log`, and of delete horizons, which it leaves out, the test's own lines."""
    horizons = {frame.position: frame.delete_horizon for frame in frames.read_log(log)}
    return [
        Batch(row["position"], row["bytes"], row["baseOffset"], row["lastOffset"], row["maxTimestamp"],
              horizons[row["position"]], int(row["crc"], 16))
        for row in scene.our_dump(log) if "zeroBytes" not in row
    ]  # fmt: skip


def test_dump_tool_says_what_ours_says(java: Java, scene: Scene, tmp_path: Path) -> None:
    """Every frame is valid, and where and what our own dump says; every index entry leads to its frame."""
    files = [Path(shutil.copy(file, tmp_path)) for file in sorted(scene.directory.iterdir())]
    active = tmp_path / logs(scene)[-1].name
    active.write_bytes(published(scene, logs(scene)[-1]))
    for index in (active.with_suffix(".index"), active.with_suffix(".timeindex")):
        index.write_bytes(frames.entries(index))  # of an active index without any entry the tool takes zeros for one
    verdict = dump(java, files)
    assert verdict.faults == ()
    assert verdict.logs == {tmp_path / log.name: ours(scene, log) for log in logs(scene)}


def test_dump_tool_ends_at_reserved_disk(java: Java, every_scene: Mapping[str, Scene], tmp_path: Path) -> None:
    """As at that of Kafka's own active segments: all frames were valid, and it says so when told where to stop."""
    scene = every_scene["preallocated"]
    active = Path(shutil.copy(logs(scene)[-1], tmp_path))
    verdict = dump(java, [active])
    assert verdict.logs[active] == ours(scene, active)
    assert [ZEROS in fault for fault in verdict.faults if not fault.startswith("stderr: \tat ")] == [True, False]
    assert dump(java, [active], log_bytes=scene.active_bytes).good


# --- Kafka's broker ---


def test_recovery_keeps_every_frame(broker: kafka.Broker, scene: Scene) -> None:
    """Nothing that is published is cut off, and nothing else stays."""
    theirs = kafka.partition_files(broker.partition(scene.name, 0))
    assert {log.name: theirs[log.name] for log in logs(scene)} == {
        log.name: published(scene, log) for log in logs(scene)
    }


def test_rebuilt_indexes_are_ours(broker: kafka.Broker, scene: Scene) -> None:
    """What Kafka builds from the frames of sealed segments is byte for byte what we wrote."""
    theirs = kafka.partition_files(broker.partition(scene.name, 0))
    for log in logs(scene)[:-1]:
        for index in (log.with_suffix(".index"), log.with_suffix(".timeindex")):
            assert theirs[index.name] == index.read_bytes(), index


# --- Clients ---


def test_consumer_reads_every_frame(java: Java, broker: kafka.Broker, scene: Scene) -> None:
    """Kafka's console consumer checks each CRC, and finds each frame's one record, also where there are no rows."""
    expected = [frame.record for log in logs(scene) for frame in frames.read_log(log)]
    assert JavaClient(java, broker.bootstrap).read(scene.name, 0, "earliest", len(expected)) == expected


def test_broker_finds_the_frame_that_we_find(
    clients_python: Path, broker: kafka.Broker, every_scene: Mapping[str, Scene]
) -> None:
    """For a timestamp Kafka answers the end of the frame in which our client finds the record.

    A frame without rows, or a whole segment of such, is not in its way.
    """
    scene = every_scene["compacted"]
    there = [frame for log in logs(scene) for frame in frames.read_log(log)]
    times = [0, *(frame.max_timestamp + step for frame in there for step in (0, 1))]
    found = scene.our_offsets_for_times(times)
    assert None in found
    ends = [
        next((f.last_offset for f in there if f.last_offset >= offset), None) if offset is not None else None
        for offset in found
    ]
    client = PythonClient(clients_python, "confluent-kafka", broker.bootstrap)
    assert client.offsets_for_times(scene.name, [(0, at) for at in times]) == ends
