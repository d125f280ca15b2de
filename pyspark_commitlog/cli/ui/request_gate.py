"""ASGI middleware: refuses requests, bounds those at work, adds security headers."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyspark_commitlog.cli.ui.request_policy import COOKIE, HEADERS, RequestPolicy, is_same, presented_tokens

#: Requests to the log at work at once; others are refused.
REQUESTS_AT_ONCE = 4
_API = "/api/"


class RequestGate:
    """Lets only permitted requests through.

    Args:
        app: what answers them.
        policy: which are permitted.
        most: requests below `/api/` at work at once; others get 503.
    """

    def __init__(self, app: ASGIApp, policy: RequestPolicy, most: int = REQUESTS_AT_ONCE) -> None:
        self._app, self._policy, self._most = app, policy, most
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the app do it."""
        if scope["type"] != "http":
            return

        async def send_hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        response = self._response(scope)
        if response is not None:
            await response(scope, receive, send_hardened)
            return
        counted = scope["path"].startswith(_API)
        self._active += counted
        try:
            await self._app(scope, receive, send_hardened)
        finally:
            self._active -= counted

    def _response(self, scope: Scope) -> Response | None:
        """Response to a request that the app does not get."""
        headers = Headers(scope=scope)
        values: dict[str, Sequence[str]] = {name: headers.getlist(name) for name in headers}
        in_url = QueryParams(scope["query_string"]).getlist("token") if scope["path"] == "/" else []
        tokens = [
            *presented_tokens(cookie_parser(headers.get("cookie", "")), headers.getlist("authorization")),
            *in_url,
        ]
        refusal = self._policy.refusal(scope["method"], values, tokens)
        if refusal is not None:
            allow = {"Allow": "GET"} if refusal.status == 405 else {}
            return JSONResponse({"error": "Refused", "message": refusal.text}, refusal.status, allow)
        if in_url:
            return self._with_cookie(in_url)
        if scope["path"].startswith(_API) and self._active >= self._most:
            text = f"{self._most} requests are at work: try again in a second"
            return JSONResponse({"error": "Busy", "message": text}, 503, {"Retry-After": "1"})
        return None

    def _with_cookie(self, in_url: Sequence[str]) -> Response:
        """Take the token out of the address, where a history would keep it."""
        response = RedirectResponse("/", 303)
        token = self._policy.token
        if token is not None and any(is_same(token, each) for each in in_url):
            response.set_cookie(COOKIE, token, httponly=True, samesite="lax", path="/")
        return response
