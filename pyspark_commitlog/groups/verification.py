"""Faults of a group's entries and files, and strays among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from pyspark_commitlog.errors import CommitLogError, missing
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.membership.member_files import MemberFiles
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.storage import Storage


def faults_of(handle: GroupLog) -> Iterable[str]:
    """Yield faults, but don't check succession: a sleeper may have put below."""
    for sequence in handle.journal.sequences():
        try:
            handle.state_of(handle.journal.read(sequence))
        except FileNotFoundError as error:
            if sequence in handle.journal.sequences():  # else it was collected meanwhile
                yield str(missing(error))
        except CommitLogError as error:
            yield str(error)
    files = MemberFiles.of(handle)
    for member_id in files.members():
        if files.read(member_id) is None and member_id in files.members():  # else it left meanwhile
            member = f"{paths.group_members(handle.name)}/{paths.member_name(member_id)}"
            yield f"{member} is no member's file: the member counts as gone until it writes it again"


def strays_of(handle: GroupLog) -> list[str]:
    """Files in a group's directories that belong to no entry or member."""
    storage, name = handle.storage, handle.name
    home, ours = f"{paths.GROUPS}/{paths.group_directory(name)}", {"journal", "side", "members"}
    unnamed = _strays(storage, home, lambda file: file in ours or paths.is_acceptor(file))
    named = _sides(handle)
    unnamed += _strays(storage, paths.group_journal(name), lambda file: paths.parse_entry(file) is not None)
    unnamed += _strays(storage, paths.group_side(name), named.__contains__)
    return unnamed + _strays(storage, paths.group_members(name), lambda file: paths.parse_member(file) is not None)


def _strays(storage: Storage, directory: str, belongs: Callable[[str], bool]) -> list[str]:
    return [f"{directory}/{file}" for file in storage.names(directory) if not belongs(file)]


def _sides(handle: GroupLog) -> set[str]:
    named = set()
    for sequence in handle.journal.sequences():
        with suppress(CommitLogError, FileNotFoundError):
            members = handle.journal.read(sequence).entry.body["state"].get("members")
            if isinstance(members, dict) and "file" in members:
                named.add(members["file"])
    return named
