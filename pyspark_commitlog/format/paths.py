"""Names of everything below a root, built and parsed in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from pyspark_commitlog.errors import UsageError

#   commitlog.json                                     root marker
#   access/journal/<sequence>.json                     access rules
#   config/journal/<sequence>.json                     root-wide defaults of topic configs
#   replicas/journal/<sequence>.json                   the list of roots, if there are several
#   groups/<group>/journal/<sequence>.json             committed offsets and members of a group
#   groups/<group>/side/<sequence>.<write id>.members  members too many for an entry
#   groups/<group>/members/<member id>.json            a member's heartbeat
#   topics/<topic>/journal/<sequence>.json             logical journal (epoch 0)
#   topics/<topic>/<topic id>/settle/<sequence>.json   settle journal; settle/lock is its settler's lock
#   topics/<topic>/<topic id>/settle/maintained        its time is that of the last `maintain`; empty: there was none
#   topics/<topic>/<topic id>/settle/maintenance-runs  what the last runs of it did, for people
#   topics/<topic>/<topic id>/staged/<sequence>-<uuid>.chunk
#   topics/<topic>/<topic id>/copied/<sequence>-<uuid>.json            records in a chunk of a running copy
#   topics/<topic>/<topic id>/side/<sequence>.<write id>.<kind>        tables too large for an entry
#   topics/<topic>/<topic id>/manifests/<partition>-<sequence>-<uuid>.json
#   topics/<topic>/<topic id>/<partition>/<base offset>[.<n>].log|.index|.timeindex
#   topics/<topic>/<topic id>/objects/<sequence>-<uuid>.segment        instead, on storage without append
#
# Sequences and offsets have 20 digits, so that names sort as numbers.

ROOT_MARKER = "commitlog.json"
TOPICS = "topics"
CONFIG_JOURNAL = "config/journal"
ACCESS_JOURNAL = "access/journal"
REPLICAS = "replicas"
REPLICAS_JOURNAL = "replicas/journal"
BIRTHS = "replicas/births"
GROUPS = "groups"
_MAX_NAME = 249
#: Prefix that no topic or group name may have.
_RESERVED = "__"
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ACCEPTOR = "acceptor-"
_ENTRY = re.compile(r"([0-9]{20})\.json")
_MEMBER = re.compile(rf"({_UUID})\.json")
_CHUNK = re.compile(rf"([0-9]{{20}})-({_UUID})\.chunk")
_SIDE = re.compile(rf"([0-9]{{20}})\.({_UUID})\.([a-z]+)")
_MANIFEST = re.compile(rf"(0|[1-9][0-9]*)-([0-9]{{20}})-({_UUID})\.json")
#: File names as anchored regular expressions.
CHUNK_NAME, SIDE_NAME, MANIFEST_NAME = (f"^{each.pattern}$" for each in (_CHUNK, _SIDE, _MANIFEST))
_OBJECT = re.compile(rf"([0-9]{{20}})-({_UUID})\.segment")
OBJECT_NAME = f"^{_OBJECT.pattern}$"
_SEGMENT = re.compile(r"([0-9]{20})(?:\.([1-9][0-9]*))?\.(log|index|timeindex)")


def check_topic_name(name: str) -> str:
    """Return `name` if Kafka (`Topic.validate`) and we allow it."""
    if not isinstance(name, str) or not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise UsageError(f"topic name {name!r} is not allowed: 1 to 249 of a-z A-Z 0-9 . _ - and neither '.' nor '..'")
    if name.startswith(_RESERVED):
        raise UsageError(f"topic name {name!r} is not allowed: names that start with '__' are reserved")
    return name


def is_topic_name(name: str) -> bool:
    """Whether a topic can have this name."""
    try:
        check_topic_name(name)
    except UsageError:
        return False
    return True


def check_group_name(name: str) -> str:
    """Return `name` if it can name a group."""
    if not isinstance(name, str) or not name or name.startswith(_RESERVED):
        raise UsageError(f"group name {name!r} is not allowed: a text, not empty, that does not start with '__'")
    try:
        fits = len(group_directory(name)) <= _MAX_NAME
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise UsageError(
            f"group name {name!r} is not allowed: at most {_MAX_NAME} characters, of which all but a-z A-Z 0-9 . _ - ~ "
            "count three for each byte of UTF-8"
        )
    return name


def group_directory(name: str) -> str:
    """Name of a group's directory: percent-encoded, never hidden."""
    encoded = quote(name, safe="")
    return f"%2E{encoded[1:]}" if encoded.startswith(".") else encoded


def parse_group(directory: str) -> str | None:
    """Return the group with this directory name, or None."""
    name = unquote(directory)
    return name if name and not name.startswith(_RESERVED) and group_directory(name) == directory else None


def group_journal(name: str) -> str:
    """Return a group's journal directory."""
    return f"{GROUPS}/{group_directory(name)}/journal"


def group_side(name: str) -> str:
    """Return a group's side file directory."""
    return f"{GROUPS}/{group_directory(name)}/side"


def group_members(name: str) -> str:
    """Return a group's member file directory."""
    return f"{GROUPS}/{group_directory(name)}/members"


def member_name(member_id: str) -> str:
    """File name of a member."""
    return f"{member_id}.json"


def parse_member(name: str) -> str | None:
    """Return the member id of a file name, else None."""
    match = _MEMBER.fullmatch(name)
    return match[1] if match else None


