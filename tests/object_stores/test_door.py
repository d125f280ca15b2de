"""The door to a real server: what it sends, how often, and how long it waits."""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime, timedelta

import pytest

from pyspark_commitlog.errors import StorageDeniedError, StorageError
from pyspark_commitlog.storage import NotPutError, open_storage
from pyspark_commitlog.storage.object.object_store import ObjectStorage
from tests.object_stores import proxy as faults
from tests.object_stores.asking import ask
from tests.object_stores.conftest import on
from tests.object_stores.proxy import Fault, Proxy
from tests.object_stores.servers import Bucket, Moto

pytestmark = [pytest.mark.slow, on(Moto)]


def opened(bucket: Bucket, **options: object) -> ObjectStorage:
    """Return the door to a bucket."""
    storage = open_storage(f"{bucket.url}/root", {**bucket.options, **options})
    assert isinstance(storage, ObjectStorage)
    return storage


@pytest.mark.parametrize(
    "fault",
    [faults.drop, faults.lose_reply, faults.reset_after, faults.slow_down, faults.server_error_after, faults.conflict],
)
def test_a_conditional_put_is_sent_once(through: Bucket, proxy: Proxy, fault: Fault) -> None:
    """Neither the door nor the library sends it again: the second one would be refused for the first one's sake."""
    storage = opened(through)
    proxy.add(fault, verb="PUT", times=100)

    with pytest.raises(OSError) as raised:  # noqa: PT011 what it is not is what this is about
        storage.put_if_absent("d/1", b"1")

    assert not isinstance(raised.value, FileExistsError | NotPutError | StorageDeniedError)
    assert [one.verb for one in proxy.served] == ["PUT"]


@pytest.mark.parametrize(
    "fault",
    [faults.drop, faults.lose_reply, faults.slow_down, faults.too_many, faults.server_error, faults.truncated,
     faults.short_length, faults.long_length],
)  # fmt: skip
def test_reads_come_through_what_passes(through: Bucket, proxy: Proxy, fault: Fault) -> None:
    data = os.urandom(100_000)
    storage = opened(through)
    storage.write_once("d/1", data)
    proxy.add(fault, verb="GET", times=2)

    assert storage.read("d/1", 10, 50_000) == data[10:50_010]
    assert storage.requests["GET"] == 3
    assert storage.requests["GET"] == sum(one.verb == "GET" for one in proxy.served)


def test_what_the_door_counts_is_what_is_sent(through: Bucket, proxy: Proxy) -> None:
    storage = opened(through)
    storage.put_if_absent("d/1", b"1")
    storage.write_once("d/2", b"2" * 1000)
    storage.write_once("d/3", os.urandom(20_000_000))
    storage.names("d")
    storage.read("d/2")
    storage.info("d/3")
    storage.delete("d/1")
    storage.delete_tree("d")
    sent: dict[str, int] = {}
    for one in proxy.served:
        sent[one.verb] = sent.get(one.verb, 0) + 1
    assert storage.requests == sent == {"PUT": 5, "POST": 3, "LIST": 2, "GET": 1, "HEAD": 1, "DELETE": 1}


def test_an_upload_goes_through_a_busy_store(through: Bucket, proxy: Proxy) -> None:
    data = os.urandom(20_000_000)
    storage = opened(through)
    proxy.add(faults.slow_down, verb="PUT", nth=2, times=2)
    proxy.add(faults.server_error, verb="POST")

    storage.write_once("d/1", data)

    assert storage.read("d/1") == data


@pytest.mark.parametrize("fault", [faults.expired, faults.forbidden])
def test_credentials_that_have_expired_are_reported_as_that(through: Bucket, proxy: Proxy, fault: Fault) -> None:
    storage = opened(through)
    proxy.add(fault, times=100)
    for act in (lambda: storage.put_if_absent("d/1", b"1"), lambda: storage.read("d/1"), lambda: storage.names("d")):
        with pytest.raises(StorageDeniedError, match=r"ExpiredToken.*has expired"):
            act()
    assert len(proxy.served) == 3


def test_a_server_that_hangs_does_not_hang_us(bucket: Bucket) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        storage = opened(Bucket(bucket.url, {**bucket.options, "endpoint_url": endpoint}), timeout=0.5)
        began = time.monotonic()
        with pytest.raises(StorageError, match="no answer") as raised:
            storage.put_if_absent("d/1", b"1")
        assert time.monotonic() - began < 5
    assert not isinstance(raised.value, NotPutError | StorageDeniedError)


def test_a_bucket_that_is_not_there_is_named(bucket: Bucket) -> None:
    storage = open_storage("s3://there-is-none/root", bucket.options)
    with pytest.raises(NotPutError, match="there is no such bucket"):
        storage.put_if_absent("d/1", b"1")
    for act in (lambda: storage.names("d"), lambda: storage.read("d/1")):
        with pytest.raises(StorageError, match=r"s3://there-is-none/root: cannot .*: there is no such bucket"):
            act()


def test_a_folder_that_a_console_made_is_no_name(bucket: Bucket, server: Moto) -> None:
    storage = opened(bucket)
    storage.put_if_absent("d/1", b"1")
    name = bucket.url.removeprefix("s3://")
    for folder in ("root/", "root/d/"):
        assert ask(server.port, "PUT", f"/{name}/{folder}", b"")[0] == 200
    assert (storage.names(""), storage.names("d")) == (["d"], ["1"])


def test_no_error_shows_a_credential(bucket: Bucket, through: Bucket, proxy: Proxy) -> None:
    storage = opened(through)
    proxy.add(faults.forbidden, times=100)
    for act in (lambda: storage.put_if_absent("d/1", b"1"), lambda: storage.read("d/1"), lambda: storage.names("d")):
        with pytest.raises(StorageError) as raised:
            act()
        said = repr(raised.value) + str(raised.value)
        assert str(bucket.options["secret"]) not in said
        assert str(bucket.options["key"]) not in said


def test_credentials_may_come_from_a_function(bucket: Bucket) -> None:
    """So that they can be renewed: it is asked when a client is made, and again when they expire."""
    asked = list[int]()

    def provider() -> dict[str, object]:
        asked.append(1)
        expires = datetime.now(UTC) + timedelta(seconds=1)
        return {"access_key_id": bucket.options["key"], "secret_access_key": bucket.options["secret"], "token": None,
                "expires_at": expires}  # fmt: skip

    given = {name: value for name, value in bucket.options.items() if name not in ("key", "secret")}
    storage = open_storage(f"{bucket.url}/root", {**given, "credential_provider": provider})
    storage.put_if_absent("d/1", b"1")
    time.sleep(1.1)
    assert storage.read("d/1") == b"1"
    assert len(asked) == 2
