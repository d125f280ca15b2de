"""A topic as a pandas DataFrame."""

from __future__ import annotations

from pyspark_commitlog import CommitLog, Producer

if __name__ == "__main__":
    topic = CommitLog("pandas-log").create_topic("clicks", schema="user STRING, price DOUBLE")
    with Producer("pandas-log") as producer:
        producer.send("clicks", {"user": "ada", "price": 1.5}).result()
    assert topic.to_pandas(["user", "price"]).to_dict("records") == [{"user": "ada", "price": 1.5}]
    print("pandas")
