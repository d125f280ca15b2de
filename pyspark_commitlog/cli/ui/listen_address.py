"""Where the page listens, and the hosts that requests may be for (pure)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark_commitlog.cli.ui.request_policy import LOOPBACK, RequestPolicy, is_loopback
from pyspark_commitlog.errors import UsageError

#: Address of the page, unless one is given.
DEFAULT_LISTEN = "127.0.0.1:8321"
#: All addresses of a machine.
_ANY = frozenset(["0.0.0.0", "::"])


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Address and port to listen at; port 0 is any free one."""

    host: str
    port: int

    @property
    def url_host(self) -> str:
        """The host in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_listen(text: str) -> ListenAddress:
    """Parse `ADDRESS:PORT`, `[IPv6]:PORT` or `:PORT`, which is on loopback.

    Raises:
        UsageError: it is none.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (colon and port.isascii() and port.isdigit() and int(port) < 2**16):
        raise UsageError(f"--listen {text}: use ADDRESS:PORT, as in {DEFAULT_LISTEN}; port 0 is any free one")
    return ListenAddress(host, int(port))


def policy_for(host: str, bound: str, names: Collection[str], token: str | None) -> RequestPolicy:
    """Return the policy of a page at a host, bound to an IP address, with further `names` for browsers."""
    own = LOOPBACK if is_loopback(bound) or bound in _ANY else frozenset[str]()
    hosts = own | {host.lower(), bound} | {name.lower() for name in names}
    return RequestPolicy(hosts - _ANY, any_address=bound in _ANY, token=token)
