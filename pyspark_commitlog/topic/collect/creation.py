"""First entry of a topic, or of its next incarnation, which knows what is collected of the former ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark_commitlog.errors import TopicExistsError
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.journal import Draft, Slot, Stored
from pyspark_commitlog.topic.collect.collect import former_incarnations
from pyspark_commitlog.topic.state.schema_state import place_schema
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Makes the entry that creates a topic, of the newest one and the number that it would have.
Creation = Callable[[Stored | None, Slot], Draft[None]]


def plan_creation(
    topic: TopicLog, topic_id: str, partitions: int, config: Mapping[str, str], schema: TopicSchema | None
) -> Creation:
    """Return what makes the entry, on each attempt (rule R9).

    Raises, when it is called:
        TopicExistsError: the topic is there.
    """

    def plan(base: Stored | None, slot: Slot) -> Draft[None]:
        refuse_existing(topic, base)
        placed, sides = place_schema(schema, slot.sequence, slot.write_id)
        state = TopicState(
            topic_id=topic_id,
            deleted=False,
            config=config,
            log_start=(0,) * partitions,
            log_end=(0,) * partitions,
            created=slot.sequence,
            former_ids=former_incarnations(topic.journal.timed(base), topic.state_of(base.entry)) if base else (),
            former_queries=topic.state_of(base.entry).former_queries if base else (),
            schema=placed,
        )
        return Draft("create", topic_id, {"state": state.to_json()}, sides=sides, result=None)

    return plan


def refuse_existing(topic: TopicLog, base: Stored | None) -> None:
    """Raise TopicExistsError if a topic's newest entry is of one that is there."""
    if base is not None and not topic.state_of(base.entry).deleted:
        raise TopicExistsError(f"topic {topic.name!r} exists already in {topic.storage.url}")
