"""An S3 server on this machine that fails as it is told to: `python -m tests.nemesis.s3_server HOME NAME PORT BACK_PORT`.

moto's, in memory. What fails is a file of the directory `HOME` while it is there: `away-<NAME>` (nobody listens at
`PORT`, and who waits for a reply gets none), `hang-`, `slow-`, `full-`, `read only-` and `spoiled-<NAME>`. At
`BACK_PORT` nothing ever fails: that is for who lets things fail.
"""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from local_s3 import _QuietHandler, one_at_a_time  # type: ignore[import-not-found]

HOST = "127.0.0.1"
_App = Callable[..., Iterable[bytes]]
_CHANGING = ("PUT", "POST", "DELETE")
_LOOK_SECONDS, _SLOW_SECONDS = 0.02, 0.1
#: Of the requests of a server that is spoiled.
_OFTEN_SPOILED = 0.2


class Failing:
    """A WSGI application that fails as marks say, in front of one that does not."""

    def __init__(self, app: _App, home: Path, name: str) -> None:
        self._app, self._home, self._name = app, home, name
        self._chance = random.Random(name)

    def is_(self, what: str) -> bool:
        """Return whether something is wrong."""
        return (self._home / f"{what}-{self._name}").exists()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve a request, late, not at all, or without a reply."""
        changes = environ["REQUEST_METHOD"] in _CHANGING
        if changes and self.is_("slow"):
            time.sleep(_SLOW_SECONDS)
        while self.is_("hang") and not self.is_("away"):
            time.sleep(_LOOK_SECONDS)
        if changes and self.is_("read only"):
            return _refused(start_response, "403 Forbidden", "AccessDenied")
        if self.is_("full") and environ["REQUEST_METHOD"] == "PUT":
            return _refused(start_response, "507 Insufficient Storage", "XMinioStorageFull")
        spoiled = self.is_("spoiled") and self._chance.random() < _OFTEN_SPOILED
        if spoiled and self._chance.random() < 0.5:
            return _refused(start_response, "503 Slow Down", "SlowDown")
        if self.is_("away"):
            return _hung_up(environ)
        reply = self._app(environ, start_response)
        return _hung_up(environ) if spoiled or self.is_("away") else reply


def _refused(start_response: Callable[..., Any], status: str, code: str) -> list[bytes]:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{status}</Message></Error>".encode()
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _hung_up(environ: dict[str, Any]) -> list[bytes]:
    """Close the connection without a reply."""
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


def serve(app: _App, port: int) -> Any:
    """Begin to serve; return the server."""
    server = make_server(HOST, port, app, threaded=True, request_handler=_QuietHandler)
    threading.Thread(target=server.serve_forever, args=(_LOOK_SECONDS,), daemon=True).start()
    return server


def main(home: Path, name: str, port: int, back_port: int) -> None:
    """Serve for ever."""
    app = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    front, failing = None, Failing(app, home, name)
    serve(app, back_port)
    while True:
        away = failing.is_("away")
        if away and front is not None:
            front.shutdown()
            front.server_close()
            front = None
        elif not away and front is None:
            front = serve(failing, port)
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
