"""What tests of object stores share: how to look at what is stored, and a walk through all that a log does."""

from __future__ import annotations

import uuid
from typing import Any

import obstore

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.testing.storage_contract import ObjectContract
from tests.support.records import append, batch_of


class Objects(ObjectContract):
    """Raw access by the library's own client; to give: `raw_store`, and the fixture `opener`."""

    def raw_store(self, storage: Storage) -> Any:
        """Return a client of the root."""
        raise NotImplementedError

    def raw_write(self, storage: Storage, path: str, data: bytes) -> None:
        obstore.put(self.raw_store(storage), path, data)

    def raw_read(self, storage: Storage, path: str) -> bytes | None:
        try:
            return bytes(obstore.get(self.raw_store(storage), path).bytes())
        except FileNotFoundError:
            return None

    def raw_names(self, storage: Storage, directory: str) -> list[str]:
        listed = obstore.list_with_delimiter(self.raw_store(storage), f"{directory}/" if directory else None)
        found = {*listed["common_prefixes"], *(one["path"] for one in listed["objects"])}
        return sorted(path.rpartition("/")[2] for path in found)

    def raw_temporary(self, storage: Storage, directory: str, modified_ms: int) -> None:
        self.raw_write(storage, f"{directory}/.tmp-{uuid.uuid4()}", b"half")


def walk(url: str, options: dict[str, Any]) -> None:
    """Make a root, write to it and read, by clients that share nothing but the URL."""
    log = CommitLog(url, options)
    log.create_topic("t", 2)
    append(log.root.topic("t"), batch_of([b"a", b"b", b"c"]))
    append(log.root.topic("t"), batch_of([b"d"]))
    log.topic("t").maintain()

    again = CommitLog(url, dict(options))
    assert again.topics() == ["t"]
    assert again.topic("t").verify().faults == ()
    with Consumer(url, storage_options=options, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        seen = list[bytes | None]()
        while len(seen) < 4:
            seen += [record.value for record in consumer.poll(10)]
        consumer.commit()
    assert sorted(seen) == [b"a", b"b", b"c", b"d"]
    with Producer(url, storage_options=options) as producer:
        assert producer.send("t", b"e", partition=0).result().offset >= 0


def walk_typed(url: str, options: dict[str, Any]) -> None:
    """Do the same with columns: declared, written, settled, changed, filtered and read, by clients of their own."""
    topic = CommitLog(url, options).create_topic("typed", schema="user STRING, n INT", key="user")
    with Producer(url, storage_options=options) as producer:
        for number in range(3):
            producer.send("typed", {"user": f"user {number}", "n": number}).result()
        topic.maintain()
        topic.alter(add="country STRING", widen={"n": "BIGINT"})
    with Producer(url, storage_options=options) as producer:
        producer.send("typed", {"user": "ada", "n": 2**40, "country": "UK"}).result()

    again = CommitLog(url, dict(options)).topic("typed")
    assert again.verify().faults == ()
    rows = [{"user": f"user {number}", "n": number, "country": None} for number in range(3)]
    assert again.to_arrow().to_pylist() == [*rows, {"user": "ada", "n": 2**40, "country": "UK"}]
    assert again.to_arrow(["user"], filter="n > 1 AND country IS NULL").to_pylist() == [{"user": "user 2"}]
    assert again.read(0, 0)[0].value == rows[0]
    CommitLog(url, dict(options)).maintain()
    assert again.to_arrow(["n"]).column("n").to_pylist() == [0, 1, 2, 2**40]
