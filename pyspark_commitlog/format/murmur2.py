"""Kafka's murmur2 over columns of keys (`org.apache.kafka.common.utils.Utils.murmur2`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)
_WORD_BYTES = 4

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


def murmur2(keys: pa.BinaryArray) -> Words:
    """Return Kafka's 32-bit murmur2 of every key; null hashes as empty.

    One step per 4-byte word of the longest key.
    """
    if not len(keys):
        return np.zeros(0, np.uint32)
    data, starts, lengths = _layout(keys)
    words = _every_word(data)
    hashes = _SEED ^ lengths.astype(np.uint32)
    with np.errstate(over="ignore"):
        _mix_words(words, starts, lengths // 4, hashes)
        _mix_tail(words, starts + lengths, lengths & 3, hashes)
        hashes ^= hashes >> np.uint32(13)
        hashes *= _M
        hashes ^= hashes >> np.uint32(15)
    return hashes


def _layout(keys: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], Ints, Ints]:
    """Return (bytes, starts, lengths) of a binary array's keys.

    At least four bytes lie before the end of each key, by a copy if needed.
    """
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(keys) + 1, keys.offset * 4).astype(np.int64)
    bytes_ = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    if bounds[1] < _WORD_BYTES:
        bytes_ = np.concatenate((np.zeros(_WORD_BYTES, np.uint8), bytes_))
        bounds += _WORD_BYTES
    return bytes_, bounds[:-1], bounds[1:] - bounds[:-1]


def _mix_words(words: Words, starts: Ints, counts: Ints, hashes: Words) -> None:
    least, most = int(counts.min()), int(counts.max())
    for step in range(least):
        _mix(hashes, words[starts + _WORD_BYTES * step])
    running = np.flatnonzero(counts > least)
    for step in range(least, most):
        mixed = hashes[running]
        _mix(mixed, words[starts[running] + _WORD_BYTES * step])
        hashes[running] = mixed
        running = running[counts[running] > step + 1]


def _mix(hashes: Words, k: Words) -> None:
    k *= _M
    k ^= k >> _R
    k *= _M
    hashes *= _M
    hashes ^= k


def _mix_tail(words: Words, ends: Ints, left: Ints, hashes: Words) -> None:
    """Mix the 1 to 3 bytes after the last whole word."""
    tail = words[ends - _WORD_BYTES] >> (8 * (_WORD_BYTES - left)).astype(np.uint32)  # by 32 bits: 0
    np.copyto(hashes, (hashes ^ tail) * _M, where=left > 0)


def _every_word(data: npt.NDArray[np.uint8]) -> Words:
    return np.ndarray(len(data) - _WORD_BYTES + 1, dtype="<u4", buffer=data, strides=(1,))
