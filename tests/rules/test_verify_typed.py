"""`verify` decodes typed frames whole: text that is no UTF-8, nulls that are declared NOT NULL, columns of another topic."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns.untyped import HEADERS, SCHEMA as UNTYPED, TIMESTAMP
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.segments.encoding import encode_frame
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.staging import Staged, StagedExtent
from tests.support.records import append
from tests.support.typed_rows import batch_of_columns
from tests.support.world import CHUNKS, World

SCHEMA = pa.schema(
    [
        pa.field("user", pa.string(), nullable=False),
        pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
        pa.field("note", pa.string()),
    ]
)
TAGS = pa.list_(pa.field("element", pa.string()))
GOOD = {
    "user": pa.array(["a", "b", "c"]),
    "tags": pa.array([["x"], None, []], TAGS),
    "note": pa.array([None, "y", "y"]),
    "timestamp": pa.array([1, 2, 3], TIMESTAMP),
}


def make(world: World) -> tuple[TopicLog, TopicSchema]:
    world.log().create_topic("t", 1, CHUNKS, schema=SCHEMA)
    topic = world.handle()
    schema = topic.newest()[1].schema
    assert schema is not None
    return topic, schema


def put(topic: TopicLog, data: bytes, rows: int = 3) -> None:
    """Commit a frame as it is, settle it as it is."""
    topic_id = topic.newest()[1].topic_id
    commit(topic, topic_id, [Staged("t", topic_id, (StagedExtent(0, 0, len(data), rows),), None, data)])


def framed(topic: TopicLog, schema: TopicSchema, columns: dict[str, pa.Array]) -> bytes:
    """Return columns, by name, as a frame, unchecked."""
    ids = {column.name: column.stored_name for column in schema.columns}
    rows = batch_of_columns({ids.get(name, name): values for name, values in columns.items()})
    topic_id = topic.newest()[1].topic_id
    return encode_frame(
        rows, codec="lz4", topic_id=topic_id, partition=0, log_append_time=False, base_offset=0
    ).joined()


def faults(world: World) -> list[str]:
    """Return what verify finds, before and after the frame is settled, which has to be the same."""
    before = world.log().topic("t").verify().faults
    topic = world.handle()
    settle(topic, topic.newest()[1].topic_id)
    after = world.log().topic("t").verify().faults
    assert [fault.partition(": ")[2] for fault in before] == [fault.partition(": ")[2] for fault in after]
    return [fault.partition(": ")[2] for fault in before]


def test_good_rows_have_no_fault(world: World) -> None:
    topic, schema = make(world)
    put(topic, framed(topic, schema, GOOD))

    assert faults(world) == []


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"user": pa.array([b"a", b"\xff", b"c"]).view(pa.string())}, "is no valid string"),
        ({"note": pa.array([b"\xff", b"\xff", b"\xff"] * 1).view(pa.string())}, "is no valid string"),
        ({"user": pa.array(["a", None, None])}, "column 'user' is null in 2 of 3 rows, and is declared NOT NULL"),
        ({"user": None}, "column 'user' is null in 3 of 3 rows, and is declared NOT NULL"),
        ({"tags": pa.array([[None], None, ["x"]], TAGS)}, "tags[] is null in 1 places of column 'tags'"),
    ],
)
def test_values_that_readers_do_not_look_at_are_faults(
    world: World, columns: dict[str, pa.Array | None], fault: str
) -> None:
    topic, schema = make(world)
    put(topic, framed(topic, schema, {name: each for name, each in {**GOOD, **columns}.items() if each is not None}))

    (found,) = faults(world)
    assert fault in found


def test_text_of_a_dictionary_is_checked_too(world: World) -> None:
    topic, schema = make(world)
    many = {name: pa.concat_arrays([each] * 100) for name, each in GOOD.items()}
    many["user"] = pa.array([b"a", b"\xff\xfe", b"a"] * 100).view(pa.string())
    data = framed(topic, schema, many)
    assert '"dictionary"' in (frame.open_payload(frame.parse_encoded(data)).identity.columns or "")
    put(topic, data, 300)

    (found,) = faults(world)
    assert "is no valid string" in found


def test_an_index_beyond_a_dictionary_is_a_fault(world: World) -> None:
    """Who passes a frame on checks what it says of itself; its values are for readers, and for verify."""
    topic, schema = make(world)
    many = {name: pa.concat_arrays([each] * 100) for name, each in GOOD.items()}
    payload = frame.open_payload(frame.parse_encoded(framed(topic, schema, many)))
    storings = json.loads(payload.identity.columns or "")
    names = {column.name: column.stored_name for column in schema.columns}
    storings[names["user"]][2], storings[names["note"]][2] = 1, 0  # the other's dictionary: one value for three
    identity = frame.Identity(payload.identity.topic_id, 0, "lz4", payload.identity.kind, columns=json.dumps(storings))
    put(topic, frame.encode(payload.message, rows=300, times=frame.Times(0, 0), identity=identity), 300)

    (found,) = faults(world)
    assert "an index leads beyond the 1 values of its dictionary" in found


def test_columns_that_are_not_the_topic_s_are_a_fault(world: World) -> None:
    topic, schema = make(world)
    topic_id = topic.newest()[1].topic_id
    rows = pa.RecordBatch.from_arrays(
        [pa.nulls(3, pa.binary()), pa.nulls(3, pa.binary()), pa.nulls(3, HEADERS), GOOD["timestamp"]],
        schema=UNTYPED,
    )  # fmt: skip
    data = encode_frame(rows, codec="lz4", topic_id=topic_id, partition=0, log_append_time=False, base_offset=0)
    put(topic, data.joined())

    assert schema.names == ("user", "tags", "note")
    (found,) = faults(world)
    assert "3 rows have the columns ['key', 'value', 'headers', 'timestamp'], which are not the topic's" in found


def test_frames_without_rows_are_no_fault(world: World) -> None:
    """What was voided."""
    topic, schema = make(world)
    put(topic, framed(topic, schema, GOOD))
    append(topic, pa.RecordBatch.from_pydict({"user": ["d"]}))
    topic_id = topic.newest()[1].topic_id
    chunk = topic.paths(topic_id).staged
    for name in topic.storage.names(chunk):
        topic.storage.delete(f"{chunk}/{name}")
    world.log().topic("t").void()
    settle(topic, topic_id)

    assert [(void.start, void.end) for void in topic.newest()[1].voids_of(0)] == [(3, 4)]
    assert world.log().topic("t").verify().faults == ()
