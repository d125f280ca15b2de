"""Makes a root by its marker, alone or as one of several."""

from __future__ import annotations

from pyspark_commitlog.errors import StorageDeniedError, StorageError, StorageFullError, SyncFailedError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import FORMAT_VERSION, REPLICAS, Json, seal
from pyspark_commitlog.format.marker import UNSAFE_SINGLE_WRITER
from pyspark_commitlog.format.shape import checked_json
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.storage import NotPutError, Storage

#: How often a root's marker is put if no answer comes.
_MARKER_TRIES = 5


def make_root(root: Root, *, unsafe: bool = False, replicated: bool = False) -> None:
    """Make a root if it is not there.

    Args:
        unsafe: make it even if the store may not keep the log safe from two concurrent writers.
        replicated: it is one of several (`CommitLog.create`).
    """
    storage = root.storage
    if not storage.exists(paths.ROOT_MARKER):
        storage.make_directory("")
        if not unsafe:
            root.check_store()
        _put_marker(storage, seal(_marker(storage.new_id(), unsafe=unsafe, replicated=replicated)))
    root.check()
    if unsafe and not root.is_unsafe:
        raise UsageError(f"{UNSAFE_SINGLE_WRITER} is for a root that is made, and {storage.url} is there already")
    if replicated and not root.is_replicated:
        raise UsageError(f"{storage.url} is a root already that stands alone: name an empty place")


def _marker(root_id: str, *, unsafe: bool, replicated: bool) -> Json:
    features = [REPLICAS] if replicated else []
    return {
        "format": "commitlog",
        "formatVersion": FORMAT_VERSION,
        "rootId": root_id,
        "readFeatures": features,
        "writeFeatures": features,
        "offsetsExpire": True,
        **({UNSAFE_SINGLE_WRITER: True} if unsafe else {}),
        **({REPLICAS: True} if replicated else {}),
    }


def make_replicated_root(storage: Storage) -> None:
    """Make a root that is one of several; raises as `make_root`."""
    make_root(Root.on(storage), replicated=True)


def become_replicated(root: Root) -> None:
    """Replace the marker of a root that stood alone."""
    marker = checked_json(root.marker(), dict[str, object], f"{root.url}/{paths.ROOT_MARKER}")
    kept = {name: value for name, value in marker.items() if name != "crc"}
    features = {"readFeatures": [REPLICAS], "writeFeatures": [REPLICAS], REPLICAS: True}
    root.storage.write_once(paths.ROOT_MARKER, seal({**kept, **features}))  # replaces the one before
    root.check()


def _put_marker(storage: Storage, marker: bytes) -> None:
    """Put a root's marker until one is there, at most `_MARKER_TRIES` times."""
    for _ in range(_MARKER_TRIES):
        try:
            storage.put_if_absent(paths.ROOT_MARKER, marker)
        except FileExistsError:
            return
        except (NotPutError, StorageFullError, StorageDeniedError, SyncFailedError):
            raise
        except OSError as error:  # the request was lost, or only the reply
            last = error
        else:
            return
        if storage.exists(paths.ROOT_MARKER):
            return
    raise StorageError(f"cannot make a commit log at {storage.url}: {last}; create the topic again") from last
