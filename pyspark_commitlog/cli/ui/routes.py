"""Routes of the page: static files, and what the log answers as JSON. All of them are GET, and read only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pyspark_commitlog import CommitLog, __version__
from pyspark_commitlog.cli.ui.maintenance_view import SEGMENT_ROWS, maintenance_view
from pyspark_commitlog.cli.ui.record_query import RecordQuery, parse_cursor
from pyspark_commitlog.cli.ui.record_scan import read_page, read_parquet
from pyspark_commitlog.cli.ui.request_gate import RequestGate
from pyspark_commitlog.cli.ui.request_policy import RequestPolicy
from pyspark_commitlog.cli.ui.views import ROWS, error_view, group_row, group_view, page_bounds, topic_row, topic_view
from pyspark_commitlog.errors import (
    AccessDeniedError,
    CommitLogError,
    NotFoundError,
    OffsetOutOfRangeError,
    UsageError,
)
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.maintain.due import due_work
from pyspark_commitlog.topic.maintain.maintenance_runs import former_runs

#: A page of topics or groups ends after so many seconds, and the browser asks for the rest.
_LIST_SECONDS = 1.0
#: Characters of a parameter.
_LONGEST = 4096
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
#: Statuses of errors, by the first class that fits; others are 500.
_STATUSES: Sequence[tuple[type[CommitLogError], int]] = (
    (AccessDeniedError, 403),
    (NotFoundError, 404),
    (OffsetOutOfRangeError, 416),
    (UsageError, 400),
)


def create_app(log: CommitLog, policy: RequestPolicy, masked: frozenset[str] = frozenset()) -> RequestGate:
    """Return the page of a log, as an ASGI app.

    Args:
        log: opened for a principal.
        policy: of its requests.
        masked: columns, JSON members and headers whose values are not sent.
    """
    page = _Page(log, masked)
    routes = [
        Route("/api/root", page.answer_root),
        Route("/api/topics", page.answer_topics),
        Route("/api/topics/{topic}", page.answer_topic),
        Route("/api/topics/{topic}/segments", page.answer_segments),
        Route("/api/topics/{topic}/records", page.answer_records),
        Route("/api/topics/{topic}/parquet", page.answer_parquet),
        Route("/api/groups", page.answer_groups),
        Route("/api/groups/{group:path}", page.answer_group),
        *_static_routes(),
    ]
    handlers: Any = {CommitLogError: _answer_error, OSError: _answer_error}
    return RequestGate(Starlette(routes=routes, exception_handlers=handlers), policy)


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def _answer_error(_: Request, error: Exception) -> Response:
    return JSONResponse(error_view(error), status_of(error))


def _static_routes() -> list[Route]:
    """Return a route per file, each read once: no request names a path."""
    routes = []
    for file in files("pyspark_commitlog.cli.ui").joinpath("static").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/static/{file.name}"
            routes.append(Route(path, partial(_answer_file, file.read_bytes(), kind)))
    return routes


async def _answer_file(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind)


@dataclass(frozen=True, slots=True)
class _Page:
    """Answers of the log. Each runs in a thread of Starlette's pool."""

    log: CommitLog
    masked: frozenset[str]

    def answer_root(self, _: Request) -> Response:
        self.log.root.check()
        return JSONResponse(
            {
                "url": self.log.url,
                "version": __version__,
                "principal": self.log.root.principal,
                "masked": sorted(self.masked),
            }
        )

    def answer_topics(self, request: Request) -> Response:
        describe = self.log.topic
        return self._list(request, self.log.topics(), lambda name: topic_row(describe(name).describe()), "name")

    def answer_groups(self, request: Request) -> Response:
        groups = self.log.groups
        return self._list(request, groups.list(), lambda name: group_row(groups.describe(name)), "group")

    def _list(self, request: Request, names: Sequence[str], row_of: Callable[[str], Any], name_as: str) -> Response:
        """Answer with a page of rows; one that fails has its error, and stops no other."""
        search = text_of(request, "search")
        names = [name for name in names if search.lower() in name.lower()]
        first, after = page_bounds(number_of(request, "from") or 0, len(names), ROWS)
        rows: list[dict[str, Any]] = []
        clock = self.log.root.storage.clock
        until = clock.monotonic() + _LIST_SECONDS
        for name in names[first:after]:
            if rows and clock.monotonic() >= until:
                break
            try:
                rows.append(row_of(name))
            except (CommitLogError, OSError) as error:
                rows.append({name_as: name, **error_view(error)})
        return JSONResponse({"total": len(names), "from": first, "pageEnd": after, "rows": rows})

    def answer_topic(self, request: Request) -> Response:
        description = self.log.topic(request.path_params["topic"]).describe()
        return JSONResponse(topic_view(description, number_of(request, "from") or 0))

    def answer_segments(self, request: Request) -> Response:
        topic = self.log.root.topic(request.path_params["topic"], Operation.DESCRIBE)
        state, first = topic.newest_durable()[1], number_of(request, "from") or 0
        works, failures = due_work(topic, first, SEGMENT_ROWS)
        runs = former_runs(topic, state.topic_id)
        return JSONResponse(maintenance_view(works, failures, runs, min(first, state.partitions), state.partitions))

    def answer_group(self, request: Request) -> Response:
        description = self.log.groups.describe(request.path_params["group"])
        return JSONResponse(group_view(description, number_of(request, "from") or 0))

    def answer_records(self, request: Request) -> Response:
        return JSONResponse(read_page(self.log, request.path_params["topic"], query_of(request), self.masked))

    def answer_parquet(self, request: Request) -> Response:
        content = read_parquet(self.log, request.path_params["topic"], query_of(request), self.masked)
        return Response(content, media_type="application/vnd.apache.parquet")


def query_of(request: Request) -> RecordQuery:
    """Return the query of a request's parameters.

    Raises:
        UsageError: one is not allowed.
    """
    cursor, end, limit = text_of(request, "cursor"), text_of(request, "end"), number_of(request, "limit")
    return RecordQuery(
        partition=number_of(request, "partition"),
        offset=number_of(request, "offset"),
        time=text_of(request, "time") or None,
        cursor=parse_cursor(cursor) if cursor else None,
        end=parse_cursor(end) if end else None,
        newest=bool(text_of(request, "newest")),
        limit=50 if limit is None else limit,
        condition=text_of(request, "filter") or None,
        search=text_of(request, "search"),
        key=text_of(request, "key"),
        everywhere=bool(text_of(request, "everywhere")),
        path=text_of(request, "path"),
        header=text_of(request, "header"),
    )


def text_of(request: Request, name: str) -> str:
    """Return a parameter, empty without it.

    Raises:
        UsageError: it is too long.
    """
    text: str = request.query_params.get(name, "").strip()
    if len(text) > _LONGEST:
        raise UsageError(f"{name} has {len(text)} characters; {_LONGEST} are allowed")
    return text


def number_of(request: Request, name: str) -> int | None:
    """Return a parameter as a whole number, None without it.

    Raises:
        UsageError: it is none, or negative.
    """
    text = text_of(request, name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise UsageError(f"{name}={text} is not allowed: it takes a whole number, 0 or more")
    return int(text)
