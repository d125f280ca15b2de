"""HTTP as the proxy and the gateway speak it: one request in, one reply out, over loopback."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

HOST = "127.0.0.1"
UPSTREAM_SECONDS = 60
_HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "expect", "content-length"}


class HungUpError(Exception):
    """The client gets no reply: its connection is closed, or reset."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__()
        self.reset = reset


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came; `headers` in order, the client's own `Host` among them, as signatures cover it."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        """Return the query's parameters."""
        found = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    @property
    def verb(self) -> str:
        """Return the method, or LIST for a GET that lists."""
        query = self.query
        return "LIST" if self.method == "GET" and ("list-type" in query or query.get("comp") == "list") else self.method

    @property
    def is_conditional(self) -> bool:
        """Return whether it is a put if absent."""
        return self.method == "PUT" and bool(self.header("if-none-match") or self.header("x-goog-if-generation-match"))

    @property
    def path(self) -> str:
        """Return bucket and name without escapes; of a listing the bucket and the prefix."""
        path = unquote(urlsplit(self.target).path)
        return f"{path.rstrip('/')}/{self.query.get('prefix', '')}" if self.verb == "LIST" else path

    def header(self, name: str) -> str:
        """Return a header's value; empty where there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, and how it is delivered.

    `length` is the Content-Length to claim (the body's, if None); the connection is closed after `cut` bytes of the body,
    and a pause of `seconds` lies in the middle of it.
    """

    status: int
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    length: int | None = None
    cut: int | None = None
    seconds: float = 0.0

    def changed(self, **changes: Any) -> Reply:
        """Return this reply with changes."""
        return replace(self, **changes)

    def header(self, name: str) -> str:
        """Return a header's value; empty where there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")


class Upstream:
    """A connection to the server behind; one thread uses it at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, request: Request) -> Reply:
        """Hand a request on, once.

        A connection that the server has closed while it was idle is replaced: it answers with nothing at all.
        """
        if self._connection is not None:
            try:
                return self._ask(self._connection, request)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self._connection.close()
        self._connection = http.client.HTTPConnection(HOST, self._port, timeout=UPSTREAM_SECONDS)
        return self._ask(self._connection, request)

    def _ask(self, connection: http.client.HTTPConnection, request: Request) -> Reply:
        connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers:
            if name.lower() not in _HOP_BY_HOP:
                connection.putheader(name, value)
        if request.body or request.method in ("PUT", "POST"):
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body or None)
        got = connection.getresponse()
        body = got.read()
        headers = [(name, value) for name, value in got.getheaders() if name.lower() not in _HOP_BY_HOP]
        length = got.getheader("Content-Length")
        return Reply(got.status, headers, body, int(length) if request.method == "HEAD" and length else None)

    def close(self) -> None:
        """Close it."""
        if self._connection is not None:
            self._connection.close()


class LoopbackServer:
    """A threaded HTTP server in front of another; subclasses answer in `reply`."""

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self._server = _Listener((HOST, 0), _Connection)
        self._server.owner = self
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def endpoint(self) -> str:
        """Return `http://host:port`."""
        return f"http://{HOST}:{self.port}"

    def reply(self, request: Request, upstream: Upstream) -> Reply:
        """Answer a request.

        Raises:
            HungUpError: the client is to get no reply.
        """
        return upstream.ask(request)

    def start(self) -> None:
        """Serve, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End: open connections end with their clients."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    owner: LoopbackServer

    def handle_error(self, *_: Any) -> None:
        """Say nothing: clients hang up, and are killed."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Listener

    def setup(self) -> None:
        super().setup()
        self._upstream = Upstream(self.server.owner.upstream_port)

    def finish(self) -> None:
        self._upstream.close()
        super().finish()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _serve(self) -> None:
        request = Request(self.command, self.path, self.headers.items(), self._body())
        try:
            reply = self.server.owner.reply(request, self._upstream)
        except HungUpError as error:
            self._hang_up(reset=error.reset)
            return
        self._send(reply)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _send(self, reply: Reply) -> None:
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        if reply.status not in (204, 304):
            self.send_header("Content-Length", str(len(reply.body) if reply.length is None else reply.length))
        self.end_headers()
        body = reply.body if reply.cut is None else reply.body[: reply.cut]
        if reply.seconds:
            half = len(body) // 2
            self.wfile.write(body[:half])
            self.wfile.flush()
            time.sleep(reply.seconds)
            body = body[half:]
        self.wfile.write(body)
        self.wfile.flush()
        if reply.cut is not None:
            self._hang_up(reset=False)

    def _hang_up(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:  # no lingering: the kernel answers with RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # noqa: N815 - names that the base class calls