def is_topic_id(name: str) -> bool:
    """Whether a directory name is a topic id."""
    return re.fullmatch(_UUID, name) is not None


def topic(name: str) -> str:
    """Return a topic's directory."""
    return f"{TOPICS}/{name}"


def journal(name: str) -> str:
    """Directory of a topic's logical journal, epoch 0."""
    return f"{TOPICS}/{name}/journal"


@dataclass(frozen=True, slots=True)
class TopicPaths:
    """Paths of one incarnation of a topic, below `<topic>/<topic id>`."""

    name: str
    topic_id: str

    @property
    def home(self) -> str:
        """Directory of this incarnation."""
        return f"{TOPICS}/{self.name}/{self.topic_id}"

    @property
    def settle(self) -> str:
        """Settle journal's directory."""
        return f"{self.home}/settle"

    @property
    def lock(self) -> str:
        """The settler's lock file (R3)."""
        return f"{self.settle}/lock"

    @property
    def maintained(self) -> str:
        """File whose time is that of the last `maintain`."""
        return f"{self.settle}/maintained"

    @property
    def maintenance_runs(self) -> str:
        """File of what `maintain` did last."""
        return f"{self.settle}/maintenance-runs"

    @property
    def staged(self) -> str:
        """Directory of chunks."""
        return f"{self.home}/staged"

    @property
    def side(self) -> str:
        """Directory of side files."""
        return f"{self.home}/side"

    @property
    def manifests(self) -> str:
        """Directory of manifests."""
        return f"{self.home}/manifests"

    @property
    def objects(self) -> str:
        """Directory of segment objects."""
        return f"{self.home}/objects"

    @property
    def copied(self) -> str:
        """Directory of a running copy's notes."""
        return f"{self.home}/copied"

    def object(self, name: str) -> str:
        """Path of a segment object."""
        return f"{self.objects}/{name}"

    def chunk(self, name: str) -> str:
        """Path of a chunk."""
        return f"{self.staged}/{name}"

    def partition(self, partition: int) -> str:
        """Directory of a partition's segments."""
        return f"{self.home}/{partition}"

    def segment_file(self, partition: int, stem: str, suffix: str) -> str:
        """Path of a segment's file with this suffix."""
        return f"{self.home}/{partition}/{stem}.{suffix}"


def entry_name(sequence: int) -> str:
    """File name of a journal entry."""
    return f"{sequence:020d}.json"


def parse_entry(name: str) -> int | None:
    """Return the sequence in an entry's name, else None."""
    match = _ENTRY.fullmatch(name)
    return int(match[1]) if match else None


def acceptor_of(directory: str, generation: int = 0) -> str:
    """Register of a journal, at one of several metadata roots."""
    return f"{directory.rpartition('/')[0]}/{_ACCEPTOR}{generation}"


def after_set(generation: int) -> str:
    """One-entry journal that decides a metadata quorum's successor."""
    return f"{REPLICAS}/after-{generation}/journal"


def is_acceptor(name: str) -> bool:
    """Whether a directory name is that of a journal's register."""
    return name.startswith(_ACCEPTOR) and name[len(_ACCEPTOR) :].isdigit()


def chunk_name(sequence: int, unique: str) -> str:
    """Name of a chunk opened at newest entry `sequence` (R1)."""
    return f"{sequence:020d}-{unique}.chunk"


def parse_chunk(name: str) -> int | None:
    """Return the sequence in a chunk's name, else None."""
    match = _CHUNK.fullmatch(name)
    return int(match[1]) if match else None


def chunk_id(name: str) -> str:
    """Return the unique part of a chunk's name.

    Raises:
        ValueError: not a chunk's name.
    """
    match = _CHUNK.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no chunk's name")
    return match[2]


def side_name(sequence: int, write_id: str, kind: str) -> str:
    """Name of a side file of the entry `sequence`."""
    return f"{sequence:020d}.{write_id}.{kind}"


def parse_side(name: str) -> int | None:
    """Return the sequence in a side file's name, else None."""
    match = _SIDE.fullmatch(name)
    return int(match[1]) if match else None


def manifest_name(partition: int, sequence: int, unique: str) -> str:
    """Name of a manifest made for the settle entry `sequence`."""
    return f"{partition}-{sequence:020d}-{unique}.json"


def parse_manifest(name: str) -> tuple[int, int] | None:
    """Return (partition, sequence) of a manifest's name, else None."""
    match = _MANIFEST.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def object_name(sequence: int, unique: str) -> str:
    """Name of an object begun at settle entry `sequence` (O1)."""
    return f"{sequence:020d}-{unique}.segment"


def parse_object(name: str) -> int | None:
    """Return the sequence in a segment object's name, else None."""
    match = _OBJECT.fullmatch(name)
    return int(match[1]) if match else None


def segment_stem(base_offset: int, rewrite: int = 0) -> str:
    """Return `<base>`, or `<base>.<n>` if rewritten for settle entry n (R4)."""
    return f"{base_offset:020d}" if rewrite == 0 else f"{base_offset:020d}.{rewrite}"


def parse_segment(name: str) -> tuple[int, int, str] | None:
    """Return (base offset, rewrite, suffix) of a segment file's name, else None."""
    match = _SEGMENT.fullmatch(name)
    return (int(match[1]), int(match[2] or 0), match[3]) if match else None


def is_text(value: str) -> bool:
    """Whether JSON can hold a text: it has no lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in value)
