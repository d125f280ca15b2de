"""What an object store's error means: whether it is certain, whether to ask again, and what to do about it."""

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
#: What stands after a URL's path (signatures, tokens), with its host or without, and in front of its host.
_QUERY = re.compile(r"\?\S+")
_LOGIN = re.compile(r"(https?://)[^\s/@]+@")
_WORDS = 300
#: Of the library's own account of an error: step, address, the system's words.
_CONNECT = re.compile(
    r'ConnectError\(\s*"([^"]+)",\s*([\[\]0-9a-fA-F.:]+),.{,80}?code: \d+,.{,120}?message: "([^"]+)"', re.DOTALL
)
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)")
#: What a store says if a bucket lies in another region than the request was signed for, and which one.
_OTHER_REGION = re.compile(
    r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|incorrectly configured region"
)
_REGION = re.compile(r"<Region>([a-z0-9-]+)</Region>|expecting '([a-z0-9-]+)'")
#: Values of fewer characters than this may be parts of words.
_LEAST_HIDDEN = 3
#: A piece of a text that may be one of a secret.
_PIECE = re.compile(r"[\w+/=.-]{3,}")

#: The addresses of the services that give a machine, or a container, the credentials of its role.
_METADATA = re.compile(r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal")

#: Answers that another try may not get.
_PASSING = frozenset([408, 429, 500, 502, 503, 504])
#: S3 answers 400 to a session token that has expired, as if the request were wrong.
_EXPIRED_CODES = frozenset(["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"])
#: What the library says of an answer that did not come, or of a listing that ends in the middle.
_NO_ANSWER = ("Error performing", "HTTP error", "invalid list response")
#: The store says that the name is taken: 412 of S3 and GCS, 409 with this code of Azure. Any other 409 (two puts at
#: once) is no answer.
_TAKEN_CODES = frozenset(["BlobAlreadyExists"])


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that the library's error reports; None where there was no answer."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def code_of(error: BaseException) -> str:
    """Return the store's own code of an error (``NoSuchBucket``); empty where there is none."""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def says_taken(error: BaseException) -> bool:
    """Return whether an answer to a conditional put says with certainty that the name is taken."""
    status = status_of(error)
    return status in (None, 412) or code_of(error) in _TAKEN_CODES


def is_passing(error: BaseException) -> bool:
    """Return whether the same request may be answered next time: too many, a server's fault, or no answer at all."""
    from obstore import exceptions as theirs

    if not isinstance(error, theirs.GenericError) and type(error) is not OSError:  # a writer's errors are bare ones
        return False
    status, text = status_of(error), str(error)
    if _CERTIFICATE.search(text):
        return False
    return status in _PASSING if status is not None else any(words in text for words in _NO_ANSWER)


def lacks_credentials(error: BaseException) -> bool:
    """Return whether the request was never sent, as the machine's own service has no credentials for it."""
    return _METADATA.search(str(error)) is not None


def was_not_sent(error: BaseException) -> bool:
    """Return whether the request was never sent, and may be next time: the machine's own service did not answer it."""
    return lacks_credentials(error) and is_passing(error)


def _fails_to_give(error: BaseException) -> bool:
    """Return whether the machine's own service fails that is there, or may be: without a role nothing listens."""
    return status_of(error) in _PASSING or "timed out" in str(error)


def is_beyond_the_end(error: BaseException) -> bool:
    """Return whether a range begins after the last byte of the object."""
    return status_of(error) == 416 or "StartTooLarge" in str(error)


def first_line(error: BaseException) -> str:
    """Return what an error says, without what a URL has after its path, and without the store's page."""
    line = str(error).partition("\n")[0].partition("<?xml")[0].rstrip(": ")
    line = _LOGIN.sub(r"\1", _QUERY.sub("", line))[:_WORDS]
    code = code_of(error)
    return f"{line} ({code})" if code else line


def connect_cause(error: BaseException) -> str:
    """Return which address did not take a connection and why, a proxy's too; empty if the library does not say."""
    found = _CONNECT.search(str(error))
    return f" ({found[1]}, {found[2]}: {found[3]})" if found else ""


def without_values(text: str, options: Mapping[str, object]) -> str:
    """Return a library's words with nothing of the options' values in them (pure)."""
    values = list(_texts(options))
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _LEAST_HIDDEN:
            text = text.replace(value, "…")

    def hidden(word: re.Match[str]) -> str:
        return "…" if any(word[0] in value for value in values) else word[0]

    return _PIECE.sub(hidden, text)


def _texts(value: object) -> Iterator[str]:
    """Yield all texts in the values of options."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif value is not None:
        yield str(value)


@contextmanager
def without_panic(url: str) -> Iterator[None]:
    """Raise an error of ours in place of the library's panic, which no ``except Exception`` holds.

    Whether a request was sent is not known then.

    Raises:
        StorageError: the library panicked.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise StorageError(
            f"{url}: the object store's library fails on this address or options ({first_line(error)}): check the "
            "URL, the endpoint, the proxy and the storage options"
        ) from None


@contextmanager
def explained(url: str, action: str, *, worked: bool = False) -> Iterator[None]:
    """Raise the errors of ``storage.base`` in place of the library's; "not found" and "exists" stay what they are.

    ``worked``: as of ``explain``.
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
    except (theirs.BaseError, OSError) as error:  # what writes an upload raises bare ones
        raise explain(error, url, action, worked=worked) from None


def explain(error: Exception, url: str, action: str, *, worked: bool = False) -> StorageError:
    """Return our error for one of the library's: what was asked, where, and what to do next.

    ``worked``: this client has had an answer before, so that the machine has credentials, or had them.
    """
    from obstore import exceptions as theirs

    where, reading = f"{url}: cannot {action}", action.startswith(("read ", "list "))
    if code_of(error) in ("NoSuchBucket", "ContainerNotFound"):
        return no_bucket(url, action)
    refused = isinstance(error, theirs.PermissionDeniedError | theirs.UnauthenticatedError)
    denied = StorageUnreadableError if reading else StorageReadOnlyError
    if advice := _address_advice(error):
        return denied(f"{where}: {advice}")
    if lacks_credentials(error) and (worked or _fails_to_give(error)):
        return (NotPutError if action.startswith("write ") else StorageError)(
            f"{where}: the service of this machine that gives credentials fails: {first_line(error)}. Try again; where "
            "the machine has no role, give credentials as storage options or in the environment "
            "(docs/how-to/object-stores.md)"
        )
    if lacks_credentials(error):
        return denied(
            f"{where}: no credentials were given, and this machine has no role to get some by. Give them as storage "
            "options or in the environment (docs/how-to/object-stores.md)"
        )
    if refused or status_of(error) in (401, 403) or code_of(error) in _EXPIRED_CODES:
        return denied(
            f"{where}: the store refuses it to these credentials: {first_line(error)}. Check the key, whether it has "
            "expired, and what it allows"
        )
    if status_of(error) is None and is_passing(error):
        said = f"{first_line(error)}{connect_cause(error)}"
        return StorageError(f"{where}: no answer: {said}. Check the endpoint and the network, or the proxy")
    return StorageError(f"{where}: {first_line(error)}")


def _address_advice(error: Exception) -> str:
    """Return what to change if the certificate is not trusted or the region is another one; empty otherwise."""
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
    """Return the error of a bucket or container that is not there."""
    return StorageError(f"{url}: cannot {action}: there is no such bucket: check the URL, or make the bucket")
