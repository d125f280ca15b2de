"""Object store locations and clients, from URLs and fsspec's `storage_options`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark_commitlog.errors import UnsupportedError, UsageError
from pyspark_commitlog.format.given_json import RepeatedKeyError, parse_json
from pyspark_commitlog.storage.object.object_errors import without_values

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: URL scheme -> kind of store, which is also the extra's name.
KINDS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "memory": "memory",
}

#: Timeouts in seconds; a request that exceeds one may have landed.
_CONNECT_SECONDS = 5
_REQUEST_SECONDS = 60
#: Retries of the client for uploads, whose parts can be repeated.
_PART_RETRIES = 8

_AZURE_HOST = re.compile(r"(?P<container>[^@/]+)@(?P<account>[^./]+)\.(?P<domain>.+)")

#: kind -> fsspec's names of options (s3fs, gcsfs, adlfs) -> obstore's.
_NAMES = {
    "s3": {
        "key": "access_key_id",
        "username": "access_key_id",
        "secret": "secret_access_key",
        "password": "secret_access_key",
        "token": "session_token",
        "endpoint_url": "endpoint",
        "region_name": "region",
        "anon": "skip_signature",
        "requester_pays": "request_payer",
        "aws_access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token",
    },
    "gcs": {"endpoint_url": "base_url"},
    "azure": {"sas_token": "sas_key", "anon": "skip_signature", "endpoint_url": "endpoint"},
    "memory": {},
}
#: Variables from which the library takes an endpoint.
_ENDPOINT_VARIABLES = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "GOOGLE_BASE_URL",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BLANK = re.compile(r"\s")
_LOGIN = re.compile(r"(https?://)[^\s/@]+@")
#: Options of fsspec's caches and threads, which do not apply.
_IGNORED = frozenset(
    ["asynchronous", "use_listings_cache", "skip_instance_cache", "listings_expiry_time", "max_paths", "use_ssl"]
)


@dataclass(frozen=True, slots=True)
class Location:
    """A prefix in a bucket or container."""

    kind: str
    bucket: str
    prefix: str
    account: dict[str, str] = field(default_factory=dict)  # from an abfss:// URL


def parse_url(url: str) -> Location:
    """Return the location of a URL."""
    scheme, _, rest = url.partition("://")
    kind = KINDS[scheme]
    bucket, _, prefix = rest.partition("/")
    prefix = "/".join(part for part in prefix.split("/") if part)
    account: dict[str, str] = {}
    if kind == "azure" and (host := _AZURE_HOST.fullmatch(bucket)):
        bucket, account = host["container"], {"account_name": host["account"]}
        if not host["domain"].endswith("core.windows.net"):
            account["endpoint"] = f"https://{host['account']}.{host['domain']}"
    if "@" in bucket or ":" in bucket:
        raise UsageError(f"{scheme}:// URLs hold no credentials: give them as storage options, or in the environment")
    if not bucket and kind != "memory":
        raise UsageError(f"{url!r} names no bucket: write {scheme}://BUCKET/PATH")
    return Location(kind, bucket, prefix, account)


def client_options(kind: str, options: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the store's and HTTP client's configuration for fsspec's, or obstore's, options."""
    flat = _flattened(options)
    http = _timeouts(flat) | {"allow_http": True}
    style = _from_json("s3", flat.pop("s3", None))
    if isinstance(style, Mapping) and style.get("addressing_style") == "virtual":
        flat["virtual_hosted_style_request"] = True
    store = {_NAMES[kind].get(name, name): value for name, value in flat.items() if value is not None}
    if kind == "gcs":
        _name_gcs_token(store)
    if kind == "azure":
        store |= _connection(store.pop("connection_string", None))
    return store, http


def _flattened(options: Mapping[str, object]) -> dict[str, Any]:
    flat = {name: value for name, value in options.items() if name not in _IGNORED}
    for nested in ("client_kwargs", "config_kwargs"):
        inner = _from_json(nested, flat.pop(nested, None))
        if isinstance(inner, Mapping):
            flat |= inner
    for name, value in flat.items():
        _check_text(name, value)
    _translate_botocore(flat)
    return flat


def _timeouts(flat: dict[str, Any]) -> dict[str, Any]:
    given = {name: flat.pop(name, None) for name in ("connect_timeout", "timeout", "read_timeout")}
    longest = "read_timeout" if given["timeout"] is None else "timeout"
    return {
        "connect_timeout": _seconds("connect_timeout", given["connect_timeout"], _CONNECT_SECONDS),
        "timeout": _seconds(longest, given[longest], _REQUEST_SECONDS),
    }


def _translate_botocore(flat: dict[str, Any]) -> None:
    verify = flat.pop("verify", None)
    if str(verify).lower() == "false":
        flat["allow_invalid_certificates"] = True
    elif verify is not None and str(verify).lower() != "true":
        raise UsageError(
            "storage option verify: give true or false; name a file with a CA's certificate in the environment "
            "variable SSL_CERT_FILE, of Spark's executors too"
        )
    version = flat.pop("signature_version", None)
    if version is not None and version not in ("s3v4", "v4"):
        raise UsageError("storage option signature_version: give s3v4, or anon for requests without a signature")


