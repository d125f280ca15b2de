"""The page answers its own browser alone, only reads, and lets nothing of the log run as code."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from anyio.to_thread import run_sync
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.ui.request_gate import RequestGate
from pyspark_commitlog.cli.ui.request_policy import COOKIE, HEADERS, RequestPolicy, policy_for
from tests.support.page import HOST, ask, page_of

PATHS = ["/", "/static/main.js", "/api/root", "/api/topics", "/api/topics/clicks/records", "/no-such"]
TOKEN = "5c1d9f0e-token"


@pytest.mark.parametrize("path", PATHS)
def test_every_response_has_the_headers(page: TestClient, path: str) -> None:
    response = page.get(path)
    assert {name: response.headers[name] for name in HEADERS} == dict(HEADERS)
    for source in ("script-src", "style-src"):
        assert f"{source} 'self';" in response.headers["content-security-policy"]
    assert "unsafe" not in response.headers["content-security-policy"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "localhost.evil", "", "8.8.8.8"]
)
@pytest.mark.parametrize("path", ["/", "/api/topics"])
def test_another_host_is_refused(page: TestClient, host: str, path: str) -> None:
    response = page.get(path, headers={"Host": host})
    assert response.status_code == 403
    assert "another host" in response.json()["message"]


@pytest.mark.parametrize("host", ["127.0.0.1:8321", "localhost:9000", "LOCALHOST", "[::1]:8321"])
def test_loopback_is_answered_by_any_of_its_names_and_ports(page: TestClient, host: str) -> None:
    assert page.get("/api/root", headers={"Host": host}).status_code == 200


def test_two_hosts_are_refused() -> None:
    assert RequestPolicy().refusal("GET", {"host": ["localhost", "localhost"]}, []) is not None
    assert RequestPolicy().refusal("GET", {}, []) is not None


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", f"http://{HOST}.evil.example"]
)
def test_another_origin_is_refused(page: TestClient, origin: str) -> None:
    assert page.get("/api/topics", headers={"Origin": origin}).status_code == 403


def test_the_same_origin_is_answered(page: TestClient) -> None:
    assert page.get("/api/topics", headers={"Origin": f"http://{HOST}"}).status_code == 200


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
        ("cross-site", "navigate", 200),
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),
    ],
)
def test_other_sites_may_link_here_but_not_ask(page: TestClient, site: str, mode: str, status: int) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
    assert page.get("/api/topics", headers=headers).status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"])
@pytest.mark.parametrize("path", ["/", "/api/topics/clicks"])
def test_only_get_is_allowed(page: TestClient, method: str, path: str) -> None:
    response = page.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == "GET"


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_answered(log: CommitLog, path: str) -> None:
    page = page_of(log, RequestPolicy(token=TOKEN))
    wrong: list[dict[str, Any]] = [
        {},
        {"Authorization": "Bearer x"},
        {"Authorization": TOKEN},
        {"Cookie": f"{COOKIE}=x"},
        {"Cookie": f"{COOKIE}=\xff".encode("latin-1")},
    ]
    assert [page.get(path, headers=each).status_code for each in wrong] == [401] * len(wrong)
    assert page.get(path, params={"token": TOKEN + "x"}).status_code == 401
    assert TOKEN not in page.get(path).text


def test_the_token_of_the_url_becomes_a_cookie(log: CommitLog) -> None:
    page = page_of(log, RequestPolicy(token=TOKEN))
    response = page.get("/", params={"token": TOKEN})
    assert (response.status_code, response.headers["location"]) == (303, "/")
    cookie = response.headers["set-cookie"]
    assert all(part in cookie for part in (f"{COOKIE}={TOKEN}", "HttpOnly", "SameSite=lax", "Path=/"))
    assert ask(page, "topics")["total"] == 2  # the client has the cookie by now
    assert page.get("/").status_code == 200


def test_the_token_as_a_header(log: CommitLog) -> None:
    page = page_of(log, RequestPolicy(token=TOKEN))
    assert page.get("/api/topics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert page.get("/api/topics", params={"token": TOKEN}).status_code == 401  # only where it is taken out at once


def test_a_token_that_nobody_asked_for_sets_no_cookie(page: TestClient) -> None:
    response = page.get("/", params={"token": "x"})
    assert response.status_code == 303
    assert "set-cookie" not in response.headers


def test_more_requests_than_a_few_at_once_are_refused() -> None:
    entered, go_on = threading.Semaphore(0), threading.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        entered.release()
        await run_sync(go_on.wait, 10)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    page = TestClient(RequestGate(slow, RequestPolicy(), most=2), base_url=f"http://{HOST}")
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(page.get, "/api/x") for _ in range(2)]
        for _ in asked:
            assert entered.acquire(timeout=30)
        busy = page.get("/api/x")
        go_on.set()
    assert (busy.status_code, busy.headers.get("retry-after")) == (503, "1")
    assert [each.result().status_code for each in asked] == [200, 200]
    assert page.get("/api/x").status_code == 200


def test_no_request_changes_the_root(log: CommitLog, page: TestClient, tmp_path: Path) -> None:
    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (tmp_path / "root").rglob("*") if path.is_file()}

    before = files()
    for path in (
        "root",
        "topics",
        "topics/clicks",
        "topics/clicks/segments",
        "topics/clicks/records",
        "topics/orders/records",
        "groups",
        "groups/reports",
    ):
        ask(page, path)
    ask(page, "topics/clicks/records", newest=1, search="value")
    ask(page, "topics/orders/records", filter="price > 1", time="-1h")
    assert page.get("/api/topics/clicks/parquet?cursor=0:0&end=0:3").status_code == 200
    assert files() == before


def test_the_page_acts_as_its_principal(log: CommitLog) -> None:
    log.acting_as("ops").access.allow("ops", "admin")
    log.acting_as("ops").access.allow("ada", "read", "clicks")
    ada = page_of(log.acting_as("ada"))
    assert [row["name"] for row in ask(ada, "topics")["rows"]] == ["clicks"]
    assert ask(ada, "root")["principal"] == "ada"
    assert len(ask(ada, "topics/clicks/records", partition=0)["records"]) == 3
    for path in ("topics/orders", "topics/orders/records", "topics/orders/segments", "topics/orders/parquet"):
        refused = ask(ada, path, 403, **({"cursor": "0:0", "end": "0:1"} if path.endswith("parquet") else {}))
        assert refused["error"] == "AccessDeniedError"
        assert "ada" in refused["message"]


@pytest.mark.parametrize(
    ("host", "bound", "names", "answered", "refused"),
    [
        ("127.0.0.1", "127.0.0.1", [], ["localhost", "127.0.0.1", "[::1]"], ["10.0.0.7", "ada"]),
        ("10.0.0.7", "10.0.0.7", ["Ada.example"], ["10.0.0.7", "ada.example:80"], ["localhost", "10.0.0.8"]),
        ("0.0.0.0", "0.0.0.0", [], ["10.0.0.7", "[fe80::1]:80", "localhost"], ["ada.example", "0x7f000001"]),
    ],
)  # fmt: skip
def test_the_hosts_of_an_address(
    host: str, bound: str, names: list[str], answered: list[str], refused: list[str]
) -> None:
    policy = policy_for(host, bound, names, None)
    assert [each for each in answered if policy.refusal("GET", {"host": [each]}, [])] == []
    assert [each for each in refused if not policy.refusal("GET", {"host": [each]}, [])] == []


def test_static_files_are_those_of_the_package_alone(page: TestClient) -> None:
    for path in ("/static/../routes.py", "/static/%2e%2e/routes.py", "/static/routes.py", "/static/"):
        assert page.get(path).status_code == 404
    index = page.get("/").text
    assert '<script type="module" src="/static/main.js">' in index
    assert "http:" not in index
    assert "https:" not in index


def test_no_script_parses_html() -> None:
    static = Path(__file__).parents[2] / "pyspark_commitlog" / "cli" / "ui" / "static"
    scripts = list(static.glob("*.js"))
    assert len(scripts) >= 5
    for script in scripts:
        text = script.read_text().replace('"http://www.w3.org/2000/svg"', "")  # a name, which is not fetched
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "DOMParser",
            "new Function",
            "setHTML",
            "http://",
            "https://",
        ):
            assert word not in text, (script.name, word)
    for page in static.glob("*.html"):
        assert " on" not in page.read_text().replace(" on ", " ")
        assert "style=" not in page.read_text()
