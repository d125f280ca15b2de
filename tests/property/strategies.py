"""What the property tests draw: rows, frames, entries, names."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import settings, strategies as st

from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.format.columns.untyped import SCHEMA, SPARSE_SCHEMA
from pyspark_commitlog.format.frame import Identity, Times
from pyspark_commitlog.format.schema.arrow_types import to_arrow
from pyspark_commitlog.format.schema.types import ATOMIC
from tests.support.typed_rows import batch_of_kinds


def examples(number: int) -> int:
    """Return the share of a number of examples that the profile tries (tests/conftest.py)."""
    return number * settings.default.max_examples // 100


#: The machine may be busy: no deadline for one example.
quick = settings(deadline=None, max_examples=examples(100))
quicker = settings(deadline=None, max_examples=examples(30))

I64_MAX = 2**63 - 1
codecs = st.sampled_from(("none", "lz4", "zstd"))
offsets = st.integers(0, 2**62)
uuids = st.uuids().map(str)
sequences = st.integers(0, 2**63 - 1)
some_bytes = st.none() | st.binary(max_size=20)
header_lists = st.none() | st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3)
micros = st.integers(0, 2**53)


@st.composite
def batches(draw: st.DrawFn, *, sparse: bool = False, max_rows: int = 12) -> pa.RecordBatch:
    """Rows of an untyped topic; with `sparse`, some that are left of a larger frame."""
    rows = draw(st.integers(1, max_rows))
    kinds = (some_bytes, some_bytes, header_lists, micros)
    drawn = [draw(st.lists(kind, min_size=rows, max_size=rows)) for kind in kinds]
    arrays = [pa.array(values, column.type) for values, column in zip(drawn, SCHEMA, strict=True)]
    if not sparse:
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    deltas = draw(st.sets(st.integers(0, 65_535), min_size=rows, max_size=rows))
    return pa.RecordBatch.from_arrays([*arrays, pa.array(sorted(deltas), pa.int32())], schema=SPARSE_SCHEMA)


@st.composite
def identities(draw: st.DrawFn) -> Identity:
    """Identities of dense and sparse frames."""
    base = draw(st.none() | offsets)
    kind = frame.DENSE if base is None else frame.SPARSE
    return Identity(draw(uuids), draw(st.integers(0, 9999)), draw(codecs), kind=kind, base_offset=base)


@st.composite
def times(draw: st.DrawFn) -> Times:
    """A frame's times, base and maximum in any order."""
    low, high = sorted((draw(st.integers(0, 2**53)), draw(st.integers(0, 2**53))))
    return Times(low, high, draw(st.booleans()))


def encode_frame(batch: pa.RecordBatch, identity: Identity, at: Times, *, base_offset: int = 0) -> bytes:
    """Return `batch` as a frame."""
    message = untyped.encode(batch, identity.codec)
    return frame.encode(message, rows=batch.num_rows, times=at, identity=identity, base_offset=base_offset)


#: Types of declared columns, and rows of these.
_names = st.sampled_from(("a", "b b", "ü", "C"))
kinds = st.recursive(
    st.sampled_from((*ATOMIC, "decimal(5,2)", "decimal(38,10)")).map(to_arrow),
    lambda inner: (
        inner.map(lambda kind: pa.list_(pa.field("element", kind)))
        | st.tuples(st.sampled_from((pa.string(), pa.int64())), inner).map(lambda pair: pa.map_(*pair))
        | st.dictionaries(_names, inner, min_size=1, max_size=3).map(lambda parts: pa.struct(list(parts.items())))
    ),
    max_leaves=4,
)
typed_batches = st.builds(
    batch_of_kinds,
    st.integers(0, 2**32),
    st.lists(kinds, min_size=1, max_size=4),
    st.integers(1, 400),
    first=st.integers(0, 9),
    nulls=st.sampled_from((0.0, 0.3, 1.0)),
    headers=st.booleans(),
)
