"""A store that takes two puts of one name holds no log, unless one process alone ever writes there."""

from __future__ import annotations

import json
import logging
import uuid
from pathlib import Path

import obstore
import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CommitLogError, ConfigError, StorageError, UnsupportedError, UsageError
from pyspark_commitlog.replication.protocol.roots import root_id
from pyspark_commitlog.storage import FileInfo, race
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.local.mounts import mount_source, mount_type
from pyspark_commitlog.storage.object.object_store import ObjectStorage
from pyspark_commitlog.storage.race import DIRECTORY, ROUNDS, WRITERS, Round, fault_of
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of


class Tried(ObjectStorage):
    """A store that has to be tried; `races` counts the puts of the trial."""

    def __init__(self, url: str | None = None, client: str | None = None) -> None:
        super().__init__(url or f"memory://{uuid.uuid4()}")
        self._name_of_client = client or f"client {uuid.uuid4()}"
        self.races = 0

    @property
    def client(self) -> str:
        return self._name_of_client

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        self.races += path.startswith(f"{DIRECTORY}/")
        return super().put_if_absent(path, data)


class Careless(Tried):
    """Ignores the condition, as a store that does not know it does."""

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        self.write_once(path, data)
        return None


class CarelessInARush(Tried):
    """Looks first and writes then: one after the other is fine, at once is not."""

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        if self.exists(path):
            raise FileExistsError(path)
        self.clock.sleep(0.005)
        self.write_once(path, data)
        return None


@pytest.mark.parametrize("store", [Careless, CarelessInARush])
def test_a_store_that_takes_two_puts_of_a_name_is_refused(store: type[Tried]) -> None:
    storage = store()
    with pytest.raises(
        UnsupportedError,
        match=r"can't hold a commit log: \d+ of 16 puts of one name at once were taken, so that commits would be lost.*"
        r"commitlog probe.*unsafe\.single\.writer=true",
    ):
        CommitLog.on(storage).create_topic("t")
    assert storage.names("") == [], "nothing is left of it"


def test_a_safe_store_is_tried_once_and_that_is_recorded() -> None:
    storage = Tried()
    CommitLog.on(storage).create_topic("t")
    assert storage.races == WRITERS * ROUNDS
    (name,) = storage.names(DIRECTORY)
    record = json.loads(storage.read(f"{DIRECTORY}/{name}"))
    assert record == {"client": storage.client, "writers": 16, "rounds": 5, "safe": True}

    CommitLog.on(storage).create_topic("u")
    append(CommitLog.on(storage).root.topic("t"), batch_of([b"a"]))
    another = Tried(client=storage.client)
    CommitLog.on(another).create_topic("t")
    assert (storage.races, another.races) == (WRITERS * ROUNDS, 0)
    assert another.names(DIRECTORY) == [name]


def test_what_tells_that_a_store_is_safe_is_no_stray() -> None:
    store = Tried()
    log = CommitLog.on(store)
    log.create_topic("t")
    store.now_ms()
    assert {"probes", "clock"} & set(store.names("")), "the scene"
    assert log.verify().unnamed == ()


def test_another_version_of_the_client_is_tried_before_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Tried()
    CommitLog.on(first).create_topic("t")
    newer = Careless(first.url)
    CommitLog.on(newer).topic("t").describe()
    for act in (lambda: CommitLog.on(newer).root.topic("t", "write"), lambda: CommitLog.on(newer).create_topic("u")):  # type: ignore[arg-type]
        with pytest.raises(UnsupportedError, match="can't hold a commit log"):
            act()
    monkeypatch.setattr(race, "_seen", set())  # as in another process
    again = Tried(first.url, first.client)
    CommitLog.on(again).create_topic("u")
    assert again.races == 0, "the record is in the root"


def test_a_store_is_tried_before_a_groups_offsets_are_put_by_another_client() -> None:
    first = Tried()
    CommitLog.on(first).create_topic("t")
    newer = Careless(first.url)
    with pytest.raises(UnsupportedError, match="can't hold a commit log"):
        CommitLog.on(newer).groups.commit("g", {"t": {0: 0}})
    assert CommitLog.on(first).groups.list() == ()


