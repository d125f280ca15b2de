"""Servers that live as long as the run, a bucket for each test, and the table of what ran on which server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.object_stores.proxy import Proxy
from tests.object_stores.servers import SERVERS, Bucket, Moto, Server, ServerMissingError, Versitygw

#: Tests on these run in `make test`, too.
_EVERYWHERE = (Moto.name,)
_OF = {kind.name: kind for kind in SERVERS}
#: Server -> test id -> outcome.
_RAN: dict[str, dict[str, str]] = {}


def on(*kinds: type[Server]) -> pytest.MarkDecorator:
    """Return the mark of tests that run on each of these servers: a parameter for the fixture `server`."""
    return pytest.mark.parametrize("server", [kind.name for kind in kinds], indirect=True, scope="session")


S3 = (Versitygw, Moto)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-object-stores` what needs a server that it installs."""
    for item in items:
        name = _server_of(item)
        if name and name not in _EVERYWHERE:
            item.add_marker(pytest.mark.external)


def _server_of(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("server", "")) if callspec else ""


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """A function that returns a server by name, started when it is first asked for."""
    running: dict[str, Server] = {}
    with ExitStack() as stack:

        def start(name: str) -> Server:
            if name not in running:
                server = _OF[name](tmp_path_factory.mktemp(name))
                try:
                    server.start()
                except ServerMissingError as missing:
                    pytest.fail(str(missing), pytrace=False)
                stack.callback(server.stop)
                running[name] = server
            return running[name]

        yield start


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, started: Callable[[str], Server]) -> Server:
    """The server that `on` names."""
    return started(request.param)


@pytest.fixture
def bucket_name(server: Server) -> str:
    """A bucket of this test's own."""
    name = f"b-{uuid.uuid4().hex[:12]}"
    server.create(name)
    return name


@pytest.fixture
def bucket(server: Server, bucket_name: str) -> Bucket:
    """How to open that bucket."""
    return server.bucket(bucket_name)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    proxy = Proxy(int(server.endpoint.rpartition(":")[2]))
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
def through(server: Server, bucket_name: str, proxy: Proxy) -> Bucket:
    """How to open that bucket through the proxy."""
    return server.bucket(bucket_name, proxy.endpoint)


# --- the table --------------------------------------------------------------------------------------------


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what ran on which server; in a run of several processes the one that prints gets all reports."""
    name = next((name for name in _OF if f"[{name}" in report.nodeid or f"-{name}" in report.nodeid), "")
    if name and (report.when == "call" or report.failed):
        test = (
            report.nodeid.removeprefix("tests/object_stores/")
            .replace(f"[{name}]", "")
            .replace(f"{name}-", "")
            .replace(f"-{name}", "")
        )
        _RAN.setdefault(name, {})[test] = report.outcome


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which test ran on which server, in `make test-object-stores`."""
    if len(_RAN) < 2:
        return
    names = [name for name in _OF if name in _RAN]
    signs = {"passed": "+", "failed": "FAILED", "skipped": "skipped"}
    tests = sorted({test for ran in _RAN.values() for test in ran})
    wide = max(map(len, tests))
    terminalreporter.write_sep("-", "which test ran on which server")
    terminalreporter.write_line(f"{'':{wide}}  " + "  ".join(names))
    for test in tests:
        cells = [f"{signs.get(_RAN[name].get(test, ''), ''):{len(name)}}" for name in names]
        terminalreporter.write_line(f"{test:{wide}}  " + "  ".join(cells).rstrip())
