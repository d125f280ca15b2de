"""The proxy does to requests what it says, or tests behind it prove nothing."""

from __future__ import annotations

import http.client
import time

import pytest

from tests.object_stores import proxy as faults
from tests.object_stores.asking import ask
from tests.object_stores.conftest import S3, on
from tests.object_stores.proxy import Fault, Proxy
from tests.object_stores.servers import HOST, S3Server
from tests.object_stores.wire import Reply, Request, Upstream

pytestmark = on(*S3)

#: A put that finds something is refused.
IF_ABSENT = {"If-None-Match": "*"}


def stored(server: S3Server, path: str) -> bytes | None:
    """Return what lies at a path; None for nothing."""
    status, body = ask(server.port, "GET", path)
    return body if status == 200 else None


def test_what_no_fault_hits_goes_through(server: S3Server, bucket_name: str, proxy: Proxy) -> None:
    path = f"/{bucket_name}/a%20b/%3D"
    assert ask(proxy.port, "PUT", path, b"x" * 100_000)[0] == 200
    assert stored(server, path) == b"x" * 100_000
    assert ask(proxy.port, "GET", path, headers={"Range": "bytes=2-4"}) == (206, b"xxx")
    assert ask(proxy.port, "HEAD", path) == (200, b"")
    assert ask(proxy.port, "GET", f"/{bucket_name}?list-type=2&prefix=a%20b%2F")[0] == 200
    assert ask(proxy.port, "DELETE", path)[0] == 204
    assert [(one.verb, one.path, one.status) for one in proxy.served] == [
        ("PUT", f"/{bucket_name}/a b/=", 200),
        ("GET", f"/{bucket_name}/a b/=", 206),
        ("HEAD", f"/{bucket_name}/a b/=", 200),
        ("LIST", f"/{bucket_name}/a b/", 200),
        ("DELETE", f"/{bucket_name}/a b/=", 204),
    ]


@pytest.mark.parametrize(
    ("fault", "executed"),
    [(faults.drop, False), (faults.reset, False), (faults.lose_reply, True), (faults.reset_after, True)],
)
def test_a_reply_that_does_not_come(
    server: S3Server, bucket_name: str, proxy: Proxy, fault: Fault, executed: bool
) -> None:
    path = f"/{bucket_name}/1"
    rule = proxy.add(fault, verb="PUT", path="/1$")
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(proxy.port, "PUT", path, b"x")
    assert (stored(server, path), rule.hits) == (b"x" if executed else None, 1)
    assert ask(proxy.port, "PUT", path, b"y")[0] == 200


@pytest.mark.parametrize(
    ("fault", "status", "executed"),
    [
        (faults.conflict, 409, False),
        (faults.conflict_after, 409, True),
        (faults.slow_down, 503, False),
        (faults.too_many, 429, False),
        (faults.server_error, 500, False),
        (faults.server_error_after, 500, True),
        (faults.expired, 400, False),
        (faults.forbidden, 403, False),
    ],
)
def test_a_request_that_is_refused(
    server: S3Server, bucket_name: str, proxy: Proxy, fault: Fault, status: int, executed: bool
) -> None:
    path = f"/{bucket_name}/1"
    proxy.add(fault, nth=2, times=2)
    assert ask(proxy.port, "HEAD", path)[0] == 404
    assert [ask(proxy.port, verb, path, b"x")[0] for verb in ("PUT", "PUT")] == [status] * 2
    assert stored(server, path) == (b"x" if executed else None)
    assert ask(proxy.port, "PUT", path, b"y")[0] == 200
    assert proxy.spoiled() == {faults.name_of(fault): 2}


def test_a_put_that_is_executed_twice(server: S3Server, bucket_name: str, proxy: Proxy) -> None:
    """The second one finds the first."""
    proxy.add(faults.twice, path="/1$")
    proxy.add(faults.second_reply, path="/2$")
    assert ask(proxy.port, "PUT", f"/{bucket_name}/1", b"x", IF_ABSENT)[0] == 200
    assert ask(proxy.port, "PUT", f"/{bucket_name}/2", b"x", IF_ABSENT)[0] == 412
    assert stored(server, f"/{bucket_name}/2") == b"x"


def test_a_put_that_is_executed_when_the_test_says_so(server: S3Server, bucket_name: str, proxy: Proxy) -> None:
    path = f"/{bucket_name}/1"
    proxy.add(faults.held, verb="PUT")
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(proxy.port, "PUT", path, b"x", IF_ABSENT)
    assert stored(server, path) is None
    assert [reply.status for reply in proxy.execute_held()] == [200]
    assert stored(server, path) == b"x"
    assert proxy.execute_held() == []


def test_a_put_that_is_executed_later(server: S3Server, bucket_name: str, proxy: Proxy) -> None:
    path = f"/{bucket_name}/1"
    proxy.add(faults.late(0.2), verb="PUT")
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(proxy.port, "PUT", path, b"x")
    until = time.monotonic() + 10
    while stored(server, path) is None:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_bodies_that_are_spoiled(server: S3Server, bucket_name: str, proxy: Proxy) -> None:
    path = f"/{bucket_name}/1"
    ask(proxy.port, "PUT", path, b"x" * 1000)
    for number, fault in enumerate((faults.truncated, faults.long_length, faults.short_length, faults.slow_body(0.1))):
        proxy.add(fault, verb="GET", nth=number + 1)
    for _ in range(2):
        with pytest.raises(http.client.IncompleteRead):
            ask(proxy.port, "GET", path)
    assert ask(proxy.port, "GET", path) == (200, b"x" * 500)
    before = time.monotonic()
    assert ask(proxy.port, "GET", path) == (200, b"x" * 1000)
    assert time.monotonic() - before >= 0.1


def test_a_listing_that_lags(server: S3Server, bucket_name: str, proxy: Proxy) -> None:
    listing = f"/{bucket_name}?list-type=2&prefix=d%2F"
    ask(proxy.port, "PUT", f"/{bucket_name}/d/1", b"x")
    before = ask(proxy.port, "GET", listing)
    ask(proxy.port, "PUT", f"/{bucket_name}/d/2", b"x")
    proxy.add(faults.stale_list, verb="LIST")
    assert ask(proxy.port, "GET", listing) == before
    assert b"d/2" in ask(proxy.port, "GET", listing)[1]


def test_chance_hits_its_share_and_the_same_requests_for_a_seed(
    server: S3Server, bucket_name: str, proxy: Proxy
) -> None:
    drawn = []
    for _ in range(2):
        proxy.calm()
        proxy.chance(0.3, 7, {"*": [faults.server_error, faults.slow_down]})
        drawn.append([ask(proxy.port, "HEAD", f"/{bucket_name}/1")[0] for _ in range(100)])
    assert drawn[0] == drawn[1]
    assert 15 <= 100 - drawn[0].count(404) <= 45
    assert {500, 503} < set(drawn[0])


def test_a_request_is_handed_on_as_the_client_signed_it(server: S3Server, bucket_name: str, proxy: Proxy) -> None:
    """Signatures cover the `Host` header and the target's escapes: both stay as they were."""
    seen: list[Request] = []

    def hand_on(request: Request, upstream: Upstream) -> Reply:
        seen.append(request)
        return upstream.ask(request)

    proxy.ask = hand_on  # type: ignore[method-assign]
    assert ask(proxy.port, "PUT", f"/{bucket_name}/a%20b/%3D", b"x")[0] == 200
    assert seen[0].target == f"/{bucket_name}/a%20b/%3D"
    assert seen[0].header("host") == f"{HOST}:{proxy.port}"
