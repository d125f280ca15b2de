"""An S3 server on this machine, to try things on: `python examples/local_s3.py HOST PORT`. It is moto's, in memory.

It takes one request at a time: two conditional puts at once would both find nothing there, and both be taken.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server


class _QuietHandler(MotoRequestHandler):
    """Prints nothing of the requests that it serves."""

    def log_request(self, *_: Any) -> None:
        """Print nothing."""


def one_at_a_time(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI application that serves one request after the other."""
    lock = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return list(app(environ, start_response))

    return serve


def main(host: str, port: int) -> None:
    """Serve for ever."""
    app = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    make_server(host, port, app, threaded=True, request_handler=_QuietHandler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
