"""HTTP server for Prometheus: a bounded number of scrapes at once, which share one collection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import groupby
from threading import Event, Lock, Semaphore
from typing import Any, Generic, TypeVar

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric as Family

from pyspark_commitlog.cli.common.arguments import ListenAddress
from pyspark_commitlog.cli.common.metric_samples import METRICS, Sample
from pyspark_commitlog.failures import ErrorBoundary
from pyspark_commitlog.storage.process import start_thread

log = logging.getLogger("pyspark_commitlog.cli")

_Result = TypeVar("_Result")

#: What a scraper of OpenMetrics asks for.
OPEN_METRICS = "application/openmetrics-text"
PATH = "/metrics"
#: Scrapes answered at once; further ones are refused.
MOST_SCRAPES = 8
#: Seconds that a client may be silent within its request.
_PATIENCE_SECONDS = 10.0
#: Seconds between two looks whether to stop.
_LOOK_SECONDS = 0.5
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
_INDEX = f"The metrics of a commit log are at {PATH}\n".encode()


class Exposition:
    """Samples as `prometheus_client` wants them of a registry."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._families: list[Family] = []
        by_metric = groupby(sorted(samples, key=lambda sample: sample.metric), key=lambda sample: sample.metric)
        for name, found in by_metric:
            family = GaugeMetricFamily(name, METRICS[name].help, labels=METRICS[name].labels)
            for sample in found:
                family.add_metric(sample.labels, sample.value)
            self._families.append(family)

    def collect(self) -> Iterable[Family]:
        """Return the metric families, by name."""
        return self._families

    def encode(self, accept: str) -> tuple[bytes, str]:
        """Return the text in a format that an Accept header takes, and its content type."""
        encoder, content_type = choose_encoder(accept)
        registry: Any = self  # of a registry it asks for `collect` alone
        return encoder(registry), content_type


class SharedCall(Generic[_Result]):
    """Calls a function: callers that come while it is at work share its outcome."""

    def __init__(self, act: Callable[[], _Result]) -> None:
        self._act, self._lock = act, Lock()
        self._running: Future[_Result] | None = None

    def __call__(self) -> _Result:
        """Return the function's result, or raise its error."""
        with self._lock:
            running, is_first = self._running, self._running is None
            if running is None:
                running = self._running = Future()
        if is_first:
            try:
                with ErrorBoundary(running.set_exception):
                    running.set_result(self._act())
            finally:
                running.cancel()  # if an interrupt left it without an outcome
                with self._lock:
                    self._running = None
        return running.result()


class ScrapeServer(HTTPServer):
    """Answers GET /metrics on threads, `MOST_SCRAPES` at most.

    Args:
        host: address to listen on.
        port: 0 for any that is free.
        answer: takes an Accept header; returns the body, and its content type.

    Raises:
        OSError: the address can't be listened on.
    """

    request_queue_size = MOST_SCRAPES
    timeout = _LOOK_SECONDS

    def __init__(self, host: str, port: int, answer: Callable[[str], tuple[bytes, str]]) -> None:
        self.answer, self._places = answer, Semaphore(MOST_SCRAPES)
        if ":" in host:
            from socket import AF_INET6

            self.address_family = AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without a look at the name service, which may hang."""
        super(HTTPServer, self).server_bind()
        self.server_name, self.server_port = self.socket.getsockname()[:2]

    @property
    def url(self) -> str:
        """URL of the metrics."""
        return f"http://{ListenAddress(self.server_name, self.server_port)}{PATH}"

    def serve_until(self, stop: Event) -> None:
        """Serve until `stop` is set; scrapes under way are left to their threads."""
        with self:
            while not stop.is_set():
                self.handle_request()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on another thread; refuse if none is free."""
        if self._places.acquire(blocking=False):
            try:
                start_thread("commitlog-scrape", lambda: self._serve(request, client_address))
            except RuntimeError:
                self._places.release()
            else:
                return
        with suppress(OSError):
            request.sendall(_BUSY)
        self.shutdown_request(request)

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError as error:  # the client is gone, or silent
            log.debug("a scrape from %s failed: %s", client_address, error)
        finally:
            self.shutdown_request(request)
            self._places.release()


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE_SECONDS
    server: ScrapeServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == PATH:
            with ErrorBoundary(self._report, passing=OSError):
                self._reply(*self.server.answer(self.headers.get("Accept", "")))
        elif path == "/":
            self._reply(_INDEX, "text/plain; charset=utf-8")
        else:
            self.send_error(404)

    def _report(self, error: Exception) -> None:
        log.error("a scrape failed; please report this", exc_info=error)
        self.send_error(500)

    def _reply(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "commitlog"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 http.server's name
        log.debug("%s %s", self.client_address[0], format % args)
