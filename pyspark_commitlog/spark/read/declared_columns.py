"""Declared columns of typed topics, as a reader shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_commitlog.errors import NotFoundError, OptionError
from pyspark_commitlog.schema.types import as_nullable

if TYPE_CHECKING:
    from pyspark_commitlog.root.root import Root
    from pyspark_commitlog.schema.topic_schema import TopicSchema, Type
    from pyspark_commitlog.spark.progress.topic_selection import TopicSelection

#: Declared columns by name, in order, with their types.
Declared = dict[str, "Type"]


def schemas_of(log: Root, selection: TopicSelection) -> dict[str, TopicSchema]:
    """Return the schemas of subscribed topics by topic; empty if they are untyped.

    Topics that match a pattern are untyped; missing ones are left to the planner.

    Raises:
        OptionError: some are typed and some are not.
    """
    schemas, untyped = dict[str, "TopicSchema"](), list[str]()
    for name in sorted(selection.topics) if selection.pattern is None else ():
        try:
            _, state = log.topic(name).newest()
        except NotFoundError:
            continue
        if state.schema is None:
            untyped.append(name)
        else:
            schemas[name] = state.schema
    if schemas and untyped:
        raise OptionError(
            f"topic {min(schemas)!r} is typed and topic {untyped[0]!r} is not: read them in two queries"
        )
    return schemas


def merged(schemas: Mapping[str, TopicSchema]) -> Declared:
    """Return the columns of all topics by name; one that a topic lacks is null for its records (pure).

    Raises:
        OptionError: a column has several types.
    """
    found, owners = Declared(), dict[str, str]()
    for topic, schema in schemas.items():
        for column in schema.columns:
            kind = as_nullable(column.field.type)
            if found.setdefault(column.name, kind) != kind:
                raise OptionError(
                    f"column {column.name!r} is {found[column.name]} in topic {owners[column.name]!r} and {kind} in "
                    f"topic {topic!r}: read them in two queries, and cast one"
                )
            owners.setdefault(column.name, topic)
    return found


def pins(schemas: Mapping[str, TopicSchema]) -> dict[str, dict[str, int]]:
    """Return column ids by topic and name: what tasks look for in frames (pure)."""
    return {topic: {column.name: column.id for column in schema.columns} for topic, schema in schemas.items()}
