"""A proxy in front of a real server that spoils requests: what a network and a busy store do, when a test wants it.

Faults come by script (the n-th request of a verb whose path matches) or by chance (a share of all requests, seeded)::

    proxy.add(lose_reply, verb=CONDITIONAL, path="/journal/", nth=3)
    proxy.chance(0.02, seed=1)

A fault is a function of an `Exchange`: it has the request executed by the server or not, once or twice, now or later, and
returns the reply, or raises `HungUpError`.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.object_stores.wire import HungUpError, LoopbackServer, Reply, Request, Upstream

#: Requests that a proxy remembers at most, to be looked at by tests.
_REMEMBERED = 200_000
_WAITING_SECONDS = 600
#: As a rule's verb: puts if absent, the only requests that S3 answers with 409.
CONDITIONAL = "PUT if absent"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request at the proxy."""

    proxy: Proxy
    request: Request
    upstream: Upstream

    def execute(self) -> Reply:
        """Have the server execute it; may be called again."""
        return self.proxy.ask(self.request, self.upstream)


Fault = Callable[[Exchange], Reply]


@dataclass(slots=True)
class Rule:
    """Which requests a fault hits; `hits` counts them."""

    fault: Fault
    verb: str
    path: re.Pattern[str]
    nth: int
    times: int
    seen: int = 0
    hits: int = 0

    def takes(self, request: Request) -> bool:
        """Count a request; return whether it is to fail."""
        verb = CONDITIONAL if request.is_conditional and self.verb == CONDITIONAL else request.verb
        if not re.fullmatch(self.verb, verb) or not self.path.search(request.path):
            return False
        self.seen += 1
        if not self.nth <= self.seen < self.nth + self.times:
            return False
        self.hits += 1
        return True


@dataclass(frozen=True, slots=True)
class Served:
    """What was asked (`Request.verb`), and what the client got: `status` 0 for nothing; `fault` names what spoiled it."""

    verb: str
    path: str
    status: int
    fault: str


@dataclass(slots=True)
class _Chance:
    share: float
    random: random.Random
    faults: dict[str, Sequence[Fault]] = field(default_factory=dict)

    def draw(self, request: Request) -> Fault | None:
        verb = CONDITIONAL if request.is_conditional else request.verb
        faults = self.faults.get(verb, self.faults["*"])
        return self.random.choice(faults) if self.random.random() < self.share else None


