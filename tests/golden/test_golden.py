"""The bytes on disk mean what FORMAT.md says: a stranger's reader and ours read the same from them."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.format import frame
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.maintain.check_indexes import recover
from pyspark_commitlog.topic.state.settle_state import Sealed
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.golden import make_golden, read_golden
from tests.golden.example import example
from tests.support.payloads import payloads_of
from tests.support.records import read_partition

HERE = Path(__file__).parent
FORMAT = HERE.parents[1] / "FORMAT.md"
EXPECTED: dict[str, dict[str, list[list[Any]]]] = json.loads(make_golden.EXPECTED.read_text())
PARTITIONS = [(topic, int(number)) for topic, partitions in EXPECTED.items() for number in partitions]


def as_text(value: Any) -> Any:
    """Return a record, or a part of one, as expected.json tells it: bytes as the text that Latin-1 makes."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return [as_text(item) for item in value] if isinstance(value, list | tuple) else value


def read_all_as_a_stranger(root: Path) -> dict[str, dict[str, list[Any]]]:
    read: dict[str, dict[str, list[Any]]] = {topic: {} for topic in EXPECTED}
    for topic, partition in PARTITIONS:
        read[topic][str(partition)] = as_text(read_golden.read(root, topic, partition))
    return read


def test_a_stranger_reads_what_is_expected() -> None:
    assert read_all_as_a_stranger(make_golden.ROOT) == EXPECTED


@pytest.mark.parametrize(("topic", "partition"), PARTITIONS)
def test_our_reader_reads_what_is_expected(topic: str, partition: int) -> None:
    records = read_partition(TopicLog(LocalStorage(make_golden.ROOT), topic), partition)

    read = [as_text([r.offset, r.key, r.value, r.timestamp, r.headers]) for r in records]
    assert read == EXPECTED[topic][str(partition)]


@pytest.mark.parametrize(("topic", "partition"), PARTITIONS)
def test_our_reader_starts_and_ends_at_any_offset(topic: str, partition: int) -> None:
    log = TopicLog(LocalStorage(make_golden.ROOT), topic)
    offsets = [row[0] for row in EXPECTED[topic][str(partition)]]
    _, state = log.newest()

    for start in range(state.log_start[partition], state.log_end[partition], 5):
        for end in (start + 1, state.log_end[partition]):
            read = [record.offset for record in read_partition(log, partition, start, end)]
            assert read == [offset for offset in offsets if start <= offset < end], f"[{start}, {end})"


@pytest.mark.parametrize("topic", sorted(EXPECTED))
def test_indexes_are_a_function_of_the_log(topic: str, tmp_path: Path) -> None:
    """All of them are lost, of rewritten segments too, and rebuilt to the same bytes."""
    root = tmp_path / "root"
    shutil.copytree(make_golden.ROOT, root)
    handle = TopicLog(LocalStorage(root), topic)
    topic_id = handle.newest()[1].topic_id
    files = sorted((root / handle.paths(topic_id).home).glob("*/*index"))
    before = {path: path.read_bytes() for path in files}
    for path in files:
        path.unlink()

    rebuilt = recover(handle, topic_id)

    assert rebuilt == len(before) // 2
    assert {path: path.read_bytes() for path in files} == before
    assert recover(handle, topic_id) == 0


def test_the_strangers_reader_needs_only_pyarrow() -> None:
    source = Path(read_golden.__file__).read_text()
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "." for node in imports if isinstance(node, ast.ImportFrom)}

    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"pyarrow"}
    assert len(source.splitlines()) <= 160


def test_the_example_of_the_format_is_true() -> None:
    assert example() in FORMAT.read_text(), "python -m tests.golden.example prints what FORMAT.md must show"


def test_making_it_again_makes_the_same(tmp_path: Path) -> None:
    """The same pyarrow: the same bytes.

    Another pyarrow may bring another lz4, zstd or flatbuffers, and so other compressed bytes, lengths and
    rolls that are just as right: then what is read must be the same.
    """
    made = make_golden.make(tmp_path)

    assert json.loads(make_golden.to_json(made)) == EXPECTED
    assert read_all_as_a_stranger(tmp_path) == EXPECTED
    if make_golden.MADE_WITH.read_text() == f"pyarrow {pa.__version__}\n":
        assert make_golden.files(tmp_path) == make_golden.files(make_golden.ROOT)


def test_a_stranger_and_we_read_a_group() -> None:
    newest = max(make_golden.ROOT.glob("groups/the%20groups%2F1/journal/*.json"))
    state = read_golden.entry(newest)[0]["state"]
    told = {row["name"]: (row["offsets"], row["since"], row["metadata"]) for row in state["topics"].values()}
    assert told == {"golden": ([41, -1, -1, 0], [0, 0, 0, 1], ""), "again": ([1], [], "\u20ac")}
    assert (state["generation"], state["floor"]) == (1, 0)
    ids = {name: TopicLog(LocalStorage(make_golden.ROOT), name).newest()[1].topic_id for name in told}
    assert {row["name"]: topic_id for topic_id, row in state["topics"].items()} == ids
    found = CommitLog(str(make_golden.ROOT)).groups.describe("the groups/1")
    assert [row.offset for row in found.partitions] == [1, 41, None, None, 0]
    assert (found.generation, found.metadata) == (1, {"again": "\u20ac"})


# --- the golden root has what it is there for -------------------------------------------------------------


def sealed(partition: int) -> tuple[Sealed, ...]:
    log = TopicLog(LocalStorage(make_golden.ROOT), "golden")
    _, state = log.newest()
    _, settled = log.settled(state.topic_id)
    return log.sealed(settled, partition)


def test_it_has_every_codec_and_kind() -> None:
    logs = make_golden.ROOT.glob("topics/golden/*/[012]/0000000000000000*.log")
    identities = [payload.identity for log in logs for payload in payloads_of(log)]

    assert {identity.codec for identity in identities} == {"none", "lz4", "zstd"}
    assert {identity.kind for identity in identities} == {frame.DENSE, frame.SPARSE}


def test_it_has_a_rewritten_segment_with_gaps_inside_and_at_its_end() -> None:
    first, second = sealed(2)
    left = [row[0] for row in EXPECTED["golden"]["2"] if row[0] < first.end_offset]

    assert (first.rewrite, second.rewrite) == (1, 0)
    assert left[0] > 0
    assert left[-1] < first.end_offset - 1
    assert {after - before for before, after in pairwise(left)} > {1, 2}


def test_it_has_an_extent_that_is_settled_in_part() -> None:
    log = TopicLog(LocalStorage(make_golden.ROOT), "golden")
    _, state = log.newest()
    _, settled = log.settled(state.topic_id)
    first = log.extents(log.journal.read(settled.oldest_unsettled).entry)[0]

    assert first.base_offset < settled.partitions[0].end_offset < first.end_offset


def test_it_has_nulls_and_every_kind_of_headers() -> None:
    rows = [row for partition in EXPECTED["golden"].values() for row in partition]

    assert {None, "", "21"} <= {row[1] for row in rows}
    assert None in {row[2] for row in rows}
    headers = [row[4] for row in rows]
    assert all(kind in headers for kind in (None, [], [["same", "1"], ["same", None], ["", ""]]))


def test_it_is_small() -> None:
    assert sum(map(len, make_golden.files(make_golden.ROOT).values())) < 150_000
