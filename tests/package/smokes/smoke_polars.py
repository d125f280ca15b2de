"""A topic as a Polars LazyFrame."""

from __future__ import annotations

from pyspark_commitlog import CommitLog, Producer

if __name__ == "__main__":
    topic = CommitLog("polars-log").create_topic("clicks", schema="user STRING, price DOUBLE")
    with Producer("polars-log") as producer:
        producer.send("clicks", {"user": "ada", "price": 1.5}).result()
    assert topic.scan().select("user", "price").collect().rows() == [("ada", 1.5)]
    print("polars")