class Proxy(LoopbackServer):
    """Listens on a port of its own; `served` is what went through, in order of the replies."""

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._chance: _Chance | None = None
        self._held: list[Request] = []
        self.lists: dict[str, Reply] = {}
        self.served: list[Served] = []
        self.victim = 0
        self.may_go_on = threading.Event()

    # --- what tests say -----------------------------------------------------------------------------------

    def add(self, fault: Fault, *, verb: str = ".*", path: str = "", nth: int = 1, times: int = 1) -> Rule:
        """Have `times` requests fail from the `nth` (from 1) on of those that match, counted from now."""
        rule = Rule(fault, verb, re.compile(path), nth, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def chance(self, share: float, seed: int, faults: dict[str, Sequence[Fault]] | None = None) -> None:
        """Have a share of all requests fail, as drawn."""
        self._chance = _Chance(share, random.Random(seed), faults or BY_CHANCE) if share else None

    def calm(self) -> None:
        """Hand on everything from now on, and forget what was served."""
        with self._lock:
            self._rules, self._chance, self.served = [], None, []

    def spoiled(self) -> dict[str, int]:
        """Return how often each fault came."""
        found: dict[str, int] = {}
        for one in self.served:
            if one.fault:
                found[one.fault] = found.get(one.fault, 0) + 1
        return found

    def hold(self, request: Request) -> None:
        """Keep a request for `execute_held`."""
        with self._lock:
            self._held.append(request)

    def go_on(self) -> None:
        """Let requests that are `waiting` reach the server."""
        self.may_go_on.set()

    def execute_held(self) -> list[Reply]:
        """Have the server execute what is held, now; nobody gets the replies, but the caller."""
        with self._lock:
            held, self._held = self._held, []
        upstream = Upstream(self.upstream_port)
        try:
            return [upstream.ask(request) for request in held]
        finally:
            upstream.close()

    # --- serving ------------------------------------------------------------------------------------------

    def ask(self, request: Request, upstream: Upstream) -> Reply:
        """Hand a request on; replies to listings are kept, for `stale_list`."""
        reply = upstream.ask(request)
        if request.verb == "LIST":
            self.lists[request.target] = reply
        return reply

    def reply(self, request: Request, upstream: Upstream) -> Reply:
        """See `LoopbackServer.reply`."""
        fault = self._fault_of(request)
        exchange, status = Exchange(self, request, upstream), 0
        try:
            reply = exchange.execute() if fault is None else fault(exchange)
            status = reply.status
            return reply
        finally:
            if len(self.served) < _REMEMBERED:
                self.served.append(Served(request.verb, request.path, status, "" if fault is None else name_of(fault)))

    def _fault_of(self, request: Request) -> Fault | None:
        with self._lock:
            hit = [rule for rule in self._rules if rule.takes(request)]
            if hit:
                return hit[0].fault
            return None if self._chance is None else self._chance.draw(request)


def name_of(fault: Fault) -> str:
    """Return a fault's name."""
    return fault.__name__


# --- faults -----------------------------------------------------------------------------------------------


def drop(exchange: Exchange) -> Reply:
    """Close the connection before the server executes it."""
    raise HungUpError


def lose_reply(exchange: Exchange) -> Reply:
    """Close the connection after the server has executed it."""
    exchange.execute()
    raise HungUpError


def reset(exchange: Exchange) -> Reply:
    """Reset the connection before the server executes it."""
    raise HungUpError(reset=True)


def reset_after(exchange: Exchange) -> Reply:
    """Reset the connection after the server has executed it."""
    exchange.execute()
    raise HungUpError(reset=True)


def twice(exchange: Exchange) -> Reply:
    """Execute it twice, as a proxy that sends again; the first reply goes to the client."""
    first = exchange.execute()
    exchange.execute()
    return first


def second_reply(exchange: Exchange) -> Reply:
    """Execute it twice; the second reply goes to the client: of a put-if-absent "exists" (412), for its own put."""
    exchange.execute()
    return exchange.execute()


def held(exchange: Exchange) -> Reply:
    """Close the connection; the server executes it when the test says so (`Proxy.execute_held`)."""
    exchange.proxy.hold(exchange.request)
    raise HungUpError


def waiting(exchange: Exchange) -> Reply:
    """Keep it until the test says `Proxy.go_on`, at most ten minutes: its client waits, as a process that is stopped."""
    exchange.proxy.may_go_on.wait(_WAITING_SECONDS)
    return exchange.execute()


def late(seconds: float) -> Fault:
    """Close the connection now; the server executes it so much later."""

    def late(exchange: Exchange) -> Reply:
        def execute() -> None:
            upstream = Upstream(exchange.proxy.upstream_port)
            upstream.ask(exchange.request)
            upstream.close()

        timer = threading.Timer(seconds, execute)
        timer.daemon = True
        timer.start()
        raise HungUpError

    return late


def refuse(status: int, code: str, *, executed: bool = False, retry_after: int | None = None) -> Fault:
    """Answer with an error of S3; `executed`: the server has executed it all the same."""

    def fault(exchange: Exchange) -> Reply:
        if executed:
            exchange.execute()
        return error_reply(exchange.request, status, code, retry_after)

    fault.__name__ = f"{status}-{code}{'-after-it' if executed else ''}"
    return fault


def error_reply(request: Request, status: int, code: str, retry_after: int | None = None) -> Reply:
    """Return an error as S3 words it; a HEAD's has no body."""
    body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>injected</Message></Error>"
    headers = [("Content-Type", "application/xml"), ("x-ms-error-code", code)]
    if retry_after is not None:
        headers.append(("Retry-After", str(retry_after)))
    return Reply(status, headers, b"" if request.method == "HEAD" else body.encode())


conflict = refuse(409, "ConditionalRequestConflict")
conflict_after = refuse(409, "ConditionalRequestConflict", executed=True)
slow_down = refuse(503, "SlowDown", retry_after=1)
too_many = refuse(429, "TooManyRequests", retry_after=1)
server_error = refuse(500, "InternalError")
server_error_after = refuse(500, "InternalError", executed=True)
expired = refuse(400, "ExpiredToken")
forbidden = refuse(403, "ExpiredToken")


def slow_body(seconds: float) -> Fault:
    """Let half of the body wait."""

    def slow_body(exchange: Exchange) -> Reply:
        return exchange.execute().changed(seconds=seconds)

    return slow_body


def truncated(exchange: Exchange) -> Reply:
    """Close the connection in the middle of the body."""
    reply = exchange.execute()
    return reply.changed(cut=len(reply.body) // 2)


def short_length(exchange: Exchange) -> Reply:
    """Claim a Content-Length that is smaller than the body, and end there: nothing in HTTP says that bytes are missing."""
    reply = exchange.execute()
    if not reply.body:
        return reply
    half = len(reply.body) // 2
    return reply.changed(length=half, cut=half)


def long_length(exchange: Exchange) -> Reply:
    """Claim a Content-Length that is larger than the body, and close the connection after it."""
    reply = exchange.execute()
    return reply.changed(length=len(reply.body) + 1000, cut=len(reply.body)) if reply.body else reply


def stale_list(exchange: Exchange) -> Reply:
    """Answer a listing with what the same listing showed before; the first time as it is."""
    kept = exchange.proxy.lists.get(exchange.request.target)
    return kept if kept is not None else exchange.execute()


def kill_after(exchange: Exchange) -> Reply:
    """SIGKILL the client (`Proxy.victim`) once the server has executed it."""
    exchange.execute()
    os.kill(exchange.proxy.victim, signal.SIGKILL)
    raise HungUpError


def stop_before(exchange: Exchange) -> Reply:
    """SIGSTOP the client before the server executes it; the request goes on, the client does when a test continues it."""
    os.kill(exchange.proxy.victim, signal.SIGSTOP)
    time.sleep(0.01)
    return exchange.execute()


_ANY = (drop, lose_reply, reset, reset_after, slow_down, too_many, server_error, server_error_after)
#: Verb -> what `Proxy.chance` draws from.
BY_CHANCE: dict[str, Sequence[Fault]] = {
    "*": _ANY,
    "PUT": (*_ANY, twice, late(0.05)),
    CONDITIONAL: (*_ANY, conflict, conflict_after, twice, second_reply, late(0.05), late(2.0)),
    "GET": (*_ANY, truncated, slow_body(0.2), short_length, long_length),
    "LIST": (*_ANY, truncated, long_length),
    "DELETE": (*_ANY, twice),
}
