"""The example that keeps a Delta table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.upserts import Rows, Scene, UpsertStories, example


class DeltaTable:
    """A Delta table of users."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, f"delta.`{path}`"
        self.users = example("upsert_delta").Users(spark, str(path))

    def upsert(self, changes: DataFrame, query: str, batch_id: int) -> None:
        self.users.upsert(changes, query, batch_id)

    def rows(self) -> Rows:
        rows = self.spark.sql(f"SELECT id, name, city FROM {self.path}").collect()
        return {row.id: (row.name, row.city) for row in rows}

    def edit(self, user: str, name: str) -> None:
        self.spark.sql(f"UPDATE {self.path} SET name = '{name}' WHERE id = '{user}'")

    def forbid(self, user: str) -> None:
        self.spark.sql(f"ALTER TABLE {self.path} ADD CONSTRAINT refused CHECK (id <> '{user}')")

    def allow(self) -> None:
        self.spark.sql(f"ALTER TABLE {self.path} DROP CONSTRAINT refused")


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    """Return a topic without records, and an empty table."""
    return Scene(spark, tmp_path, DeltaTable(spark, tmp_path / "users"))


class TestDelta(UpsertStories):
    """The stories, in Delta."""
