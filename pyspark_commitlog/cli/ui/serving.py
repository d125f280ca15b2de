"""Serves the page, by uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection

import uvicorn

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.ui.request_policy import is_loopback, policy_for
from pyspark_commitlog.cli.ui.routes import create_app

#: Connections that wait to be accepted, and that are open at once.
_BACKLOG, _CONNECTIONS = 64, 64
#: Seconds that a request may take on after the end was asked for.
_GRACE_SECONDS = 2


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 is any free one.

    Raises:
        OSError: it can't listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def serve(
    log: CommitLog,
    listener: socket.socket,
    host: str,
    announce: Callable[[int, str | None], None],
    *,
    masked: Collection[str] = (),
    hosts: Collection[str] = (),
    with_token: bool = False,
) -> None:
    """Serve a log's page until SIGINT or SIGTERM, and close the socket.

    Args:
        log: opened for a principal.
        listener: from `bind`; beyond loopback a random token is needed.
        host: the name or address that was given to `bind`.
        announce: gets the port, and the token if one is needed.
        masked, hosts: see `create_app`, `policy_for`.
        with_token: ask for a token on loopback, too.
    """
    with listener:
        address, port = listener.getsockname()[:2]
        token = log.root.storage.new_id() if with_token or not is_loopback(address) else None
        app = create_app(log, policy_for(host, address, hosts, token), frozenset(masked))
        announce(port, token)
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        uvicorn.Server(config).run(sockets=[listener])
