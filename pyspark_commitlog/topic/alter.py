"""Alters a topic's state by one entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.schema.schema_change import SchemaChange, changed_schema
from pyspark_commitlog.format.schema.topic_schema import check_partitions
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.topic.state.schema_state import place_schema
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog


def alter(topic: TopicLog, change: Callable[[TopicState], TopicState]) -> TopicState:
    """Put a topic's state after `change`, unless nothing changes; return it."""
    _, before = topic.newest()

    def plan(base: Stored | None, slot: Slot) -> Draft[TopicState] | Unchanged[TopicState]:
        _, state = topic.newest_at(base, before.topic_id)
        after = change(state)
        if after == state:  # no entry: a copy that nobody has written to stays one
            return Unchanged(state)
        schema, sides = place_schema(after.schema, slot.sequence, slot.write_id)
        body = {"state": replace(after, schema=schema).to_json()}
        return Draft("alter", state.topic_id, body, sides=sides, result=after)

    return topic.journal.append(plan)[1]


def with_columns_changed(state: TopicState, topic: str, change: SchemaChange, seed: str) -> TopicState:
    """Return a typed topic's state after a change of its columns (pure); see `changed_schema`.

    Raises:
        UsageError: the topic is untyped.
    """
    if state.schema is None:
        raise UsageError(f"topic {topic!r} is untyped, and stays it: create a typed topic, and write its records there")
    schema = changed_schema(state.schema, change, seed)
    check_partitions(schema, state.partitions)
    return replace(state, schema=schema)
