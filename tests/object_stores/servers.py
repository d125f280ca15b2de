"""Object stores on loopback, started by the tests: versitygw, moto, Azurite and fake-gcs-server.

`scripts/install_object_stores.sh` puts the programs into `.servers/`; moto comes with the extra `dev`. Each server is a
process that dies with the one that started it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any, ClassVar

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
#: Where `make test-object-stores` installs; another directory for who has them already.
PROGRAMS = Path(os.environ.get("OBJECT_STORES_DIR", HERE / ".servers"))
READY_SECONDS = 60
HOST = "127.0.0.1"

#: Azurite knows this account; it is in its documentation.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_AZURE_VERSION = "2021-08-06"

ACCESS_KEY, SECRET_KEY, REGION = "access-key-of-tests", "secret-key-of-tests", "us-east-1"


class ServerMissingError(Exception):
    """A server's program is not there; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket or container: its URL, and the `storage_options` to open it with, all of which can be pickled."""

    url: str
    options: dict[str, Any]


class Server(ABC):
    """One server; `endpoint` is there once it has started."""

    name: ClassVar[str]

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Return `http://host:port`."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Return the process id, whose CPU time a benchmark may ask for."""
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line.

        Raises:
            ServerMissingError: the program is not there.
        """

    def environment(self) -> dict[str, str]:
        """Return more environment variables of the process."""
        return {}

    @abstractmethod
    def create(self, bucket: str) -> None:
        """Make a bucket."""

    @abstractmethod
    def bucket(self, name: str, endpoint: str = "") -> Bucket:
        """Return how to open a bucket, at another endpoint (a proxy's) if one is given."""

    def start(self) -> None:
        """Start, and wait until requests are answered."""
        self.home.mkdir(parents=True, exist_ok=True)
        lifeline = [sys.executable, "-m", "tests.support.lifeline", str(os.getpid())]
        with (self.home / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*lifeline, *self.command()], stdout=output, stderr=output, cwd=self.home,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), **self.environment()},
            )  # fmt: skip
        until = time.monotonic() + READY_SECONDS
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise AssertionError(f"{self.name} did not start: {(self.home / 'output').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class S3Server(Server):
    """What speaks S3."""

    def create(self, bucket: str) -> None:
        """See `Server.create`."""
        import boto3

        boto3.client(
            "s3", endpoint_url=self.endpoint, aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
        ).create_bucket(Bucket=bucket)  # fmt: skip

    def bucket(self, name: str, endpoint: str = "") -> Bucket:
        """See `Server.bucket`."""
        options = {"key": ACCESS_KEY, "secret": SECRET_KEY, "endpoint_url": endpoint or self.endpoint}
        return Bucket(f"s3://{name}", {**options, "region_name": REGION})


class Versitygw(S3Server):
    """S3 on a directory; fast, and its put-if-absent is the file system's."""

    name = "versitygw"

    @property
    def data(self) -> Path:
        """Return the directory of the buckets."""
        return self.home / "data"

    def command(self) -> list[str]:
        """See `Server.command`."""
        self.data.mkdir(exist_ok=True)
        return [
            program("bin/versitygw", self.name), "--port", f"{HOST}:{self.port}", "--quiet", "--keep-alive", "posix",
            str(self.data),
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """See `Server.environment`."""
        return {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}


class Moto(S3Server):
    """S3 in memory, from PyPI. It serves one request at a time: it is no judge of races."""

    name = "moto"

    def command(self) -> list[str]:
        """See `Server.command`."""
        return [sys.executable, str(REPOSITORY / "examples" / "local_s3.py"), HOST, str(self.port)]


class Azurite(Server):
    """Azure's blobs in memory."""

    name = "azurite"

    def command(self) -> list[str]:
        """See `Server.command`."""
        script = program("node_modules/.bin/azurite-blob", self.name)
        return [
            script, "--blobHost", HOST, "--blobPort", str(self.port), "--inMemoryPersistence", "--skipApiVersionCheck",
            "--silent", "--disableTelemetry",
        ]  # fmt: skip

    def create(self, bucket: str) -> None:
        """See `Server.create`; signed by hand, as Azure's own client would be one more thing to install."""
        date, path = formatdate(usegmt=True), f"/{AZURE_ACCOUNT}/{bucket}"
        signed = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{_AZURE_VERSION}"]
        signed += [f"/{AZURE_ACCOUNT}{path}", "restype:container"]
        key = hmac.new(base64.b64decode(AZURE_KEY), "\n".join(signed).encode(), hashlib.sha256)
        headers = {
            "Authorization": f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(key.digest()).decode()}",
            "x-ms-date": date, "x-ms-version": _AZURE_VERSION, "Content-Length": "0",
        }  # fmt: skip
        _ask(urllib.request.Request(f"{self.endpoint}{path}?restype=container", method="PUT", headers=headers))

    def bucket(self, name: str, endpoint: str = "") -> Bucket:
        """See `Server.bucket`."""
        there = f"{endpoint or self.endpoint}/{AZURE_ACCOUNT}"
        return Bucket(f"az://{name}", {"account_name": AZURE_ACCOUNT, "account_key": AZURE_KEY, "endpoint": there})


class FakeGcs(Server):
    """Google Cloud Storage in memory, behind `gcs_xml.py`: it lacks the XML API's uploads, by which clients write."""

    name = "fake-gcs-server"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._gateway: Any = None

    def command(self) -> list[str]:
        """See `Server.command`."""
        return [
            program("bin/fake-gcs-server", self.name), "-scheme", "http", "-host", HOST, "-port", str(self.port),
            "-public-host", f"{HOST}:{self.port}", "-backend", "memory", "-log-level", "error",
        ]  # fmt: skip

    def start(self) -> None:
        """See `Server.start`."""
        from tests.object_stores.gcs_xml import GcsXmlGateway

        super().start()
        self._gateway = GcsXmlGateway(self.port)
        self._gateway.start()

    def stop(self) -> None:
        """See `Server.stop`."""
        if self._gateway is not None:
            self._gateway.stop()
        super().stop()

    @property
    def endpoint(self) -> str:
        """Return the gateway's address."""
        return f"http://{HOST}:{self._gateway.port}"

    def create(self, bucket: str) -> None:
        """See `Server.create`."""
        there = f"http://{HOST}:{self.port}/storage/v1/b?project=tests"
        headers = {"Content-Type": "application/json"}
        _ask(urllib.request.Request(there, data=json.dumps({"name": bucket}).encode(), headers=headers))

    def bucket(self, name: str, endpoint: str = "") -> Bucket:
        """See `Server.bucket`."""
        key = {"gcs_base_url": endpoint or self.endpoint, "disable_oauth": True}
        return Bucket(f"gs://{name}", {"token": {**key, "client_email": "", "private_key": "", "private_key_id": ""}})


#: In the order of the printed table.
SERVERS: tuple[type[Server], ...] = (Versitygw, Moto, Azurite, FakeGcs)


def program(path: str, name: str) -> str:
    """Return a server's program.

    Raises:
        ServerMissingError: it is not installed.
    """
    found = PROGRAMS / path
    if not found.exists():
        raise ServerMissingError(
            f"{name} is not installed ({found} is not there): make test-object-stores installs and starts it"
        )
    return str(found)


def free_port() -> int:
    """Return a port of loopback that nobody listens at now."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://{HOST}:{port}/", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _ask(request: urllib.request.Request) -> None:
    urllib.request.urlopen(request, timeout=READY_SECONDS).close()
