"""Which requests the page answers (pure).

A page of another site, or a name that was pointed at this machine (DNS rebinding), has a foreign Host, Origin or
Sec-Fetch-Site.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

#: Cookie of the token.
COOKIE = "commitlog_ui"
#: Names of this machine's own loopback, as browsers write them.
LOOPBACK = frozenset(["localhost", "127.0.0.1", "::1"])
#: All addresses of a machine.
_ANY = frozenset(["0.0.0.0", "::"])
_BEARER = "Bearer "
#: Sent with every response. No inline script or style runs, and nothing is loaded from elsewhere.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Status and text of a refused request."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """Hosts and token that requests must have."""

    #: Names and addresses that Host may have, in lower case. The port may be another one, as it may be forwarded.
    hosts: frozenset[str] = LOOPBACK
    #: Whether Host may be any IP address, which can't be rebound: of a server that listens at all of a machine's.
    any_address: bool = False
    #: None: none is needed.
    token: str | None = None

    def refusal(self, method: str, headers: Mapping[str, Sequence[str]], tokens: Sequence[str]) -> Refusal | None:
        """Return why a request is refused; None if it is answered.

        Args:
            method: HTTP's.
            headers: values by name, in lower case.
            tokens: those presented.
        """
        if method != "GET":
            return Refusal(405, f"{method} is not allowed: this page only reads")
        hosts = headers.get("host", ())
        if len(hosts) != 1 or not self._is_host(host_name(hosts[0])):
            names = ", ".join(sorted(self.hosts))
            return Refusal(403, f"the request is for another host than {names}: allow a name with --host NAME")
        if is_foreign(hosts[0], headers):
            return Refusal(403, "the request comes from a page of another site")
        if self.token is not None and not any(is_same(self.token, token) for token in tokens):
            return Refusal(401, "a token is needed: open the URL that `commitlog ui` has printed")
        return None

    def _is_host(self, name: str) -> bool:
        return name in self.hosts or (self.any_address and is_address(name))


def policy_for(host: str, bound: str, names: Collection[str], token: str | None) -> RequestPolicy:
    """Return the policy of a page at a host, bound to an IP address, with further `names` for browsers."""
    own = LOOPBACK if is_loopback(bound) or bound in _ANY else frozenset[str]()
    hosts = own | {host.lower(), bound} | {name.lower() for name in names}
    return RequestPolicy(hosts - _ANY, any_address=bound in _ANY, token=token)


def is_foreign(host: str, headers: Mapping[str, Sequence[str]]) -> bool:
    """Whether a page of another origin sends a request; it may link here, but not read."""
    if any(origin.partition("://")[2].lower() != host.lower() for origin in headers.get("origin", ())):
        return True
    sites, modes = headers.get("sec-fetch-site", ()), headers.get("sec-fetch-mode", ())
    return any(site not in ("same-origin", "none") for site in sites) and list(modes) != ["navigate"]


def host_name(host: str) -> str:
    """Return a Host header's name or address in lower case, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def is_address(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Whether an IP address is reached from this machine only."""
    return ip_address(address.partition("%")[0]).is_loopback


def is_same(token: str, other: str) -> bool:
    """Compare tokens, in a time that does not depend on where they differ."""
    return hmac.compare_digest(token.encode(), other.encode("utf-8", "replace"))


def presented_tokens(cookies: Mapping[str, str], authorization: Sequence[str]) -> list[str]:
    """Return the tokens of a cookie and of Authorization headers."""
    bearer = [value.removeprefix(_BEARER) for value in authorization if value.startswith(_BEARER)]
    return [*bearer, *([cookies[COOKIE]] if COOKIE in cookies else [])]
