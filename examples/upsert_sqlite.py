"""Keep a table of an SQLite database as a topic says: the newest value of each key, deleted where it is null.

    spark-submit $(commitlog spark-conf --submit) \\
        examples/upsert_sqlite.py --root /tmp/commitlog --checkpoint /tmp/checkpoint --database /tmp/users.db

A micro-batch and its number go into one transaction, so either both are there or none, and a batch that Spark runs
again changes nothing. The rows pass through the driver: `--per-batch` bounds its memory.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass

from pyspark.sql import DataFrame
from upserts import arguments, run

TABLES = """
CREATE TABLE IF NOT EXISTS users (id TEXT PRIMARY KEY NOT NULL, name TEXT, city TEXT);
CREATE TABLE IF NOT EXISTS batches (query TEXT PRIMARY KEY NOT NULL, batch INTEGER NOT NULL);
"""
REMEMBER = """
INSERT INTO batches VALUES (?, ?) ON CONFLICT (query) DO UPDATE SET batch = excluded.batch
WHERE batches.batch < excluded.batch
"""
PUT = """
INSERT INTO users VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name, city = excluded.city
"""
DELETE = "DELETE FROM users WHERE id = ?"


@dataclass
class Users:
    """The table."""

    database: str

    def __post_init__(self) -> None:
        with closing(self._connect()) as connection:
            connection.executescript(TABLES)

    def upsert(self, changes: DataFrame, query: str, batch_id: int) -> None:
        """Apply a micro-batch, once."""
        rows = changes.collect()
        with closing(self._connect()) as connection:  # closed before COMMIT, it rolls back
            connection.execute("BEGIN IMMEDIATE")
            if not connection.execute(REMEMBER, (query, batch_id)).rowcount:
                return  # it is in the table
            connection.executemany(DELETE, ((row.id,) for row in rows if row.deleted))
            connection.executemany(PUT, ((row.id, row.name, row.city) for row in rows if not row.deleted))
            connection.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.database, timeout=60, isolation_level=None)


def main() -> None:
    """Apply all that the topic holds."""
    parser = arguments(__doc__)
    parser.add_argument("--database", required=True, help="file of the SQLite database")
    args = parser.parse_args()
    run("upsert-sqlite", args, lambda _: Users(args.database).upsert)


if __name__ == "__main__":
    main()
