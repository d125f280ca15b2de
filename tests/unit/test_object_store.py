"""The door to object stores: what it asks, how often, and what it makes of the answers."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import ssl
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import obstore
import pytest
from obstore import exceptions as theirs
from obstore.store import LocalStore, S3Store

from pyspark_commitlog.errors import (
    StorageError,
    StorageReadOnlyError,
    StorageUnreadableError,
    UnsupportedError,
    UsageError,
)
from pyspark_commitlog.producer.records.delivery_errors import is_retriable
from pyspark_commitlog.spark.read.source_options import source_options
from pyspark_commitlog.spark.write.sink_options import sink_options
from pyspark_commitlog.storage import NotPutError, open_storage
from pyspark_commitlog.storage.clock import StoreTime
from pyspark_commitlog.storage.object import object_options
from pyspark_commitlog.storage.object.object_errors import explain, first_line
from pyspark_commitlog.storage.object.object_options import client_options, parse_url
from pyspark_commitlog.storage.object.object_store import ObjectStorage, identity
from pyspark_commitlog.storage.write_once import CLOCK
from pyspark_commitlog.testing.manual_clock import ManualClock

BUSY = "Generic S3 error: Error performing PUT http://h/b/x in 1ms - Server returned non-2xx status code: {}: <?xml…"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def storage(clock: ManualClock) -> ObjectStorage:
    return ObjectStorage(f"memory://{uuid.uuid4()}", clock=clock)


def failing(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException, times: int = 1) -> None:
    """Let the library's next calls of a function fail."""
    real, left = getattr(obstore, name), [times]

    def call(*args: Any, **kwargs: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(obstore, name, call)


def generic(status: str) -> theirs.GenericError:
    return theirs.GenericError(BUSY.format(status))


# --- requests that are repeated, and those that never are -------------------------------------------------


@pytest.mark.parametrize("status", ["429 Too Many Requests", "500 Internal Server Error", "503 Slow Down"])
def test_what_may_be_asked_again_is_asked_again(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, clock: ManualClock, status: str
) -> None:
    storage.put_if_absent("d/1", b"1")
    calls: list[tuple[str, str, Callable[[], Any]]] = [
        ("get", "GET", lambda: storage.read("d/1")),
        ("head", "HEAD", lambda: storage.info("d/1")),
        ("list_with_delimiter", "LIST", lambda: storage.names("d")),
        ("put", "PUT", lambda: storage.write_once("d/2", b"2")),
        ("delete", "DELETE", lambda: storage.delete("d/2")),
    ]
    for function, verb, call in calls:
        before, began = storage.requests[verb], clock.monotonic()
        failing(monkeypatch, function, generic(status), times=2)
        call()
        assert storage.requests[verb] == before + 3
        assert 0.3 <= clock.monotonic() - began <= 0.6, "pauses of 0.2 and 0.4 seconds, each cut by up to half"


def test_pauses_are_bounded_and_so_are_tries(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    failing(monkeypatch, "head", generic("503 Slow Down"), times=100)
    monkeypatch.setattr(storage, "jitter", lambda: 1.0)
    began = clock.monotonic()

    with pytest.raises(StorageError, match=r"cannot read d/1: .*503"):
        storage.info("d/1")

    assert storage.requests["HEAD"] == 8
    assert clock.monotonic() - began < 20


def test_a_server_that_hangs_is_not_asked_eight_times(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    def hang(*args: Any) -> None:
        clock.sleep(60)
        raise theirs.GenericError("Generic S3 error: Error performing HEAD http://h/b/x in 60s - HTTP error: timed out")

    monkeypatch.setattr(obstore, "head", hang)
    with pytest.raises(StorageError, match=r"no answer: .*timed out"):
        storage.info("d/1")
    assert storage.requests["HEAD"] == 2


def test_a_machine_without_credentials_is_told_so(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms - HTTP error: x"
    failing(monkeypatch, "put", theirs.GenericError(text), times=9)
    failing(monkeypatch, "get", theirs.GenericError(text), times=9)
    with pytest.raises(StorageReadOnlyError, match="no credentials were given, and this machine has no role"):
        storage.put_if_absent("d/1", b"1")
    with pytest.raises(StorageUnreadableError, match="no credentials were given"):
        storage.read("d/1")


ROLE = (
    "Generic S3 error: Error performing GET http://169.254.169.254/latest/meta-data/iam/security-credentials/ in 1ms - "
)
FAILS = "Server returned non-2xx status code: 503 Service Unavailable: "


@pytest.mark.parametrize("why", [FAILS, "HTTP error: operation timed out", "HTTP error: error sending request"])
def test_a_put_outlives_a_hiccup_of_the_service_that_gives_credentials(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Nothing was sent. It is asked some minutes before what it gave has expired."""
    failing(monkeypatch, "put", theirs.GenericError(ROLE + why), times=3)
    assert storage.put_if_absent("d/1", b"1") is not None
    assert storage.requests == {"PUT": 4}


@pytest.mark.parametrize(
    ("why", "worked"), [(FAILS, False), ("HTTP error: operation timed out", False), ("HTTP error: x", True)]
)
def test_a_machine_that_has_a_role_is_not_told_that_it_has_none(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, why: str, worked: bool
) -> None:
    """The same may succeed later, so that a producer goes on trying."""
    if worked:
        storage.put_if_absent("d/0", b"0")
    failing(monkeypatch, "put", theirs.GenericError(ROLE + why), times=99)
    failing(monkeypatch, "get", theirs.GenericError(ROLE + why), times=99)
    for act, kind in (
        (lambda: storage.put_if_absent("d/1", b"1"), NotPutError),
        (lambda: storage.read("d/0"), StorageError),
    ):
        with pytest.raises(StorageError, match="the service of this machine that gives credentials fails: ") as raised:
            act()
        assert type(raised.value) is kind
        assert is_retriable(raised.value)


def test_no_answer_is_asked_for_again_but_a_refusal_is_not(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put_if_absent("d/1", b"1")
    reset = "Generic S3 error: Error performing GET http://h/b/x in 1ms - HTTP error: error sending request"
    failing(monkeypatch, "get", theirs.GenericError(reset), times=3)
    assert storage.read("d/1") == b"1"
    assert storage.requests["GET"] == 4
    failing(monkeypatch, "get", theirs.PermissionDeniedError(BUSY.format("403 Forbidden")))
    with pytest.raises(StorageUnreadableError, match="refuses it to these credentials"):
        storage.read("d/1")
    assert storage.requests["GET"] == 5


@pytest.mark.parametrize("status", ["500 Internal Server Error", "503 Slow Down", "409 Conflict"])
def test_a_put_if_absent_is_never_repeated(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """It may have landed: a second one would be refused for the first one's sake."""
    failing(monkeypatch, "put", generic(status))

    with pytest.raises(StorageError) as raised:
        storage.put_if_absent("d/1", b"1")

    assert not isinstance(raised.value, FileExistsError | NotPutError)
    assert storage.requests == {"PUT": 1}


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        (BUSY.format("412 Precondition Failed"), True),
        (BUSY.format("409 Conflict") + "<Code>BlobAlreadyExists</Code>", True),
        (BUSY.format("409 Conflict") + "<Code>ConditionalRequestConflict</Code>", False),
        (BUSY.format("409 Conflict"), False),
    ],
)
def test_a_name_is_taken_only_where_the_store_says_so(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, text: str, certain: bool
) -> None:
    """S3's 409 says that another put is under way; the library calls that "exists" too."""
    failing(monkeypatch, "put", theirs.AlreadyExistsError(text))

    with pytest.raises(OSError) as raised:  # noqa: PT011 which one is what this is about
        storage.put_if_absent("d/1", b"1")

    assert isinstance(raised.value, FileExistsError) == certain


def test_a_put_into_no_bucket_is_certainly_not_there(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "put", FileNotFoundError(BUSY.format("404 Not Found") + "<Code>NoSuchBucket</Code>"))
    with pytest.raises(NotPutError, match="there is no such bucket"):
        storage.put_if_absent("d/1", b"1")


def test_a_body_that_is_cut_is_asked_for_again(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put_if_absent("d/1", b"0123456789")
    real, cut = obstore.get, [True]

    class Cut:
        def __init__(self, got: Any) -> None:
            self.meta, self.range, self._got = got.meta, got.range, got

        def bytes(self) -> Any:
            data = bytes(self._got.bytes())
            return data[: 3 if cut and cut.pop() else None]

    monkeypatch.setattr(obstore, "get", lambda *args, **kwargs: Cut(real(*args, **kwargs)))

    assert storage.read("d/1", 2, 5) == b"23456"
    assert storage.requests["GET"] == 2


def test_reads_after_the_end_are_asked_for_once(storage: ObjectStorage) -> None:
    storage.put_if_absent("d/1", b"1")
    assert storage.read("d/1", 5, 10) == b""
    assert storage.requests == {"PUT": 1, "GET": 1, "HEAD": 1}


def test_a_read_after_the_end_of_an_object_that_grew_since_is_no_end(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look that follows is at another object than the store refused a range of: it has these bytes."""
    storage.write_once("d/1", b"0123456789")
    failing(monkeypatch, "get", generic("416 Range Not Satisfiable"))
    with pytest.raises(StorageError, match="cannot read d/1 from byte 5: it changed meanwhile; read it again"):
        storage.read("d/1", 5, 10)
    assert storage.read("d/1", 5, 10) == b"56789"


# --- counting ---------------------------------------------------------------------------------------------


def test_requests_are_counted_by_verb(storage: ObjectStorage) -> None:
    storage.put_if_absent("d/1", b"1")
    storage.write_once("d/2", b"2")
    storage.read("d/1")
    storage.fetch("d/1", 10)
    storage.map("d/1", 0, 10)
    storage.exists("d/3")
    storage.names("d")
    storage.delete("d/1")
    assert storage.requests == {"PUT": 2, "GET": 3, "HEAD": 1, "LIST": 1, "DELETE": 1}


def test_the_pages_of_a_listing_are_counted(storage: ObjectStorage) -> None:
    for number in range(2001):
        storage.write_once(f"d/{number}", b"")
    assert len(storage.names("d")) == 2001
    assert storage.requests["LIST"] == 3


def test_the_parts_of_an_upload_are_counted(storage: ObjectStorage) -> None:
    storage.write_once("d/1", bytes(8 * 2**20 + 1))
    assert storage.requests == {"PUT": 2, "POST": 2}
    assert storage.info("d/1").size == 8 * 2**20 + 1


def test_a_whole_root_is_not_deleted(storage: ObjectStorage) -> None:
    """The root may be all of a bucket, with what others have there."""
    storage.put_if_absent("d/1", b"1")
    with pytest.raises(UsageError, match="a whole root is not deleted"):
        storage.delete_tree("")
    assert storage.names("") == ["d"]


def test_a_directory_goes_though_another_process_deletes_of_it_meanwhile(
    storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's store of local files says "not found" of a name that is gone, as GCS and Azure do."""
    local = LocalStore(tmp_path)
    storage._clients = {False: local, True: local}
    for number in range(20):
        storage.write_once(f"d/{number:02}", b"x")
    listed = obstore.list

    def emptied(*args: Any, **named: Any) -> Any:
        found = list(listed(*args, **named))
        obstore.delete(local, found[0][5]["path"])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(obstore, "list", emptied)
        storage.delete_tree("d")
    assert storage.names("d") == []


# --- storage's time ---------------------------------------------------------------------------------------


def test_storages_time_is_a_lower_bound_that_moves_on() -> None:
    time = StoreTime()
    assert time.at_least(5.0) == 0
    time.observe("old", 1_000_000, 10.0)
    assert time.at_least(10.0) == 1_000_000
    time.observe("newer", 1_500_000, 11.0)
    time.observe("older", 900_000, 12.0)
    assert time.at_least(13.5) == 1_502_500


def test_a_bound_is_near_after_a_prompt_look_at_an_own_put_only() -> None:
    time = StoreTime()
    time.observe("theirs", 1_000_000, 10.0)
    assert not time.is_near(10.0)
    time.put("slow", 10.0)
    time.observe("slow", 1_000_000, 15.5)
    assert not time.is_near(15.5)
    time.put("own", 20.0)
    time.observe("own", 1_010_000, 21.0)
    assert time.is_near(621.0)
    assert not time.is_near(621.5)


def test_a_bound_does_not_outlive_the_drift_of_clocks() -> None:
    """A machine whose seconds are short is ahead of storage after days."""
    time = StoreTime()
    time.observe("a", 1_000_000_000, 0.0)
    for second in range(0, 3600, 60):
        time.observe("b", 1_000_000_000 + second * 999, float(second))
    assert time.at_least(3600.0) <= 1_000_000_000 + 3600 * 999 + 1300


def test_storages_time_is_asked_for_once_in_ten_minutes(clock: ManualClock) -> None:
    storage = ObjectStorage(f"memory://{uuid.uuid4()}", clock=clock)
    first = storage.now_ms()
    asked = dict(storage.requests)
    clock.advance(500_000)
    assert storage.now_ms() == first + 500_000
    assert storage.requests == asked
    clock.advance(101_000)
    storage.now_ms()
    assert storage.requests["PUT"] == 2
    assert storage.names(CLOCK) == []


def test_storages_time_is_that_of_the_store(storage: ObjectStorage, clock: ManualClock) -> None:
    """This machine's clock is years behind."""
    assert storage.now_ms() > clock.now_ms() + 10**9
    assert open_storage("/tmp").now_ms() == pytest.approx(open_storage("/tmp").clock.now_ms(), abs=60_000)


def test_who_may_not_write_has_what_replies_say(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    failing(monkeypatch, "put", theirs.PermissionDeniedError(BUSY.format("403 Forbidden")), times=9)
    assert storage.now_ms() == 0
    storage.now_ms()
    assert storage.requests["PUT"] == 1


def test_what_a_killed_process_left_there_goes(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.write_once(f"{CLOCK}/left", b"")
    storage.now_ms()
    assert storage.names(CLOCK) == ["left"], "it may be another process's"
    real = storage.info
    monkeypatch.setattr(
        storage, "info", lambda path: type(real(path))(0, real(path).modified_ms - 3_700_000 * ("left" in path), "")
    )
    storage._time.value.asked_at = storage._time.value._near_at = float("-inf")
    storage.now_ms()
    assert storage.names(CLOCK) == []


# --- identity ---------------------------------------------------------------------------------------------


def test_an_identity_has_the_time_where_nothing_else_tells_two_puts_apart() -> None:
    assert identity("s3", None, '"e"', 5000) == '"e"@5000'
    assert identity("s3", "null", '"e"', 5000) == '"e"@5000'
    assert identity("s3", None, '"e"', None) == '"e"@'
    assert identity("s3", "v1", '"e"', 5000) == identity("s3", "v1", '"e"', None) == "v1"
    assert identity("gcs", "17", '"e"', 5000) == "17"
    assert identity("azure", None, '"0x8"', None) == '"0x8"'


# --- URLs and options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://b", ("s3", "b", "")),
        ("s3://b/", ("s3", "b", "")),
        ("s3a://b/some//path/", ("s3", "b", "some/path")),
        ("gs://b/p", ("gcs", "b", "p")),
        ("az://c/p", ("azure", "c", "p")),
        ("abfs://c@account.dfs.core.windows.net/p", ("azure", "c", "p")),
    ],
)
def test_a_url_names_a_prefix_of_a_bucket(url: str, place: tuple[str, str, str]) -> None:
    parsed = parse_url(url)
    assert (parsed.kind, parsed.bucket, parsed.prefix) == place
    assert parsed.account == ({"account_name": "account"} if "@" in url else {})


@pytest.mark.parametrize("url", ["s3://", "s3:///path", "s3://key:secret@bucket/x", "gs://user@bucket/x"])
def test_a_url_without_a_bucket_or_with_credentials_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        open_storage(url)
    assert "secret" not in str(raised.value)


def test_options_are_fsspecs_names_or_the_librarys() -> None:
    given = {"key": "K", "secret": "S", "token": "T", "endpoint_url": "http://h", "anon": False, "use_ssl": False,
             "client_kwargs": {"region_name": "eu-west-1"}, "config_kwargs": {"read_timeout": 7},
             "sse_kms_key_id": "id"}  # fmt: skip
    store, http = client_options("s3", given)
    assert store == {
        "access_key_id": "K", "secret_access_key": "S", "session_token": "T", "endpoint": "http://h",
        "skip_signature": False, "region": "eu-west-1", "sse_kms_key_id": "id",
    }  # fmt: skip
    assert {name: http[name].total_seconds() for name in ("connect_timeout", "timeout")} == {
        "connect_timeout": 5, "timeout": 7,
    }  # fmt: skip
    as_text = {**given, "client_kwargs": '{"region_name": "eu-west-1"}', "config_kwargs": '{"read_timeout": 7}'}
    assert client_options("s3", as_text) == (store, http)
    with pytest.raises(UsageError, match="client_kwargs: give a JSON object"):
        client_options("s3", {"client_kwargs": "region_name=x"})
    with pytest.raises(UsageError, match="client_kwargs: the key 'region_name' stands there twice"):
        client_options("s3", {"client_kwargs": '{"region_name": "a", "region_name": "b"}'})
    azure, _ = client_options("azure", {"connection_string": "AccountName=n;AccountKey=a==;BlobEndpoint=http://h/n"})
    assert azure == {"account_name": "n", "account_key": "a==", "endpoint": "http://h/n"}


def test_an_option_that_nobody_knows_is_named_without_its_value() -> None:
    storage = open_storage("s3://b/x", {"secret": "s3cr3t", "sekret": "0ther"})
    with pytest.raises(UsageError, match="sekret") as raised:
        storage.names("")
    assert "s3cr3t" not in str(raised.value)
    assert "0ther" not in str(raised.value)


KEY_OF_GOOGLE = json.dumps({"type": "service_account", "private_key": "-----BEGIN\ns3cr3t-OF-KEY\n"}, indent=1)


def test_a_key_of_google_is_taken_as_text_too() -> None:
    """As `--storage-option token=@key.json` and Spark's options give it."""
    store, _ = client_options("gcs", {"token": KEY_OF_GOOGLE})
    assert store == {"service_account_key": KEY_OF_GOOGLE}
    assert client_options("gcs", {"token": "/run/key.json"})[0] == {"application_credentials": "/run/key.json"}


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("gs://b/x", {"service_account_key": KEY_OF_GOOGLE}, "missing field"),
        ("gs://b/x", {"application_credentials": KEY_OF_GOOGLE.replace("\n", "")}, "Unable to open"),
        ("gs://b/x", {"service_account_key": '{"type": 1, "s3cr3t": 2}'}, "Unable to decode"),
        ("s3://b/x", {"anon": "s3cr3t"}, "failed to parse"),
        ("s3://b/x", {"client_kwargs": {"anon": "s3cr3t"}}, "failed to parse"),
    ],
)
def test_what_the_library_says_of_a_value_shows_nothing_of_it(url: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told) as raised:
        open_storage(url, options).names("")
    assert "s3cr3t" not in str(raised.value)
    assert "BEGIN" not in str(raised.value)


@pytest.mark.parametrize("value", ["s3cr3t\n", "s3\x00cr3t", "s3\x7fcr3t"])
@pytest.mark.parametrize("name", ["secret", "token", "endpoint_url"])
def test_an_option_with_a_control_character_is_refused_by_its_name(name: str, value: str) -> None:
    """The library would panic at the first request."""
    with pytest.raises(UsageError, match=f"storage option {name}: a control character") as raised:
        open_storage("s3://b/x", {"key": "K", name: value}).names("")
    assert "cr3t" not in str(raised.value)


@pytest.mark.parametrize(
    "value", ["minio:9000", "127.0.0.1:9000", "minio", "http://", "http://a b:9", "http://h:99999"]
)
@pytest.mark.parametrize("url", ["s3://b/x", "gs://b/x", "az://b/x"])
def test_an_endpoint_without_a_scheme_or_host_is_refused(url: str, value: str) -> None:
    """The library would panic at the first request."""
    with pytest.raises(UsageError, match=r"storage option endpoint_url: .*for example http://minio:9000"):
        open_storage(url, {"endpoint_url": value}).names("")


def test_an_endpoint_of_the_environment_is_refused_by_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio:9000")
    with pytest.raises(UsageError, match="environment variable AWS_ENDPOINT_URL: "):
        open_storage("s3://b/x", {"key": "K", "secret": "S"}).names("")


@pytest.mark.parametrize(("url", "options"), [("s3://a b/x", {}), ("s3://b/x", {"region": "a b"})])
def test_a_blank_in_an_address_is_refused(url: str, options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="blank"):
        open_storage(url, {"key": "K", "secret": "S"} | options).names("")


@pytest.mark.parametrize(("value", "known"), [(False, {"allow_invalid_certificates": True}), ("true", {}), (True, {})])
def test_verify_of_s3fs_is_taken(value: object, known: dict[str, object]) -> None:
    assert client_options("s3", {"client_kwargs": {"verify": value}})[0] == known


def test_a_signature_of_version_4_is_taken() -> None:
    assert client_options("s3", {"config_kwargs": {"signature_version": "s3v4"}})[0] == {}


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"verify": "/etc/ca.pem"}, "option verify: give true or false; .*SSL_CERT_FILE"),
        ({"config_kwargs": {"signature_version": "s3"}}, "option signature_version: give s3v4"),
    ],
)
def test_what_the_library_can_not_follow_is_refused_by_its_name(options: dict[str, object], advice: str) -> None:
    with pytest.raises(UsageError, match=advice):
        open_storage("s3://b/x", options).names("")


