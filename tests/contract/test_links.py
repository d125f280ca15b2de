"""Users who share a root: a link in the directory of one leads no process of another to that user's own files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import StorageDeniedError
from pyspark_commitlog.storage.local import local_files
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from pyspark_commitlog.topic.write.commit import commit
from tests.support.records import append, batch_of, stage
from tests.support.users import as_another, give
from tests.support.world import CHUNKS, World

SECRET = b"ssh-ed25519 AAAA me@home\n"
SEGMENT = f"0/{0:020d}"


@dataclass
class Shared:
    """A root whose topic `t` belongs to another user, and a directory that does not."""

    world: World
    home: str
    private: Path

    @property
    def victim(self) -> Path:
        return self.private / "authorized_keys"

    @property
    def topic(self) -> Path:
        return self.world.path / self.home

    def plant(self, name: str, target: Path) -> None:
        """Have the topic's owner put a link in the place of a name; a directory's content is copied before."""

        def act() -> None:
            link = self.topic / name
            link.parent.mkdir(exist_ok=True)
            if link.is_dir():
                link.rename(link.with_name("moved"))
            link.unlink(missing_ok=True)
            link.symlink_to(target)

        as_another(act)

    def private_copy(self, name: str) -> Path:
        """Return a directory of this user's, with what a directory of the topic holds."""
        return Path(shutil.copytree(self.topic / name, self.private / "copy"))

    def private_files(self) -> dict[str, bytes]:
        files = (path for path in self.private.rglob("*") if path.is_file())
        return {str(path.relative_to(self.private)): path.read_bytes() for path in files}


@pytest.fixture
def shared() -> Iterator[Shared]:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        world = World(Path(directory, "root"))
        topic = world.create(config=CHUNKS)
        append(topic, batch_of([b"chosen by the other user"]))
        private = Path(directory, "private")
        private.mkdir(mode=0o700)
        (private / "authorized_keys").write_bytes(SECRET)
        give(world.path / "topics/t")
        yield Shared(world, topic.paths(topic.newest()[1].topic_id).home, private)


def test_the_other_user_may_not_write_what_the_links_lead_to(shared: Shared) -> None:
    """The scene: the system itself refuses that user the file, unless the tests run as no root."""
    assert shared.private.stat().st_mode & 0o777 == 0o700
    assert (shared.world.path / "topics/t").stat().st_uid == (65_534 if os.geteuid() == 0 else os.geteuid())


@pytest.mark.parametrize("name", [f"{SEGMENT}.log", f"{SEGMENT}.index", f"{SEGMENT}.timeindex", "settle/lock.holder"])
def test_maintain_writes_through_no_link_to_a_file(shared: Shared, name: str) -> None:
    shared.plant(name, shared.victim)
    done = maintained(shared)

    assert shared.private_files() == {"authorized_keys": SECRET}
    if name != "settle/lock.holder":  # a note for people: nothing rests on it
        assert f"cannot use {shared.topic / name}: it is a symbolic link" in done


@pytest.mark.parametrize("name", ["0", "settle", "manifests"])
def test_maintain_writes_through_no_link_to_a_directory(shared: Shared, name: str) -> None:
    (shared.topic / name).mkdir(exist_ok=True)
    target = shared.private_copy(name)
    before = shared.private_files()
    shared.plant(name, target)
    done = maintained(shared)

    assert shared.private_files() == before
    assert f"cannot use {shared.topic / name}: it is a symbolic link" in done


@pytest.mark.parametrize("name", ["../journal", "staged"])
def test_a_commit_goes_through_no_link(shared: Shared, name: str) -> None:
    target = shared.private_copy(name)
    before = shared.private_files()
    shared.plant(name, target)
    link = os.path.normpath(shared.topic / name)
    with pytest.raises(StorageDeniedError, match=f"cannot use {link}: it is a symbolic link"):
        append(shared.world.handle(), batch_of([b"mine"]))

    assert shared.private_files() == before