def test_a_root_beside_the_one_that_is_opened_is_tried_before_it_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an update, as of a root in a bucket: a commit is decided at the metadata root."""
    client = LocalStorage.client.fget  # type: ignore[attr-defined]
    log = CommitLog.create([str(tmp_path / "a")], [str(tmp_path / "m")])
    log.create_topic("t")
    append(log.root.topic("t"), batch_of([b"1"]))
    newer = f"newer {tmp_path.name}"
    monkeypatch.setattr(
        LocalStorage, "client", property(lambda storage: newer if storage.url.endswith("/m") else client(storage))
    )
    again = CommitLog(str(tmp_path / "a"))
    append(again.root.topic("t", Operation.WRITE), batch_of([b"2"]))
    (record,) = (tmp_path / "m" / DIRECTORY).iterdir()
    assert json.loads(record.read_text())["client"] == newer
    record.unlink()
    monkeypatch.setattr(race, "_seen", set())  # as in another process
    monkeypatch.setattr(LocalStorage, "put_if_absent", CarelessMount.put_if_absent)
    with pytest.raises(CommitLogError, match=r"can't hold a commit log: \d+ of 16 puts"):
        append(CommitLog(str(tmp_path / "a")).root.topic("t", Operation.WRITE), batch_of([b"3"]))


def test_a_root_beside_the_one_that_is_opened_is_not_tried_where_one_process_alone_may_write(tmp_path: Path) -> None:
    storage = Careless()
    CommitLog.on(storage).create_topic("t", 1, {"unsafe.single.writer": True})
    other = Careless(storage.url)
    assert root_id(other)
    assert other.single_writer
    other.races = 0
    append(TopicLog(other, "t"), batch_of([b"a"]))
    assert not other.names(DIRECTORY)


def test_one_process_alone_may_write_where_that_was_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    storage = Careless()
    with pytest.raises(ConfigError, match="takes true or false"):
        CommitLog.on(storage).create_topic("t", 1, {"unsafe.single.writer": "perhaps"})
    with caplog.at_level(logging.WARNING):
        log = CommitLog.on(storage)
        log.create_topic("t", 1, {"unsafe.single.writer": "true"})
        log.create_topic("u")
        append(log.root.topic("t"), batch_of([b"a"]))
    assert caplog.text.count("unsafe.single.writer=true: a second process") == 1
    assert log.topic("t").describe().unsafe_single_writer
    assert "UNSAFE: its root was made with unsafe.single.writer=true" in str(log.topic("t").describe())

    caplog.clear()
    with caplog.at_level(logging.WARNING):
        CommitLog.on(storage).topics()
    assert "unsafe.single.writer=true" in caplog.text, "at every open"


def test_a_root_that_is_there_stays_safe(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path))
    log.create_topic("t")
    with pytest.raises(UsageError, match=r"unsafe\.single\.writer is for a root that is made"):
        log.create_topic("u", 1, {"unsafe.single.writer": True})
    assert log.topics() == ["t"]
    assert not log.topic("t").describe().unsafe_single_writer


def test_a_store_that_gives_no_clear_answer_is_no_safe_one(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Tried()

    def busy(path: str, data: bytes) -> None:
        storage.write_once(path, data)
        raise StorageError("503")

    monkeypatch.setattr(storage, "put_if_absent", busy)
    with pytest.raises(StorageError, match="too few answers to say whether it is safe"):
        CommitLog.on(storage).create_topic("t")
    assert storage.names(DIRECTORY) == []


def test_what_a_race_says() -> None:
    assert fault_of([Round((3,), 3), Round((5,), 5)]) is None
    assert fault_of([Round((3,), 3), Round((5, 6), 5)]) == "2 of 16 puts of one name at once were taken"
    assert fault_of([Round((3,), 4)]) == "a put that was taken is not what lies there"
    assert fault_of([Round((), -1)]) == "what lies there is what nobody put whole"


def test_a_local_disk_is_not_tried(tmp_path: Path) -> None:
    CommitLog(str(tmp_path)).create_topic("t")
    assert not (tmp_path / DIRECTORY).exists()


class CarelessMount(LocalStorage):
    """A mount whose links overwrite."""

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        self.write_once(path, data)
        return None


def test_a_mount_that_is_no_local_disk_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_commitlog.storage.local.local.mount_type", lambda path: f"nfs4-{tmp_path.name}")
    with pytest.raises(UnsupportedError, match=r"can't hold a commit log: \d+ of 16 puts"):
        CommitLog.on(CarelessMount(tmp_path / "careless")).create_topic("t")
    log = CommitLog.on(LocalStorage(tmp_path / "safe"))
    log.create_topic("t")
    (record,) = (tmp_path / "safe" / DIRECTORY).iterdir()
    assert json.loads(record.read_text())["client"].startswith(f"mount nfs4-{tmp_path.name}, ")


def test_two_mounts_that_look_alike_are_tried_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one kind, and of one source by name: another server may be behind each."""
    monkeypatch.setattr("pyspark_commitlog.storage.local.local.mount_type", lambda path: f"fuse-{tmp_path.name}")
    monkeypatch.setattr(LocalStorage, "device", lambda storage: storage.url)
    safe, careless = LocalStorage(tmp_path / "safe"), CarelessMount(tmp_path / "careless")
    CommitLog.on(safe).create_topic("t")
    assert careless.client == safe.client
    with pytest.raises(UnsupportedError, match=r"can't hold a commit log: \d+ of 16 puts"):
        CommitLog.on(careless).create_topic("t")