CERTIFICATES = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -subj /CN=ca
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout leaf.key -out leaf.csr -subj /CN=leaf
openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out leaf.pem -extfile names
"""
READ = """
import sys
from pyspark_commitlog.storage import open_storage
options = {"key": "K", "secret": "S", "endpoint_url": sys.argv[1], **dict(each.split("=") for each in sys.argv[2:])}
try:
    print(open_storage("s3://b/x", options).read("1"))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


class _Absent(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def private_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """An HTTPS endpoint that has nothing, and the certificate of the CA that it is signed by."""
    place = tmp_path_factory.mktemp("ca")
    (place / "names").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    for command in CERTIFICATES.strip().splitlines():
        subprocess.run(command.split(), cwd=place, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "leaf.pem", place / "leaf.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Absent)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", place / "ca.pem"
    server.shutdown()
    server.server_close()


def answer_of(endpoint: str, *options: str, **environment: str) -> str:
    """Return what a process of its own gets: the library reads SSL_CERT_FILE once."""
    return subprocess.run(
        [sys.executable, "-c", READ, endpoint, *options],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_certificate_that_is_not_trusted_is_named(private_endpoint: tuple[str, Path]) -> None:
    endpoint, _ = private_endpoint
    answer = answer_of(endpoint)
    assert answer.startswith("StorageUnreadableError: ")
    assert f"the certificate of {endpoint.removeprefix('https://')} is not trusted (UnknownIssuer)" in answer
    assert "SSL_CERT_FILE" in answer


def test_a_certificate_that_is_not_trusted_fails_at_the_first_try(
    monkeypatch: pytest.MonkeyPatch, storage: ObjectStorage
) -> None:
    said = "Error performing GET https://h/b - HTTP error: error sending request\nInvalidCertificate(\n UnknownIssuer,"
    failing(monkeypatch, "get_range", theirs.GenericError(said))
    failing(monkeypatch, "get", theirs.GenericError(said))
    with pytest.raises(StorageUnreadableError, match="certificate of h is not trusted"):
        storage.read("1")


@pytest.mark.parametrize("option", ["verify=false", "allow_invalid_certificates=true"])
def test_certificates_need_not_be_checked(private_endpoint: tuple[str, Path], option: str) -> None:
    assert answer_of(private_endpoint[0], option).startswith("FileNotFoundError: ")


def test_a_private_ca_is_trusted_by_ssl_cert_file(private_endpoint: tuple[str, Path]) -> None:
    endpoint, ca = private_endpoint
    assert answer_of(endpoint, SSL_CERT_FILE=str(ca)).startswith("FileNotFoundError: ")


@pytest.mark.parametrize(
    "said",
    [
        "400 Bad Request: <Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>",
        "400 Bad Request: <Code>AuthorizationHeaderMalformed</Code>the region 'us-east-1' is wrong; expecting 'eu-west-1'",
    ],
)
def test_another_region_is_named(said: str) -> None:
    error = explain(theirs.GenericError(f"Server returned non-2xx status code: {said}"), "s3://b/x", "read 1")
    assert "the bucket lies in another region, eu-west-1, than the storage option region_name" in str(error)


def test_a_redirect_to_another_region_is_explained() -> None:
    said = "Received redirect without LOCATION, this normally indicates an incorrectly configured region"
    assert "lies in another region than" in str(explain(theirs.GenericError(said), "s3://b/x", "read 1"))


def test_a_dead_proxy_is_named() -> None:
    """The endpoint's own address stands in the first line, and the proxy's does not."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        proxy = f"127.0.0.1:{closed.getsockname()[1]}"
    store = S3Store(
        "b",
        config={"endpoint": "http://example.invalid", "skip_signature": True},
        client_options={"allow_http": True, "proxy_url": f"http://{proxy}"},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(theirs.GenericError) as raised:
        obstore.head(store, "x")
    assert f"{proxy}: Connection refused" in str(explain(raised.value, "s3://b/x", "read 1"))


def test_a_panic_of_the_library_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_commitlog.storage.object.object_options.check_address", lambda *_: None)
    with pytest.raises(StorageError, match="library fails on this address"):
        open_storage("s3://b/x", {"key": "K", "secret": "S", "endpoint_url": "minio:9000"}).names("")


@pytest.mark.parametrize("value", ["60s", "nan", "-1", "0", "1e300"])
@pytest.mark.parametrize("name", ["timeout", "connect_timeout", "read_timeout"])
def test_a_time_that_is_no_number_of_seconds_is_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"storage option {name}: give seconds, more than 0"):
        open_storage("s3://b/x", {name: value}).names("")


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'pyspark-commitlog\[gcs\]'"):
        open_storage("gs://b/x")


# --- secrets ----------------------------------------------------------------------------------------------


def test_no_secret_is_shown_and_only_the_options_travel() -> None:
    options = {"key": "AKIA", "secret": "s3cr3t"}
    storage = open_storage("s3://b/x", options)
    assert isinstance(storage, ObjectStorage)
    assert "s3cr3t" not in repr(storage) + str(storage._opener) + repr(storage.__dict__)
    again = pickle.loads(pickle.dumps(storage))
    assert (again.url, again._opener) == (storage.url, storage._opener)
    assert again._clients == {}


def test_no_secret_is_shown_by_a_jobs_options() -> None:
    given = {"path": "s3://b/x", "storage.secret": "s3cr3t"}
    source, sink = source_options({**given, "subscribe": "t"}), sink_options({**given, "topic": "t"})
    assert source.storage == sink.storage == {"secret": "s3cr3t"}
    assert "s3cr3t" not in repr(source) + repr(sink)


def test_a_storage_that_was_used_travels(storage: ObjectStorage) -> None:
    storage.put_if_absent("1", b"1")
    again = pickle.loads(pickle.dumps(ObjectStorage(storage.url)))
    used = open_storage(storage.url)
    used.names("")
    assert pickle.loads(pickle.dumps(used)).read("1") == again.read("1") == b"1"


def test_an_error_has_no_signature_and_no_page_in_it() -> None:
    error = theirs.GenericError(
        "Generic S3 error: Error performing GET https://u:p@h/b/x?X-Amz-Signature=abc&sig=def in 1ms - Server returned "
        "non-2xx status code: 400 Bad Request: <?xml version><Error><Code>Odd</Code><Secret>s3cr3t</Secret>\n\nDebug"
    )
    assert first_line(error) == (
        "Generic S3 error: Error performing GET https://h/b/x in 1ms - Server returned non-2xx status code: "
        "400 Bad Request (Odd)"
    )


@pytest.mark.parametrize("url", ["/webhdfs/v1/x", "http://u:p@h:9870/webhdfs/v1/x", "'h:9870/webhdfs/v1/x"])
def test_an_error_has_no_token_in_it_however_a_url_is_told(url: str) -> None:
    """A library of HTTP tells the path alone where a server can't be reached."""
    error = OSError(
        f"HTTPConnectionPool(host='h', port=9870): Max retries exceeded with url: {url}?op=GETFILESTATUS&delegation=s3cr3t "
        "(Caused by NewConnectionError: refused)"
    )
    assert first_line(error) == (
        f"HTTPConnectionPool(host='h', port=9870): Max retries exceeded with url: {url.replace('u:p@', '')} "
        "(Caused by NewConnectionError: refused)"
    )


def test_what_the_store_refuses_is_told_by_what_was_tried(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = theirs.PermissionDeniedError(BUSY.format("403 Forbidden") + "<Code>ExpiredToken</Code>")
    failing(monkeypatch, "put", denied, times=2)
    for act in (storage.put_if_absent, storage.write_once):
        with pytest.raises(StorageReadOnlyError, match=r"cannot write d/1: .*ExpiredToken.*has expired"):
            act("d/1", b"1")


# --- forks ------------------------------------------------------------------------------------------------


def _use(url: str, line: Any) -> None:
    signal.alarm(20)
    try:
        open_storage(url).put_if_absent(f"{os.getpid()}", b"1")
        line.send("done")
    except UnsupportedError as error:
        line.send(str(error))


def _forked(url: str) -> str:
    context = get_context("fork")
    ours, theirs_ = context.Pipe()
    child = context.Process(target=_use, args=(url, theirs_))
    child.start()
    answered = ours.poll(30)
    child.join()
    return str(ours.recv()) if answered and child.exitcode == 0 else "hangs"


def _parent(url: str, uses: bool, line: Any) -> None:
    if uses:
        open_storage(url).names("")
    line.send(_forked(url))


@pytest.mark.parametrize("uses", [False, True])
def test_a_forked_child_may_use_a_store_if_its_parent_has_not(uses: bool) -> None:
    context = get_context("spawn")
    ours, theirs_ = context.Pipe()
    parent = context.Process(target=_parent, args=("memory://fork", uses, theirs_))
    parent.start()
    assert ours.poll(60)
    said = ours.recv()
    parent.join()
    if uses:
        assert "was forked from one that has used an object store" in said
    else:
        assert said == "done"


def test_memory_is_of_this_process(storage: ObjectStorage) -> None:
    storage.put_if_absent("1", b"1")
    assert open_storage(storage.url).read("1") == b"1"
    assert object_options._memory[storage.url] is not None
