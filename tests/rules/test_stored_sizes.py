"""A stored length is checked against what is there before memory is taken: files that grew to a TiB, all of it holes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.membership.member_files import MemberFiles
from pyspark_commitlog.groups.state.members import MemberFile, Profile
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, World, many

_TIB = 2**40
_SMALL = {**CHUNKS, "segment.bytes": 1024}


def grown(world: World, part: str) -> None:
    """Let files with this in their path be larger than memory."""
    found = [path for path in world.path.rglob("*") if part in str(path) and path.is_file()]
    assert found
    for path in found:
        os.truncate(path, _TIB)


def test_a_manifest(world: World) -> None:
    topic = world.create(config=_SMALL)
    for _ in range(3):
        append(topic, batch_of(many(30)))
        world.maintain()
    grown(world, "/manifests/")
    with pytest.raises(CorruptionError, match=r"/manifests/.*: more than the expected \d+ bytes"):
        world.values()


def test_inline_frames(world: World) -> None:
    append(world.create(config={"retention.ms": -1}), batch_of([b"x"]))
    grown(world, f"/journal/{2:020d}.json")
    with pytest.raises(CorruptionError, match=r"inline frames of .*: more than the expected \d+ bytes"):
        world.values()


def test_a_side_file(world: World) -> None:
    topic = world.create(1000)
    append(topic, batch_of([b"x"] * 1000, partition=range(1000)))
    entry = topic.newest()[0].entry
    grown(world, ".extents")
    with pytest.raises(CorruptionError, match=r"\.extents: more than the expected \d+ bytes"):
        world.handle().extents(entry)


def test_the_marker_of_the_root(world: World) -> None:
    world.create()
    grown(world, "commitlog.json")
    with pytest.raises(CorruptionError, match=r"commitlog\.json: is no JSON"):
        world.log().root.topic("t")


@pytest.mark.parametrize("nested", [0, 1_000_000])
def test_a_members_file(world: World, nested: int) -> None:
    """It is nobody's until its member writes it anew."""
    world.create()
    files = MemberFiles(world.storage(), "g")
    files.write("m", MemberFile(Profile("c", "h"), 1))
    assert files.read("m") is not None
    path: Path = world.path / paths.group_members("g") / paths.member_name("m")
    if nested:
        path.write_bytes(b"[" * nested)
    else:
        os.truncate(path, _TIB)
    assert files.read("m") is None
