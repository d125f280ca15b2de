"""The Python client's peer: `confluent_client.py`, in an environment of its own, asked by lines of JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kafka.toolchain import die_with_parent, made_clients_python

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "client-requirements.txt"
_SCRIPT = HERE / "confluent_client.py"


class ClientPeer:
    """A process that has confluent-kafka; what it is asked for, it does at once."""

    def __init__(self, process: subprocess.Popen[str], bootstrap: str) -> None:
        self._process, self._bootstrap = process, bootstrap

    def tell(self, do: str, **given: object) -> None:
        """Have something done."""
        assert self._process.stdin is not None
        print(json.dumps({"do": do, "bootstrap": self._bootstrap, **given}), file=self._process.stdin, flush=True)

    def hear(self) -> Any:
        """Return the answer to the last request.

        Raises:
            RuntimeError: the process has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{_SCRIPT.name} ended with code {self._process.wait()}: it says why above")
        return json.loads(line)

    def ask(self, do: str, **given: object) -> Any:
        """Have something done, and return the answer."""
        self.tell(do, **given)
        return self.hear()


def is_there() -> bool:
    """Return whether the environment was made."""
    return made_clients_python(REQUIREMENTS) is not None


@contextmanager
def running(bootstrap: str) -> Iterator[ClientPeer]:
    """Run such a process next to a broker."""
    python = made_clients_python(REQUIREMENTS)
    assert python is not None
    with subprocess.Popen(
        [str(python), "-I", str(_SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent(),
    ) as process:
        try:
            yield ClientPeer(process, bootstrap)
        finally:
            process.kill()
