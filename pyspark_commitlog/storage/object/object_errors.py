"""Classify an object store's errors: certainty, retry, and advice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark_commitlog.errors import (
    CommitLogError,
    StorageError,
    StorageReadOnlyError,
    StorageUnreadableError,
)
from pyspark_commitlog.storage.base import NotPutError

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]+)</Code>")
#: A URL's query (signatures, tokens), and its login.
_QUERY = re.compile(r"\?\S+")
_LOGIN = re.compile(r"(https?://)[^\s/@]+@")
_WORDS = 300
#: Step, address and system message in a library's error.
_CONNECT = re.compile(
    r'ConnectError\(\s*"([^"]+)",\s*([\[\]0-9a-fA-F.:]+),.{,80}?code: \d+,.{,120}?message: "([^"]+)"', re.DOTALL
)
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)")
#: Errors for a bucket in another region than the request's, and that region.
_OTHER_REGION = re.compile(
    r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|incorrectly configured region"
)
_REGION = re.compile(r"<Region>([a-z0-9-]+)</Region>|expecting '([a-z0-9-]+)'")
#: Shorter values may be parts of words and stay.
_LEAST_HIDDEN = 3
#: Words that may be part of a secret.
_PIECE = re.compile(r"[\w+/=.-]{3,}")

#: Addresses of services that give a machine or container its role's credentials.
_METADATA = re.compile(r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal")

#: Statuses that a retry may avoid.
_PASSING = frozenset([408, 429, 500, 502, 503, 504])
#: S3 returns 400 for an expired session token.
_EXPIRED_CODES = frozenset(["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"])
#: The library's messages for a missing reply or a truncated listing.
_NO_ANSWER = ("Error performing", "HTTP error", "invalid list response")
#: "Name exists" is 412 on S3 and GCS, 409 with this code on Azure. Any other 409 (concurrent puts) decides nothing.
_TAKEN_CODES = frozenset(["BlobAlreadyExists"])


def status_of(error: BaseException) -> int | None:
    """Return an error's HTTP status; None without a reply."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def code_of(error: BaseException) -> str:
    """Return the store's error code (`NoSuchBucket`), else ""."""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def says_taken(error: BaseException) -> bool:
    """Whether a conditional put's reply proves that the name exists."""
    status = status_of(error)
    return status in (None, 412) or code_of(error) in _TAKEN_CODES


def is_passing(error: BaseException) -> bool:
    """Whether a retry may succeed: throttling, server error or no reply."""
    from obstore import exceptions as theirs

    if not isinstance(error, theirs.GenericError) and type(error) is not OSError:  # a writer raises bare OSError
        return False
    status, text = status_of(error), str(error)
    if _CERTIFICATE.search(text):
        return False
    return status in _PASSING if status is not None else any(words in text for words in _NO_ANSWER)


def lacks_credentials(error: BaseException) -> bool:
    """Whether nothing was sent for lack of the machine's credentials."""
    return _METADATA.search(str(error)) is not None


def was_not_sent(error: BaseException) -> bool:
    """Whether nothing was sent and a retry may succeed."""
    return lacks_credentials(error) and is_passing(error)


def _fails_to_give(error: BaseException) -> bool:
    return status_of(error) in _PASSING or "timed out" in str(error)


def is_beyond_the_end(error: BaseException) -> bool:
    """Whether a range begins after the object's last byte."""
    return status_of(error) == 416 or "StartTooLarge" in str(error)


def first_line(error: BaseException) -> str:
    """Return an error's first line, without URL queries and the store's page."""
    line = str(error).partition("\n")[0].partition("<?xml")[0].rstrip(": ")
    line = _LOGIN.sub(r"\1", _QUERY.sub("", line))[:_WORDS]
    code = code_of(error)
    return f"{line} ({code})" if code else line


def connect_cause(error: BaseException) -> str:
    """Return the refused address and the reason, else ""."""
    found = _CONNECT.search(str(error))
    return f" ({found[1]}, {found[2]}: {found[3]})" if found else ""


