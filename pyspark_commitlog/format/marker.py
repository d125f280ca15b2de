"""A root's marker: one line of JSON that ends with its own CRC-32C, as an entry does. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pyspark_commitlog.format.entry import REPLICAS, check_seal, check_version
from pyspark_commitlog.format.shape import Shape, Text, check, checked_json, damage

#: A config at creation, and a member of the marker: the store is not tried, and one process alone may write.
UNSAFE_SINGLE_WRITER = "unsafe.single.writer"
#: More than the marker of any format version takes; a longer one is cut off, and is no JSON.
MARKER_BYTES = 2**16


class Marker(Shape):
    """What a marker says. ``replicas``: the root is one of several, which ``replicas/journal`` lists."""

    format: Literal["commitlog"]
    root_id: Annotated[str, Meta(pattern="^[0-9a-zA-Z-]{1,64}$")]
    read_features: tuple[Text, ...]
    write_features: tuple[Text, ...]
    replicas: bool = False
    unsafe_single_writer: bool = msgspec.field(default=False, name=UNSAFE_SINGLE_WRITER)


def decode_marker(data: bytes, where: str) -> Marker:
    """Return what a marker says.

    Args:
        data: its file, at most ``MARKER_BYTES``.
        where: its path, for the error.

    Raises:
        UnsupportedError: it is of another format version, or names an unknown feature.
        CorruptionError: it is damaged.
    """
    fields = checked_json(data, dict[str, object], where)
    check_version(fields, where)
    check_seal(data, where)
    marker = check(fields, Marker, where)
    if marker.replicas != (REPLICAS in marker.read_features):
        raise damage(where, "replicas", marker.replicas, "true if readFeatures names it, and only then")
    return marker
