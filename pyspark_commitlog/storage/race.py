"""Race test of a store's put-if-absent, before anything relies on it.

A store may pass sequential tests and accept concurrent puts (SeaweedFS 4.16 did). Done once per root and (endpoint,
client, version), and recorded in `probes/`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from threading import Barrier, BrokenBarrierError, Lock

from pyspark_commitlog.errors import StorageError, UnsupportedError
from pyspark_commitlog.storage.base import NotPutError, Storage
from pyspark_commitlog.storage.per_process import PerProcess

DIRECTORY = "probes"
WRITERS = 16
ROUNDS = 5
_BODY_BYTES = 32 * 1024
_WAIT_SECONDS = 60
#: Extra rounds, for those without a winner (busy store).
_AGAIN = 5

#: Safe clients with the mount's device, so that a new root on the same store needs no race, and roots with a record.
#: Two mounts of a kind may be of two servers and look alike; a record can't name the device, which differs by machine.
_seen: set[tuple[object, str]] = set()
_SEEN_AT_MOST = 4096
_one_at_a_time = PerProcess(Lock)


@dataclass(frozen=True, slots=True)
class Round:
    """A race's accepted writers, and the one whose content is stored.

    `content` is -1 if it is no writer's whole body.
    """

    taken: tuple[int, ...]
    content: int


def fault_of(rounds: Sequence[Round]) -> str | None:
    """Defect that races show, or None (pure)."""
    for race in rounds:
        if len(race.taken) > 1:
            return f"{len(race.taken)} of {WRITERS} puts of one name at once were taken"
        if race.taken and race.content != race.taken[0]:
            return "a put that was taken is not what lies there"
        if race.content < 0:
            return "what lies there is what nobody put whole"
    return None


def race_once(storage: Storage, path: str) -> Round:
    """Race for a name.

    Raises:
        StorageError: it can't be written or read.
    """
    start = Barrier(WRITERS)

    def put(writer: int) -> str | BaseException:
        with suppress(BrokenBarrierError):
            start.wait(_WAIT_SECONDS)
        try:
            storage.put_if_absent(path, _body(writer))
        except FileExistsError:
            return "refused"
        except OSError as error:
            return error
        return "taken"

    with ThreadPoolExecutor(WRITERS) as pool:
        came = list(pool.map(put, range(WRITERS)))
    certain = [one for one in came if isinstance(one, NotPutError)]
    if len(certain) == WRITERS:
        raise certain[0]
    try:
        data = storage.read(path, 0, _BODY_BYTES + 1)
    except FileNotFoundError:
        failed = next((one for one in came if isinstance(one, BaseException)), None)
        raise failed or StorageError(f"{storage.url}: a put of {path} was answered, and nothing is there") from None
    taken = tuple(writer for writer, one in enumerate(came) if one == "taken")
    return Round(taken, _writer_of(data))


def race(storage: Storage, home: str) -> list[Round]:
    """Race `ROUNDS` times in a directory that is deleted again.

    Raises:
        StorageError: it can't be written or read, or is busy.
    """
    rounds, tries = list[Round](), 0
    storage.make_directory(home)
    try:
        while len(rounds) < ROUNDS and fault_of(rounds) is None:
            tries += 1
            if tries > ROUNDS + _AGAIN:
                raise StorageError(f"{storage.url}: too few answers to say whether it is safe: try again later")
            found = race_once(storage, f"{home}/race-{tries}")
            if found.taken or fault_of([found]) is not None:
                rounds.append(found)
    finally:
        with suppress(StorageError):
            storage.delete_tree(home)
    return rounds


def record_path(client: str) -> str:
    """Path of a root's record for a client (pure)."""
    return f"{DIRECTORY}/{hashlib.sha256(client.encode()).hexdigest()[:16]}.json"


def check_store(storage: Storage) -> None:
    """Refuse a store that accepts two puts of one name.

    Tested once per client and root.

    Raises:
        UnsupportedError: it does, or has another defect.
        StorageError: the test failed to run.
    """
    client = storage.client
    if not client or (storage.url, client) in _seen:
        return
    path = record_path(client)
    with _one_at_a_time.value:
        if len(_seen) >= _SEEN_AT_MOST:
            _seen.clear()
        if storage.exists(path):
            _seen.add((storage.url, client))
            return
        store = (storage.device(), client)
        if store not in _seen:
            home = f"{DIRECTORY}/{storage.new_id()}"
            fault = fault_of(race(storage, home)) or storage.fault(home)
            if fault is not None:
                raise UnsupportedError(
                    f"{storage.url} can't hold a commit log: {fault}, so that commits would be lost. {storage.remedy}"
                )
            _seen.add(store)
        record = {"client": client, "writers": WRITERS, "rounds": ROUNDS, "safe": True}
        storage.write_once(path, (json.dumps(record) + "\n").encode())
        _seen.add((storage.url, client))


def _body(writer: int) -> bytes:
    return b"%08d" % writer * (_BODY_BYTES // 8)


def _writer_of(data: bytes) -> int:
    return next((writer for writer in range(WRITERS) if data == _body(writer)), -1)
