"""The page of a bucket, and of roots that belong together while one of them is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Producer
from tests.object_stores.servers import Bucket
from tests.support.page import ask, page_of, records


@pytest.mark.slow
def test_a_bucket(moto_bucket: Bucket, tmp_path: Path) -> None:
    log = CommitLog(f"{moto_bucket.url}/{tmp_path.name}/root", moto_bucket.options)
    log.create_topic("clicks", 2)
    with Producer(log.url, storage_options=moto_bucket.options) as producer:
        for number in range(4):
            producer.send("clicks", b"%d" % number, partition=number % 2)
    log.groups.commit("reports", {"clicks": {0: 1}})
    page = page_of(log)
    (row,) = ask(page, "topics")["rows"]
    assert (row["name"], row["partitions"], row["offsets"]) == ("clicks", 2, 4)
    assert sorted(record["value"]["text"] for record in records(page, "clicks")) == ["0", "1", "2", "3"]
    assert ask(page, "groups/reports")["lag"] == 3
    log.topic("clicks").maintain()
    rows = ask(page, "topics/clicks/segments")["rows"]
    assert [(row["settledEnd"], row["unsettled"], row["due"]) for row in rows] == [(2, 0, [])] * 2
    assert [row["segments"][-1]["end"] for row in rows] == [2, 2]
    assert page.get("/api/topics/clicks/parquet?cursor=1:0&end=1:2").status_code == 200
    answer = ask(page, "root")
    assert answer["url"] == log.url
    assert not any(str(secret) in str(answer) for secret in moto_bucket.options.values())


def test_roots_of_which_one_is_away(tmp_path: Path) -> None:
    urls = [str(tmp_path / name) for name in ("a", "b")]
    made = CommitLog.create(urls)
    made.create_topic("clicks")
    with Producer(",".join(urls)) as producer:
        producer.send("clicks", b"there")
    made.replicas.sync()
    page = page_of(CommitLog(",".join(urls)))
    assert [record["value"]["text"] for record in records(page, "clicks")] == ["there"]
    Path(urls[0]).rename(tmp_path / "away")
    assert [record["value"]["text"] for record in records(page, "clicks")] == ["there"]
    (row,) = ask(page, "topics")["rows"]
    assert (row["name"], row["replicas"]) == ("clicks", 2)
    assert any(fault.startswith(f"no answer from {urls[0]}: ") for fault in row["faults"])
    assert len(ask(page, "topics/clicks/segments")["rows"]) == 1
    assert ask(page, "groups", 500)["error"] == "ReplicaNotAvailableError"  # the metadata root has them
