"""The web page of a log, asked as a browser on this machine asks it."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.ui.request_policy import RequestPolicy
from pyspark_commitlog.cli.ui.routes import create_app

HOST = "127.0.0.1:8321"


def page_of(log: CommitLog, policy: RequestPolicy | None = None, masked: tuple[str, ...] = ()) -> TestClient:
    """Return a client of a log's page."""
    app = create_app(log, policy or RequestPolicy(), frozenset(masked))
    return TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)


def ask(page: TestClient, path: str, status: int = 200, /, **parameters: object) -> Any:
    """Return the JSON that a path below /api/ answers with."""
    response = page.get(f"/api/{path}", params={name: str(value) for name, value in parameters.items()})
    assert response.status_code == status, response.text
    return response.json()


def records(page: TestClient, topic: str, /, **parameters: object) -> list[dict[str, Any]]:
    """Return the records of a page of them."""
    found: list[dict[str, Any]] = ask(page, f"topics/{topic}/records", **parameters)["records"]
    return found