def test_a_commit_of_another_user_settles_through_no_link(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    shared.world.log().topic("t").alter({"settle.entries": 1})
    shared.plant(f"{SEGMENT}.log", shared.victim)
    topic = shared.world.handle()
    staged = stage(topic, batch_of([b"mine"]))
    commit(topic, staged.topic_id, [staged])
    settle_after_commit(topic, staged.topic_id)

    assert shared.private_files() == {"authorized_keys": SECRET}
    assert f"{SEGMENT}.log: it is a symbolic link" in caplog.text


def test_what_was_a_link_settles_once_it_is_removed(shared: Shared) -> None:
    shared.plant(f"{SEGMENT}.log", shared.victim)
    maintained(shared)
    (shared.topic / f"{SEGMENT}.log").unlink()

    assert maintained(shared) == ""
    assert shared.world.values() == [b"chosen by the other user"]


def test_a_pipe_is_neither_waited_for_nor_written_to(shared: Shared) -> None:
    (shared.topic / "0").mkdir(exist_ok=True)
    os.mkfifo(shared.topic / f"{SEGMENT}.log")
    assert f"{SEGMENT}.log: it is no regular file" in maintained(shared)
    with pytest.raises(StorageDeniedError, match="it is no regular file"):
        LocalStorage(shared.topic).read(f"{SEGMENT}.log")


def maintained(shared: Shared) -> str:
    """Return what `maintain` by this user says that it could not do; nothing if it could do all."""
    try:
        CommitLog(str(shared.world.path)).topic("t").maintain()
    except Exception as error:  # noqa: BLE001 compared by the caller
        return str(error)
    return ""


ACTS: dict[str, Callable[[LocalStorage, str], object]] = {
    "a put": lambda storage, at: storage.put_if_absent(f"{at}/1", b"x"),
    "a file": lambda storage, at: storage.write_once(f"{at}/1", b"x"),
    "a file in a new directory": lambda storage, at: storage.write_once(f"{at}/made/1", b"x"),
    "an append": lambda storage, at: storage.open_append(f"{at}/1"),
    "a directory": lambda storage, at: storage.make_directory(f"{at}/made"),
    "a lock": lambda storage, at: storage.try_lock(f"{at}/lock").__enter__(),
    "a sync of names": lambda storage, at: storage.sync_directory(at, fresh=True),
    "a sync of a file": lambda storage, at: storage.sync_file(f"{at}/old"),
    "a deletion": lambda storage, at: storage.delete(f"{at}/old"),
    "a deletion of a tree": lambda storage, at: storage.delete_tree(f"{at}/tree"),
    "a sweep": lambda storage, at: storage.remove_abandoned(at, 2**50),
}


@pytest.mark.parametrize("at", ["linked", "linked/below"])
@pytest.mark.parametrize("act", ACTS.values(), ids=list(ACTS))
def test_nothing_is_changed_below_a_linked_directory(
    tmp_path: Path, act: Callable[[LocalStorage, str], object], at: str
) -> None:
    root, target = tmp_path / "root", tmp_path / "target"
    (target / "below" / "tree").mkdir(parents=True)
    (target / "tree").mkdir()
    root.mkdir()
    for name in ("old", "tree/old", ".tmp-old", "below/old", "below/tree/old", "below/.tmp-old"):
        (target / name).write_bytes(b"mine")
    (root / "linked").symlink_to(target)
    before = sorted(target.rglob("*"))
    with pytest.raises(StorageDeniedError, match=f"cannot use {root}/linked: it is a symbolic link"):
        act(LocalStorage(root), at)
    assert sorted(target.rglob("*")) == before


def test_a_file_that_was_put_aside_is_not_opened_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many chunks at once some are closed meanwhile, and opened again by their name."""
    victim, storage = tmp_path / "victim", LocalStorage(tmp_path / "root")
    victim.write_bytes(SECRET)
    output = storage.create("d/1")
    monkeypatch.setattr(local_files, "limits", lambda: SimpleNamespace(files=0))
    output.write(b"a")
    (temporary,) = (tmp_path / "root/d").iterdir()
    temporary.unlink()
    temporary.symlink_to(victim)
    with pytest.raises(StorageDeniedError, match="it is a symbolic link"):
        output.write(b"chosen")
    assert victim.read_bytes() == SECRET


def test_a_temporary_file_that_became_a_link_is_put_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of an entry never gets to be that of another user's file."""
    victim, storage, link = tmp_path / "victim", LocalStorage(tmp_path / "root"), os.link
    victim.write_bytes(SECRET)
    storage.make_directory("d")

    def swapped(source: str, target: str, **more: int) -> None:
        os.unlink(source, dir_fd=more["src_dir_fd"])
        os.symlink(victim, source, dir_fd=more["src_dir_fd"])
        link(source, target, **more)

    monkeypatch.setattr(os, "link", swapped)
    storage.put_if_absent("d/1", b"entry")
    assert victim.stat().st_nlink == 1


def test_the_roots_own_path_may_have_links(tmp_path: Path) -> None:
    """It belongs to those who run the root."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    world = World(tmp_path / "data" / "log")
    append(world.create(), batch_of([b"a"]))
    world.maintain()
    assert world.values() == [b"a"]
