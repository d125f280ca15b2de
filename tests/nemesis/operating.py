"""What an operator does after faults that nothing mends by itself: repair damaged files, replace a root that was emptied.

What is asked for is a file, so that whoever plays the operator may be killed at any point.
"""

from __future__ import annotations

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CommitLogError, RootNotFoundError, UsageError
from pyspark_commitlog.replication.protocol.roots import Roots
from tests.nemesis.stage import DATA, METADATA, TOPICS, Stage

REPAIR, REPLACE, EMPTY = "repair", "replace", "empty"
#: What is left after so many repairs no other root has: the root starts over.
_REPAIRS = 2


class UnrepairedError(CommitLogError):
    """Something is left to be done."""


class Requests:
    """What is asked of the operator, in files of a directory: `repair-<root>`, `replace-<root>`.

    `empty-<root>` the operator asks of who has the disks.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage, self._directory = stage, stage.home / "requests"
        self._directory.mkdir(exist_ok=True)
        self._tried = stage.home / "repairs"  # a byte for each repair that left something, whichever process did it

    def add(self, what: str, root: str, gone: str = "") -> None:
        """Ask for something; `gone` is the id of a root that is to be replaced."""
        (self._directory / f"{what}-{root}").write_text(gone)

    def gone(self, root: str) -> str:
        """Return the id of the root that is to be replaced at a place."""
        return (self._directory / f"{REPLACE}-{root}").read_text()

    def waiting(self) -> list[str]:
        """Return what is not done yet."""
        return sorted(path.name for path in self._directory.iterdir())

    def work(self, request: str) -> None:
        """Do what is asked of the operator; it is withdrawn when all of it is done.

        Raises:
            CommitLogError, OSError: it is to be tried again.
        """
        what, _, root = request.partition("-")
        if what == EMPTY:
            return
        (self._repair if what == REPAIR else self._replace)(root)
        self.done(request)

    def done(self, request: str) -> None:
        """Withdraw what was asked for."""
        (self._directory / request).unlink()

    def _repair(self, root: str) -> None:
        log = self._stage.log(root)
        done = [log.topic(topic).repair() for topic in TOPICS]
        left, away = [each for one in done for each in one.left], [each for one in done for each in one.away]
        if left and not away and root in DATA:
            with open(self._tried, "ab") as tried:
                tried.write(b".")
            if self._tried.stat().st_size >= _REPAIRS:
                self.add(EMPTY, root)
                self._tried.unlink()
                return
        if left or away:
            raise UnrepairedError(f"{root}: left: {left}, away: {away}")
        if root in DATA and (faults := [fault for topic in TOPICS for fault in log.topic(topic).verify().faults]):
            raise UnrepairedError(f"{root}: {faults}")

    def _replace(self, root: str) -> None:
        """Take a root out that was emptied, and add the empty place as another one."""
        gone = self.gone(root)
        log, url = self._other(root), self._stage.url(root)
        if gone in self._listed(url):
            log.replicas.remove([gone])
        log = self._other(root)
        if not self._listed(url):
            try:
                log.replicas.add([url])
            except UsageError:  # a process that did not know has put an entry there
                self.add(EMPTY, root)
                raise
        done = [log.topic(topic).set_replication_factor(len(DATA)) for topic in TOPICS]
        if failed := [each.failed for each in done if each.failed]:
            raise UnrepairedError(f"{root} has not caught up: {failed}")

    def _listed(self, url: str) -> list[str]:
        """Return the id of the root that is listed at a place, where one is."""
        listed = Roots(self._stage.storage(METADATA[0])).listed()
        return [address.id for address in listed.data if address.url == url]

    def _other(self, root: str) -> CommitLog:
        """Return the log at the first root that is there, but for one."""
        for other in DATA:
            if other != root:
                try:
                    return self._stage.log(other)
                except RootNotFoundError:
                    continue
        raise UnrepairedError(f"no root answers but {root}")
