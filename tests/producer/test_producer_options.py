"""A producer's options: Kafka's relations, and errors that name option, value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_commitlog import Producer
from pyspark_commitlog.errors import OptionError
from tests.support.producers import options


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"acks": 2}, r"acks=2 .* 'all' .*1 or 0"),
        ({"acks": True}, "acks=True"),
        ({"acks": 1.0}, r"acks=1\.0"),
        ({"acks": "1 "}, "acks='1 '"),
        ({"linger_ms": 5.0}, r"linger_ms=5\.0"),
        ({"linger_ms": -1}, r"linger_ms=-1 .* 0 to 2147483647"),
        ({"linger_ms": 1.5}, r"linger_ms=1\.5 .* whole number"),
        ({"batch_size": "1"}, "batch_size='1'"),
        ({"buffer_memory": 0}, "buffer_memory=0 .* 1 to"),
        ({"max_block_ms": None}, "max_block_ms=None"),
        ({"compression": "gzip"}, "compression='gzip' .* none, lz4, zstd or None"),
        ({"partitioner": "random"}, "partitioner='random' .* murmur2, roundrobin, sticky, or a function"),
        ({"producer_id": ""}, "producer_id='' .* 1 to 256"),
        ({"producer_id": 7}, "producer_id=7"),
        ({"producer_id": "a\nb"}, "producer_id"),
        ({"producer_id": "a", "acks": 0}, "producer_id='a' .* acks=0"),
        ({"delivery_timeout_ms": 30_004, "linger_ms": 5}, r"delivery_timeout_ms=30004 .* request_timeout_ms = 30005"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_what_is_allowed(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        options(**changed).check()


def test_the_constructor_checks_and_touches_nothing(tmp_path: Any) -> None:
    with pytest.raises(OptionError, match="linger_ms"):
        Producer(str(tmp_path / "root"), linger_ms=-1)
    with Producer(str(tmp_path / "root")) as producer:
        assert "root" in repr(producer)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("acks", ["all", "-1", 1, "1", 0, "0", -1])
def test_kafkas_acks_are_taken(acks: Any) -> None:
    assert options(acks=acks).check().durable == (str(acks) != "0")


def test_delivery_timeout_may_equal_linger_and_request() -> None:
    assert options(delivery_timeout_ms=30_005, linger_ms=5).check()
