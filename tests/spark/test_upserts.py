"""The example that keeps a table of SQLite; those of Postgres and Delta are in tests/upserts."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import REPOSITORY
from tests.support.upserts import AFTER_FIRST, FIRST, Rows, Scene, UpsertStories, example


class SqliteTable:
    """A table of users in SQLite."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.users = example("upsert_sqlite").Users(str(database))

    def upsert(self, changes: DataFrame, query: str, batch_id: int) -> None:
        self.users.upsert(changes, query, batch_id)

    def rows(self) -> Rows:
        return {user: (name, city) for user, name, city in self._run("SELECT id, name, city FROM users")}

    def edit(self, user: str, name: str) -> None:
        self._run("UPDATE users SET name = ? WHERE id = ?", name, user)

    def forbid(self, user: str) -> None:
        refuse = "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        self._run(f"CREATE TRIGGER refused BEFORE INSERT ON users WHEN NEW.id = '{user}' {refuse}")

    def allow(self) -> None:
        self._run("DROP TRIGGER refused")

    def _run(self, statement: str, *values: str) -> list[tuple[str, ...]]:
        with closing(sqlite3.connect(self.database)) as connection, connection:
            return connection.execute(statement, values).fetchall()


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    """Return a topic without records, and an empty table."""
    return Scene(spark, tmp_path, SqliteTable(tmp_path / "users.db"))


class TestSqlite(UpsertStories):
    """The stories, in SQLite."""


@pytest.mark.nightly
def test_what_the_document_says_runs(tmp_path: Path) -> None:
    (commands,) = re.findall(
        r"## Try it\n+```\n(.*?)```", (REPOSITORY / "docs/how-to/upserts.md").read_text(), re.DOTALL
    )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-e", "-c", commands.replace("/tmp/", f"{tmp_path}/").replace("users.txt", f"{tmp_path}/users.txt")],
        cwd=REPOSITORY, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert SqliteTable(tmp_path / "users.db").rows() == {"ada": ("Ada", "Paris")}


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        pytest.param(None, ("Ada", "London"), "a record without a key is no row of a table", marks=pytest.mark.nightly),
        ("ada", b"{", "MALFORMED_RECORD"),
    ],
)
def test_what_is_no_row_ends_the_query_and_is_not_lost(
    key: str | None, value: tuple[str, str] | bytes, told: str, scene: Scene
) -> None:
    scene.send(*FIRST)
    scene.follow()
    scene.send((key, value))
    with pytest.raises(StreamingQueryException, match=told):
        scene.follow()
    assert scene.table.rows() == AFTER_FIRST
