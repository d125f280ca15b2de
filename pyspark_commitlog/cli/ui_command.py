"""`commitlog ui`: the read-only web page."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from pyspark_commitlog.cli.common.arguments import ListenAddress, Root, listening, opened, parse_listen
from pyspark_commitlog.cli.common.endings import SignalledError, complain, ended_by_signals, print_lines
from pyspark_commitlog.errors import UnsupportedError


def ui(
    root: Root,
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Where the page is; port 0 is any free one. Beyond loopback the printed URL holds a token.",
        ),
    ] = "127.0.0.1:8321",
    mask: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A column, member of JSON values or header not to show. Several times."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name by which browsers reach this machine. Several times."),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Ask for a token on loopback, too: other users of this machine lack it.")
    ] = False,
) -> None:
    """Show topics, groups and records on a web page, in a browser on this machine. It only reads.

    Ctrl-C and SIGTERM end it. The page acts as --principal.
    """
    with opened(root) as log:
        try:
            from pyspark_commitlog.cli.ui.serving import bind, serve
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
                raise
            raise UnsupportedError("the page needs more packages: pip install 'pyspark-commitlog[ui]'") from error

        address = parse_listen(listen)
        log.root.check()
        with listening(address):
            bound = bind(*address)

        def announce(port: int, token: str | None) -> None:
            print_lines([f"http://{ListenAddress(address.host, port)}/{'' if token is None else f'?token={token}'}"])
            complain("Ctrl-C ends it")

        with suppress(SignalledError), ended_by_signals():
            serve(log, bound, address.host, announce, masked=mask or (), hosts=host or (), with_token=token)
