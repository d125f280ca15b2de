"""The example that keeps a table of Postgres: a server of the tests' own, on a socket in a directory of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.upserts import Rows, Scene, UpsertStories, example

MISSING = "these tests need Postgres, and {what}: apt-get install postgresql, as `make test-upserts` does where it may"
SECONDS = 60


class PostgresTable:
    """A table of users in a database of its own."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.users = example("upsert_postgres").Users(database)

    def upsert(self, changes: DataFrame, query: str, batch_id: int) -> None:
        self.users.upsert(changes, query, batch_id)

    def rows(self) -> Rows:
        return {user: (name, city) for user, name, city in run(self.database, "SELECT id, name, city FROM users")}

    def edit(self, user: str, name: str) -> None:
        run(self.database, f"UPDATE users SET name = '{name}' WHERE id = '{user}'")

    def forbid(self, user: str) -> None:
        run(self.database, f"ALTER TABLE users ADD CONSTRAINT refused CHECK (id <> '{user}')")

    def allow(self) -> None:
        run(self.database, "ALTER TABLE users DROP CONSTRAINT refused")


def run(database: str, statement: str) -> list[tuple[str, ...]]:
    """Run one statement, outside a transaction, and return its rows."""
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def program(name: str) -> str:
    """Return the path of a program of Postgres; Debian keeps the server's outside PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: -int(found.parent.name))
    found = shutil.which(name, path=os.pathsep.join([*map(str, versions), os.environ["PATH"]]))
    if found is None:
        pytest.fail(MISSING.format(what=f"`{name}` is not there"), pytrace=False)
    return found


def owner() -> str | None:
    """Return the user who runs the server: its own where this is root, as whom it refuses to run; None for this one."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        pytest.fail(MISSING.format(what="root has no user `postgres` to run it as"), pytrace=False)


@contextmanager
def server() -> Iterator[str]:
    """Yield the directory of the socket of a server that runs meanwhile."""
    user = owner()
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as home:  # a socket's path is short
        if user:
            shutil.chown(home, user)

        def control(*arguments: str) -> None:
            done = subprocess.run(
                [program("pg_ctl"), "--pgdata", f"{home}/data", *arguments],
                user=user, cwd=home, capture_output=True, text=True, timeout=SECONDS, check=False,
            )  # fmt: skip
            log = Path(home, "log")
            assert done.returncode == 0, done.stderr + (log.read_text() if log.is_file() else "")

        # The server's own user has the rights of the database's; nobody else reaches the socket.
        control("init", "--silent", "-o", "--username=postgres --auth=trust --encoding=UTF8 --no-sync")
        control("start", "--silent", "--log", f"{home}/log", "-o", f"-k {home} -c listen_addresses='' -c fsync=off")
        try:
            yield home
        finally:
            control("stop", "--silent", "--mode=immediate")


@pytest.fixture(scope="module")
def socket() -> Iterator[str]:
    """Yield where a server listens."""
    with server() as home:
        yield home


@pytest.fixture
def scene(socket: str, spark: SparkSession, tmp_path: Path) -> Scene:
    """Return a topic without records, and an empty table."""
    run(f"host={socket} user=postgres dbname=postgres", "DROP DATABASE IF EXISTS crm")
    run(f"host={socket} user=postgres dbname=postgres", "CREATE DATABASE crm")
    return Scene(spark, tmp_path, PostgresTable(f"host={socket} user=postgres dbname=crm"))


class TestPostgres(UpsertStories):
    """The stories, in Postgres."""