def check_address(place: Location, store: Mapping[str, Any]) -> None:
    """Refuse an endpoint, bucket or region that makes the library panic."""
    if place.kind != "memory" and _BLANK.search(place.bucket):
        raise UsageError(f"bucket {place.bucket!r}: no bucket's name has a blank: write SCHEME://BUCKET/PATH")
    if _BLANK.search(str(store.get("region", ""))):
        raise UsageError("storage option region: a blank is in it; give for example eu-west-1")
    given = {"storage option endpoint_url": store.get("base_url" if place.kind == "gcs" else "endpoint")}
    variables = {f"environment variable {name}": os.environ.get(name) for name in _variables(place.kind)}
    for name, value in (given | variables).items():
        if value and not _is_endpoint(str(value)):
            raise UsageError(
                f"{name}: no address of an endpoint: give scheme, host and port, for example http://minio:9000 or https://minio.example.com"
            )


def _variables(kind: str) -> Iterable[str]:
    prefix = {"s3": "AWS", "gcs": "GOOGLE", "azure": "AZURE"}.get(kind, " ")
    return (name for name in _ENDPOINT_VARIABLES if name.startswith(prefix))


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return bool(
            parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not _BLANK.search(text)
        )
    except ValueError:  # a port beyond 65,535, brackets that do not match
        return False


def _check_text(name: str, value: object) -> None:
    """Refuse control characters, on which the library panics; JSON may have lines."""
    if isinstance(value, str) and not value.startswith("{") and _CONTROL.search(value):
        raise UsageError(f"storage option {name}: a control character, a newline perhaps, is in it")


def _seconds(name: str, value: object, otherwise: float) -> timedelta:
    with suppress(ValueError, OverflowError):
        found = timedelta(seconds=otherwise if value is None else float(str(value)))
        if found > timedelta():
            return found
    raise UsageError(f"storage option {name}: give seconds, more than 0")


def _from_json(name: str, value: object) -> object:
    """Nested option, perhaps from Spark's or a command line's JSON."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value)
    except RepeatedKeyError as error:
        raise UsageError(f"storage option {name}: {error}") from None
    except ValueError:
        raise UsageError(f'storage option {name}: give a JSON object, as {{"region_name": "eu-west-1"}}') from None


def _name_gcs_token(store: dict[str, Any]) -> None:
    token = store.pop("token", None)
    if token == "anon":
        # the library signs puts all the same, unless a key has nothing to sign with
        none = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
        store |= {"skip_signature": True, "service_account_key": json.dumps(none)}
    elif isinstance(token, str) and token.startswith("{"):
        store["service_account_key"] = token
    elif isinstance(token, str) and token not in ("google_default", "cloud"):
        store["application_credentials"] = token
    elif isinstance(token, Mapping):
        store["service_account_key"] = json.dumps(dict(token))
    store.pop("project", None)


def _connection(text: object) -> dict[str, str]:
    if not isinstance(text, str):
        return {}
    parts = dict(part.partition("=")[::2] for part in text.split(";") if part)
    names = {"AccountName": "account_name", "AccountKey": "account_key", "BlobEndpoint": "endpoint",
             "SharedAccessSignature": "sas_key"}  # fmt: skip
    return {ours: parts[theirs] for theirs, ours in names.items() if theirs in parts}


@dataclass(frozen=True, slots=True)
class Opener:
    """Picklable factory of a store's clients; `repr` hides option values."""

    url: str
    options: Mapping[str, object] = field(repr=False)

    @property
    def name(self) -> str:
        """Bucket, endpoint, library and version."""
        import obstore

        place = parse_url(self.url)
        store, _ = client_options(place.kind, self.options)
        given = [(place.account | store).get(name) for name in ("endpoint", "base_url")]
        endpoint = next(filter(None, [*given, *map(os.environ.get, _ENDPOINT_VARIABLES)]), "its own endpoint")
        where = _LOGIN.sub(r"\1", str(endpoint))
        return f"{place.kind} bucket {place.bucket} at {where}, obstore {obstore.__version__}"

    def __call__(self, *, retries: bool = False) -> ObjectStore:
        """Return a client; without `retries`, single requests and deletes."""
        import obstore.store as stores
        from obstore import exceptions

        place = parse_url(self.url)
        if place.kind == "memory":
            return _in_memory(self.url)
        store, http = client_options(place.kind, self.options)
        check_address(place, place.account | store)
        provider = store.pop("credential_provider", None)
        if place.kind == "s3":
            store = {"disable_bulk_delete": not retries} | store
        made: Any = {"s3": stores.S3Store, "gcs": stores.GCSStore, "azure": stores.AzureStore}[place.kind]
        try:
            client: ObjectStore = made(
                place.bucket,
                prefix=place.prefix or None,
                config=place.account | store,
                client_options=http,
                retry_config={"max_retries": _PART_RETRIES if retries else 0},
                **({} if provider is None else {"credential_provider": provider}),
            )
        except (exceptions.BaseError, TypeError, ValueError) as error:
            names = ", ".join(sorted(self.options))
            raise UsageError(
                f"cannot open {self.url!r} with the storage options {names}: {_reason(error, self.options)}"
            ) from None
        return client


def check_installed(url: str, kind: str) -> None:
    """Refuse a store whose library is missing."""
    if find_spec("obstore") is None:
        raise UnsupportedError(
            f"cannot open {url!r}: that takes a package that is not installed: pip install "
            f"'pyspark-commitlog[{kind if kind != 'memory' else 's3'}]'"
        )


def _reason(error: Exception, options: Mapping[str, object]) -> str:
    line = without_values(str(error).partition("\n")[0], options)
    return line if len(line) <= 200 else f"{line[:200]}…"


#: URL -> its content, for the life of the process.
_memory: dict[str, Any] = {}


def _in_memory(url: str) -> ObjectStore:
    import obstore.store as stores

    store: ObjectStore = _memory.setdefault(url.rstrip("/"), stores.MemoryStore())
    return store
