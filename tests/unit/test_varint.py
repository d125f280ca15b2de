"""Varints as Kafka writes them; the vectors are those of its `ByteUtilsTest`."""

from __future__ import annotations

import pytest

from pyspark_commitlog.format import varint

KAFKA = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "80 01"),
    (-65, "81 01"),
    (8191, "fe 7f"),
    (-8192, "ff 7f"),
    (8192, "80 80 01"),
    (-8193, "81 80 01"),
    (1048575, "fe ff 7f"),
    (-1048576, "ff ff 7f"),
    (134217727, "fe ff ff 7f"),
    (2**31 - 1, "fe ff ff ff 0f"),
    (-(2**31), "ff ff ff ff 0f"),
    (2**63 - 1, "fe ff ff ff ff ff ff ff ff 01"),
    (-(2**63), "ff ff ff ff ff ff ff ff ff 01"),
]


@pytest.mark.parametrize(("value", "written"), KAFKA)
def test_encodes_and_decodes_as_kafka_does(value: int, written: str) -> None:
    data = bytes.fromhex(written)

    assert varint.encode(value) == data
    assert varint.decode(data, 0) == (value, len(data))


def test_decodes_at_a_position_and_tells_the_next() -> None:
    assert varint.decode(b"\xff\x80\x01\xff", 1) == (64, 3)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9])
def test_refuses_to_read_past_the_end(data: bytes) -> None:
    with pytest.raises(ValueError, match="cut off"):
        varint.decode(data, 0)


def test_refuses_more_than_ten_bytes() -> None:
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        varint.decode(b"\x80" * 10 + b"\x00", 0)
