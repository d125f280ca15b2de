"""Declared columns of typed topics, as a reader shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark_commitlog.errors import NotFoundError, OptionError
from pyspark_commitlog.format.paths import journal
from pyspark_commitlog.format.schema.types import as_nullable
from pyspark_commitlog.storage.local.newest_line import newest_line

if TYPE_CHECKING:
    from pyspark_commitlog.format.schema.topic_schema import TopicSchema, Type
    from pyspark_commitlog.spark.progress.topic_selection import TopicSelection
    from pyspark_commitlog.topic.topic_log import TopicLog

#: Begins a topic's schema in an entry; no text inside one has plain quotes.
_MEMBER = b'"schema":{'
#: Declared columns by name, in order, with their types.
Declared = dict[str, "Type"]


class PinnedSchema(NamedTuple):
    """Schema of an incarnation of a topic, as it was when a query's columns were chosen."""

    topic_id: str
    schema: TopicSchema


def pin_schemas(topic: Callable[[str], TopicLog], selection: TopicSelection) -> dict[str, PinnedSchema]:
    """Return the schemas of subscribed topics by topic; empty if they are untyped.

    Topics that match a pattern are not looked at; missing ones are left to the planner.

    Raises:
        OptionError: some are typed and some are not.
    """
    schemas, untyped = dict[str, PinnedSchema](), list[str]()
    for name in sorted(selection.topics) if selection.pattern is None else ():
        try:
            _, state = topic(name).newest()
        except NotFoundError:
            continue
        if state.schema is None:
            untyped.append(name)
        else:
            schemas[name] = PinnedSchema(state.topic_id, state.schema)
    if schemas and untyped:
        raise OptionError(f"topic {min(schemas)!r} is typed and topic {untyped[0]!r} is not: read them in two queries")
    return schemas


def are_untyped(path: str, selection: TopicSelection) -> bool:
    """Whether no schema is in sight, by one look that imports no Arrow; the planner looks again."""
    lines = (newest_line(path, journal(name)) for name in selection.topics)
    return selection.pattern is not None or all(line is not None and _MEMBER not in line for line in lines)


def merged(schemas: Mapping[str, PinnedSchema]) -> Declared:
    """Return the columns of all topics by name; one that a topic lacks is null for its records (pure).

    Raises:
        OptionError: a column has several types.
    """
    found, owners = Declared(), dict[str, str]()
    for topic, pinned in schemas.items():
        for column in pinned.schema.columns:
            kind = as_nullable(column.field.type)
            if found.setdefault(column.name, kind) != kind:
                raise OptionError(
                    f"column {column.name!r} is {found[column.name]} in topic {owners[column.name]!r} and {kind} in "
                    f"topic {topic!r}: read them in two queries, and cast one"
                )
            owners.setdefault(column.name, topic)
    return found
