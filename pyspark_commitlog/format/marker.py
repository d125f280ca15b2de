"""Root marker: one line of JSON that ends with its CRC-32C. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pyspark_commitlog.format.entry import REPLICAS, check_seal, check_version
from pyspark_commitlog.format.shape import Shape, Text, check, checked_json, damage

#: Config at creation and marker field: skip the test of the store; a single process may write.
UNSAFE_SINGLE_WRITER = "unsafe.single.writer"
#: Larger than any marker; a longer one is cut off and fails as JSON.
MARKER_BYTES = 2**16


class Marker(Shape):
    """Content of a root marker.

    `replicas`: the root is one of several, which `replicas/journal` lists. `offsets_expire`: groups' offsets have a
    default retention; roots made before that keep them.
    """

    format: Literal["commitlog"]
    root_id: Annotated[str, Meta(pattern="^[0-9a-zA-Z-]{1,64}$")]
    read_features: tuple[Text, ...]
    write_features: tuple[Text, ...]
    replicas: bool = False
    offsets_expire: bool = False
    unsafe_single_writer: bool = msgspec.field(default=False, name=UNSAFE_SINGLE_WRITER)


def decode_marker(data: bytes, where: str) -> Marker:
    """Return the content of a root marker, at most `MARKER_BYTES`."""
    fields = checked_json(data, dict[str, object], where)
    check_version(fields, where)
    check_seal(data, where)
    marker = check(fields, Marker, where)
    if marker.replicas != (REPLICAS in marker.read_features):
        raise damage(where, "replicas", marker.replicas, "true if readFeatures names it, and only then")
    return marker
