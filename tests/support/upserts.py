"""What holds for every example of upserts, whatever the table is in: the stories, told to one table after the other."""

from __future__ import annotations

import importlib
import json
import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import CommitLog, Producer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOPIC = "users"
Rows = dict[str, tuple[str | None, str | None]]


class Table(Protocol):
    """A table of users that an example keeps, and what a test does to it past the example."""

    def upsert(self, changes: DataFrame, query: str, batch_id: int) -> None:
        """Apply a micro-batch."""

    def rows(self) -> Rows:
        """Return id: (name, city)."""

    def edit(self, user: str, name: str) -> None:
        """Change a name."""

    def forbid(self, user: str) -> None:
        """Have the database refuse a row of this id."""

    def allow(self) -> None:
        """Take that back."""


def example(name: str) -> ModuleType:
    """Return an example as a module."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


@dataclass
class Scene:
    """A topic of users, and a query that keeps a table of them."""

    spark: SparkSession
    home: Path
    table: Table

    def __post_init__(self) -> None:
        CommitLog(self.root).create_topic(TOPIC, partitions=3, if_not_exists=True)

    @property
    def root(self) -> str:
        return str(self.home / "log")

    @property
    def checkpoint(self) -> Path:
        return self.home / "checkpoint"

    def send(self, *changes: tuple[str | None, tuple[str, str] | bytes | None]) -> None:
        """Send users: (id, (name, city)), (id, None) where one is deleted, or (id, bytes) as they are."""
        with Producer(self.root) as producer:
            for user, change in changes:
                known = isinstance(change, tuple)
                value = json.dumps(dict(zip(("name", "city", "more"), (*change, 1), strict=True))) if known else change
                producer.send(TOPIC, value, user)

    def follow(self) -> None:
        """Run the query until it has read all."""
        args = Namespace(root=self.root, topic=TOPIC, checkpoint=str(self.checkpoint), per_batch=1000, follow=False)
        example("upserts").follow(self.spark, args, self.table.upsert)

    def forget_the_last_batch(self) -> Path:
        """Leave the checkpoint as a crash behind the table's commit does: Spark runs the batch again."""
        commits = sorted((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
            path.unlink(missing_ok=True)
        return commits[-1]


FIRST = (
    ("ada", ("Ada", "London")), ("bob", ("Bob", "Rome")), ("ada", ("Ada", "Paris")), ("cyd", ("Cyd", "Bonn")),
    ("cyd", None), ("dan", ("Dan", "Oslo")),
)  # fmt: skip
SECOND = (("bob", ("Bob", "Riga")), ("dan", None), ("eve", ("Eve", "Kyiv")), ("nobody", None), ("cyd", ("Cyd", "Köln")))
AFTER_FIRST: Rows = {"ada": ("Ada", "Paris"), "bob": ("Bob", "Rome"), "dan": ("Dan", "Oslo")}
AFTER_SECOND: Rows = {
    "ada": ("Ada", "Paris"), "bob": ("Bob", "Riga"), "eve": ("Eve", "Kyiv"), "cyd": ("Cyd", "Köln"),
}  # fmt: skip


class UpsertStories:
    """A test class of an example derives from this; its fixture `scene` has the table."""

    @pytest.mark.nightly
    def test_the_table_has_each_key_s_newest_value_and_none_that_was_deleted(self, scene: Scene) -> None:
        scene.send(*FIRST)
        scene.follow()
        assert scene.table.rows() == AFTER_FIRST
        scene.send(*SECOND)
        scene.follow()
        assert scene.table.rows() == AFTER_SECOND

    def test_a_batch_that_is_run_again_changes_nothing(self, scene: Scene) -> None:
        for changes, rows in ((FIRST, AFTER_FIRST), (SECOND, AFTER_SECOND)):
            scene.send(*changes)
            scene.follow()
            assert scene.table.rows() == rows
        scene.table.edit("bob", "Robert")  # by another writer, after the batch: a second merge would undo it
        forgotten = scene.forget_the_last_batch()
        scene.send(("fay", ("Fay", "Lyon")))
        scene.follow()
        assert forgotten.exists(), "the batch was not run again"
        assert scene.table.rows() == AFTER_SECOND | {"bob": ("Robert", "Riga"), "fay": ("Fay", "Lyon")}

    @pytest.mark.nightly
    def test_a_new_checkpoint_applies_all_again(self, scene: Scene) -> None:
        scene.send(*FIRST)
        scene.follow()
        scene.table.edit("bob", "Robert")
        scene.checkpoint.rename(scene.home / "lost")
        scene.follow()
        assert scene.table.rows() == AFTER_FIRST

    def test_a_batch_that_fails_leaves_the_table_as_it_was_and_is_applied_when_it_can_be(self, scene: Scene) -> None:
        scene.send(*FIRST)
        scene.follow()
        scene.table.forbid("fay")
        scene.send(("fay", ("Fay", "Lyon")), *SECOND)
        with pytest.raises(StreamingQueryException):
            scene.follow()
        assert scene.table.rows() == AFTER_FIRST
        scene.table.allow()
        scene.follow()
        assert scene.table.rows() == AFTER_SECOND | {"fay": ("Fay", "Lyon")}
