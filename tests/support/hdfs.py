"""What tests of WebHDFS share, on whatever server: raw access by plain requests, and a writer that is killed."""

from __future__ import annotations

import multiprocessing
import uuid
from typing import Any

import requests

from pyspark_commitlog import CommitLog
from pyspark_commitlog.storage import Storage, open_storage
from pyspark_commitlog.testing.faults import FaultyStorage, at_call, kill_now
from pyspark_commitlog.testing.storage_contract import ObjectContract
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support import filesystems as filesystems  # registers them, in processes that are spawned too
from tests.support.records import append, batch_of, read_topic

_COMMITS = 2


class Hdfs(ObjectContract):
    """The contract, looked at by plain requests; to give: the fixture `opener`."""

    has_directories = True

    def ask(self, storage: Storage, method: str, path: str, op: str, data: bytes | None = None, **options: Any) -> Any:
        """Return the answer to a request."""
        where = storage.url.replace("webhdfs://", "http://")
        host, _, root = where.removeprefix("http://").partition("/")
        url = f"http://{host}/webhdfs/v1/{root}/{path}".rstrip("/")
        return requests.request(method, url, params={"op": op, "user.name": "root", **options}, data=data, timeout=60)

    def raw_write(self, storage: Storage, path: str, data: bytes) -> None:
        self.ask(storage, "PUT", path, "CREATE", data, overwrite="true").raise_for_status()

    def raw_read(self, storage: Storage, path: str) -> bytes | None:
        answer = self.ask(storage, "GET", path, "OPEN")
        return None if answer.status_code == 404 else bytes(answer.content)

    def raw_names(self, storage: Storage, directory: str) -> list[str]:
        answer = self.ask(storage, "GET", directory, "LISTSTATUS")
        if answer.status_code == 404:
            return []
        return sorted(one["pathSuffix"] for one in answer.json()["FileStatuses"]["FileStatus"])

    def raw_temporary(self, storage: Storage, directory: str, modified_ms: int) -> None:
        path = f"{directory}/.tmp-{uuid.uuid4()}"
        self.raw_write(storage, path, b"half")
        self.ask(storage, "PUT", path, "SETTIMES", modificationtime=modified_ms).raise_for_status()


def _write(url: str, options: dict[str, object], number: int, when: str) -> None:
    storage = FaultyStorage(open_storage(url, options), at_call(number, kill_now, when=when))
    for version in range(_COMMITS):
        append(
            CommitLog.on(storage).root.topic("t"), batch_of([b"%d" % version]), writer=Transaction("w", version, True)
        )
    CommitLog.on(storage).topic("t").maintain()


def killed_anywhere(url: str, options: dict[str, object], when: str, step: int = 1) -> int:
    """Write in a process that is killed before (after) its n-th change, for each n, and write again; return the n's.

    Each record is there once, in order, whatever was lost.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    for number in range(1, 1000, step):
        root = f"{url}/{number}-{when}"
        CommitLog(root, options).create_topic("t", 1)
        process = context.Process(target=_write, args=(root, options, number, when))
        process.start()
        process.join(120)
        _write(root, options, 0, when)
        log = CommitLog(root, options)
        assert [record.value for record in read_topic(log.root.topic("t"))] == [b"%d" % one for one in range(_COMMITS)]
        assert log.topic("t").verify().faults == ()
        if process.exitcode == 0:
            return number
        assert process.exitcode == -9
    raise AssertionError("it is killed for ever")
