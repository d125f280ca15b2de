"""Keep a table of a Postgres database as a topic says: the newest value of each key, deleted where it is null.

    pip install "psycopg[binary]"
    spark-submit $(commitlog spark-conf --submit) \\
        examples/upsert_postgres.py --root /tmp/commitlog --checkpoint /tmp/checkpoint \\
        --database "host=localhost dbname=crm user=etl"

A micro-batch and its number go into one transaction, so either both are there or none, and a batch that Spark runs
again changes nothing. The rows pass through the driver: `--per-batch` bounds its memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from pyspark.sql import DataFrame
from upserts import arguments, run

TABLES = """
CREATE TABLE IF NOT EXISTS users (id text PRIMARY KEY, name text, city text);
CREATE TABLE IF NOT EXISTS batches (query text PRIMARY KEY, batch bigint NOT NULL);
"""
REMEMBER = """
INSERT INTO batches VALUES (%s, %s) ON CONFLICT (query) DO UPDATE SET batch = excluded.batch
WHERE batches.batch < excluded.batch
"""
STAGE = "CREATE TEMPORARY TABLE changes (id text, name text, city text, deleted boolean) ON COMMIT DROP"
DELETE = "DELETE FROM users USING changes WHERE users.id = changes.id AND changes.deleted"
PUT = """
INSERT INTO users SELECT id, name, city FROM changes WHERE NOT deleted
ON CONFLICT (id) DO UPDATE SET name = excluded.name, city = excluded.city
"""


@dataclass
class Users:
    """The table."""

    database: str  # libpq's connection string

    def __post_init__(self) -> None:
        with psycopg.connect(self.database) as connection:
            connection.execute(TABLES)

    def upsert(self, changes: DataFrame, query: str, batch_id: int) -> None:
        """Apply a micro-batch, once."""
        rows = changes.collect()
        # One transaction: it is committed where the block ends, and rolled back where that is by an error.
        with psycopg.connect(self.database) as connection, connection.cursor() as cursor:
            if not cursor.execute(REMEMBER, (query, batch_id)).rowcount:
                return  # it is in the table
            cursor.execute(STAGE)
            with cursor.copy("COPY changes FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            cursor.execute(DELETE)
            cursor.execute(PUT)


def main() -> None:
    """Apply all that the topic holds."""
    parser = arguments(__doc__)
    parser.add_argument("--database", required=True, help="connection string of the Postgres database")
    args = parser.parse_args()
    run("upsert-postgres", args, lambda _: Users(args.database).upsert)


if __name__ == "__main__":
    main()
