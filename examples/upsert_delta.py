"""Keep a Delta table as a topic says: the newest value of each key, deleted where it is null.

    spark-submit $(commitlog spark-conf --submit) \\
        --packages io.delta:delta-spark_4.2_2.13:4.4.0 \\
        examples/upsert_delta.py --root /tmp/commitlog --checkpoint /tmp/checkpoint --table /tmp/users

The rows stay in Spark. Delta keeps the query's id and the batch's in the commit that merges a micro-batch, and leaves
out a batch that it has, so one that Spark runs again changes nothing. Delta 4.4 is for PySpark 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from upserts import arguments, run

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
TABLE = "CREATE TABLE IF NOT EXISTS delta.`{table}` (id STRING NOT NULL, name STRING, city STRING) USING delta"
MERGE = """
MERGE INTO delta.`{table}` AS users USING changes ON users.id = changes.id
WHEN MATCHED AND changes.deleted THEN DELETE
WHEN MATCHED THEN UPDATE SET name = changes.name, city = changes.city
WHEN NOT MATCHED AND NOT changes.deleted THEN
INSERT (id, name, city) VALUES (changes.id, changes.name, changes.city)
"""


@dataclass
class Users:
    """The table."""

    spark: SparkSession
    table: str

    def __post_init__(self) -> None:
        self.spark.sql(TABLE.format(table=self.table))

    def upsert(self, changes: DataFrame, query: str, batch_id: int) -> None:
        """Apply a micro-batch, once."""
        session = changes.sparkSession  # the query's own: what is set there reaches no other
        session.conf.set("spark.databricks.delta.write.txnAppId", query)
        session.conf.set("spark.databricks.delta.write.txnVersion", batch_id)
        changes.createOrReplaceTempView("changes")
        session.sql(MERGE.format(table=self.table))


def main() -> None:
    """Apply all that the topic holds."""
    parser = arguments(__doc__)
    parser.add_argument("--table", required=True, help="directory of the Delta table")
    args = parser.parse_args()
    run("upsert-delta", args, lambda spark: Users(spark, args.table).upsert, SETTINGS)


if __name__ == "__main__":
    main()