def without_values(text: str, options: Mapping[str, object]) -> str:
    """Return a library's message with all option values hidden (pure)."""
    values = list(_texts(options))
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _LEAST_HIDDEN:
            text = text.replace(value, "…")

    def hidden(word: re.Match[str]) -> str:
        return "…" if any(word[0] in value for value in values) else word[0]

    return _PIECE.sub(hidden, text)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif value is not None:
        yield str(value)


@contextmanager
def without_panic(url: str) -> Iterator[None]:
    """Translate a panic of the library; the request may have been sent."""
    try:
        yield
    except BaseException as error:  # a panic is no Exception
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise StorageError(
            f"{url}: the object store's library fails on this address or options ({first_line(error)}): check the "
            "URL, the endpoint, the proxy and the storage options"
        ) from None


@contextmanager
def explained(url: str, action: str, *, worked: bool = False) -> Iterator[None]:
    """Translate the library's errors, except "not found" and "exists".

    `worked`: as in `explain`.
    """
    from obstore import exceptions as theirs

    try:
        yield
    except CommitLogError:
        raise
    except FileNotFoundError as error:
        if code_of(error) in ("NoSuchBucket", "ContainerNotFound"):
            raise no_bucket(url, action) from None
        raise FileNotFoundError(f"{url}: cannot {action}: it is not there") from None
    except (theirs.BaseError, OSError) as error:  # an upload's writer raises bare OSError
        raise explain(error, url, action, worked=worked) from None


def explain(error: Exception, url: str, action: str, *, worked: bool = False) -> StorageError:
    """Return our error for the library's: action, place, advice.

    `worked`: this client has had a reply, so credentials exist or existed.
    """
    where = f"{url}: cannot {action}"
    if code_of(error) in ("NoSuchBucket", "ContainerNotFound"):
        return no_bucket(url, action)
    denied = StorageUnreadableError if action.startswith(("read ", "list ")) else StorageReadOnlyError
    if advice := _address_advice(error):
        return denied(f"{where}: {advice}")
    if lacks_credentials(error):
        if worked or _fails_to_give(error):
            return _credentials_service_fails(error, where, action)
        return denied(
            f"{where}: no credentials were given, and this machine has no role to get some by. Give them as storage "
            "options or in the environment (docs/how-to/object-stores.md)"
        )
    if _is_refused(error):
        return denied(
            f"{where}: the store refuses it to these credentials: {first_line(error)}. Check the key, whether it has "
            "expired, and what it allows"
        )
    if status_of(error) is None and is_passing(error):
        said = f"{first_line(error)}{connect_cause(error)}"
        return StorageError(f"{where}: no answer: {said}. Check the endpoint and the network, or the proxy")
    return StorageError(f"{where}: {first_line(error)}")


def _credentials_service_fails(error: Exception, where: str, action: str) -> StorageError:
    return (NotPutError if action.startswith("write ") else StorageError)(
        f"{where}: the service of this machine that gives credentials fails: {first_line(error)}. Try again; where the "
        "machine has no role, give credentials as storage options or in the environment (docs/how-to/object-stores.md)"
    )


def _is_refused(error: Exception) -> bool:
    from obstore import exceptions as theirs

    refused = isinstance(error, theirs.PermissionDeniedError | theirs.UnauthenticatedError)
    return refused or status_of(error) in (401, 403) or code_of(error) in _EXPIRED_CODES


def _address_advice(error: Exception) -> str:
    text = str(error)
    if found := _CERTIFICATE.search(text):
        return (
            f"the certificate of {_host(text)} is not trusted ({found[1]}): name a file with the CA's certificate in "
            "the environment variable SSL_CERT_FILE, of Spark's executors too (AWS_CA_BUNDLE is not read)"
        )
    if _OTHER_REGION.search(text):
        region = _REGION.search(text)
        expected = f", {region[1] or region[2]}," if region else ""
        return f"the bucket lies in another region{expected} than the storage option region_name or AWS_REGION says"
    return ""


def _host(text: str) -> str:
    found = re.search(r"https://(?:[^\s/@]+@)?([^\s/@,]+)", text)
    return found[1] if found else "the endpoint"


def no_bucket(url: str, action: str) -> StorageError:
    """Error for a missing bucket or container."""
    return StorageError(f"{url}: cannot {action}: there is no such bucket: check the URL, or make the bucket")
