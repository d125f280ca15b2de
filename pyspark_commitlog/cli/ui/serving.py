"""Serves the page, by uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection

import uvicorn

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.ui.listen_address import ListenAddress, policy_for
from pyspark_commitlog.cli.ui.request_policy import is_loopback
from pyspark_commitlog.cli.ui.routes import create_app
from pyspark_commitlog.errors import UsageError

#: Connections that wait to be accepted, and that are open at once.
_BACKLOG, _CONNECTIONS = 64, 64
#: Seconds that a request may take on after the end was asked for.
_GRACE_SECONDS = 2


def serve(
    log: CommitLog,
    listen: ListenAddress,
    announce: Callable[[str], None],
    *,
    masked: Collection[str] = (),
    hosts: Collection[str] = (),
    with_token: bool = False,
) -> None:
    """Serve a log's page until SIGINT or SIGTERM.

    Args:
        log: opened for a principal.
        listen: beyond loopback a random token is needed.
        announce: gets the URL, with the token.
        masked, hosts: see `create_app`, `policy_for`.
        with_token: ask for a token on loopback, too.

    Raises:
        UsageError: it can't listen there.
        RootNotFoundError: there is no root.
    """
    log.root.check()
    with _bound_socket(listen) as bound:
        address, port = bound.getsockname()[:2]
        token = log.root.storage.new_id() if with_token or not is_loopback(address) else None
        app = create_app(log, policy_for(listen.host, address, hosts, token), frozenset(masked))
        query = "" if token is None else f"?token={token}"
        announce(f"http://{listen.url_host}:{port}/{query}")
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
        uvicorn.Server(config).run(sockets=[bound])


def _bound_socket(listen: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(
            f"--listen {listen.url_host}:{listen.port}: {error.strerror}: give another address, or port 0 for any free "
            "one"
        ) from error
