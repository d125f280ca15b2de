"""Columns of a typed topic, described. Pure."""

from __future__ import annotations

from pyspark_commitlog.format.schema.simple_string import simple_string
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.topic_description import ColumnDescription, SchemaDescription


def describe_schema(schema: TopicSchema | None) -> SchemaDescription | None:
    """Return a typed topic's columns as values."""
    if schema is None:
        return None
    columns = tuple(
        ColumnDescription(each.name, simple_string(each.field.type), each.field.nullable, each.field.comment)
        for each in schema.columns
    )
    names = {each.id: each.name for each in schema.columns}
    return SchemaDescription(
        schema.version, columns, *(names.get(each or 0) for each in (schema.key, schema.timestamp))
    )