def test_a_root_that_is_mounted_from_another_server_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_commitlog.storage.local.local.mount_type", lambda path: f"nfs4-{tmp_path.name}")
    monkeypatch.setattr("pyspark_commitlog.storage.local.local.mount_source", lambda path: "server:/export")
    first = LocalStorage(tmp_path)
    CommitLog.on(first).create_topic("t")
    monkeypatch.setattr("pyspark_commitlog.storage.local.local.mount_source", lambda path: "//user:s3cr3t@other/share")
    other = CarelessMount(tmp_path)
    assert other.client != first.client
    assert "s3cr3t" not in other.client
    with pytest.raises(UnsupportedError, match=r"can't hold a commit log: \d+ of 16 puts"):
        CommitLog.on(other).create_topic("u")


def test_the_source_of_a_mount_is_what_the_system_says(tmp_path: Path) -> None:
    kind, source = mount_type(tmp_path), mount_source(tmp_path)
    assert f" - {kind} {source} " in Path("/proc/self/mountinfo").read_text()


def test_another_endpoint_is_another_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def client(**options: object) -> str:
        return ObjectStorage("s3://bucket/root", options).client

    assert client() == f"s3 bucket bucket at its own endpoint, obstore {obstore.__version__}"
    assert "at http://h:1, obstore" in client(endpoint_url="http://user:s3cr3t@h:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://of-env:1")
    assert "at http://of-env:1, obstore" in client()
    assert "s3cr3t" not in client(secret="s3cr3t", key="k")


# --- delays -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "least"), [("file.delete.delay.ms", 10_000), ("staged.retention.ms", 3_600_000)])
def test_delays_that_are_shorter_than_clocks_differ_are_refused(name: str, least: int) -> None:
    log = CommitLog.on(ObjectStorage(f"memory://{uuid.uuid4()}"))
    log.create_topic("t", 1, {name: least})
    refused = f"{name}={least - 1} is not allowed here: on object stores, .* at least {least}"
    for act in (
        lambda: log.create_topic("u", 1, {name: least - 1}),
        lambda: log.topic("t").alter({name: least - 1}),
        lambda: log.config.alter({name: least - 1}),
    ):
        with pytest.raises(ConfigError, match=refused):
            act()
    assert log.topics() == ["t"]
    assert log.topic("t").describe().config[name] == str(least)


def test_a_local_disk_needs_no_such_delay(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path))
    log.create_topic("t", 1, {"file.delete.delay.ms": 0, "staged.retention.ms": 1})
    log.config.alter({"file.delete.delay.ms": 0})
