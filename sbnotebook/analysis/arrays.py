"""Arrow arrays of numbers and of Python values, without pandas.

``pyarrow.array`` imports pandas, to see whether it was given a pandas object. In a new process that takes as long as
ten round trips over a network, and 50 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

_arrow: Final[Any] = pa
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_modules: Mapping[str, object] = sys.modules
_MISFITS: Final = (TypeError, ValueError, OverflowError, AttributeError)
"""The exceptions of values that have another type than their column."""


def array_of_numbers(numbers: Any, is_null: Any = None, kind: Any = None) -> Any:
    """Return an array of whole numbers."""
    values = np.ascontiguousarray(numbers)
    validity = None if is_null is None else _bits(~is_null)
    buffers = [validity, _arrow.py_buffer(values)]
    return _arrow.Array.from_buffers(kind or _arrow.from_numpy_dtype(values.dtype), len(values), buffers)


def array_of_flags(flags: Any) -> Any:
    """Return an array of a NumPy array of flags."""
    return _arrow.Array.from_buffers(_arrow.bool_(), len(flags), [None, _bits(flags)])


def array_of_values(values: Sequence[Any], kind: Any) -> Any:
    """Return an array of Python values, the same as ``pyarrow.array``."""
    if "pandas" in _modules:
        return _arrow.array(values, type=kind)
    is_null = np.fromiter((value is None for value in values), np.bool_, len(values))
    if is_null.all():
        return _arrow.nulls(len(values), kind)
    try:
        return _array_of_values(values, is_null, kind)
    except _MISFITS:
        return _arrow.array(values, type=kind)


def _array_of_values(values: Sequence[Any], is_null: Any, kind: Any) -> Any:
    types = _arrow.types
    if types.is_timestamp(kind):
        moments = [0 if value is None else (value - _EPOCH) // _MICROSECOND for value in values]
        return array_of_numbers(np.array(moments, np.int64), is_null, kind)
    if types.is_integer(kind):
        whole = [0 if value is None else value for value in values]
        return array_of_numbers(np.array(whole, kind.to_pandas_dtype()), is_null)
    if types.is_map(kind) and not is_null.any():
        pairs = [*chain.from_iterable(value.items() for value in values)]
        keys, items = [key for key, _ in pairs], [item for _, item in pairs]
        offsets = array_of_numbers(_offsets([len(value) for value in values]))
        held = array_of_values(keys, kind.key_type), array_of_values(items, kind.item_type)
        return _arrow.MapArray.from_arrays(offsets, *held, type=kind)
    encode = str.encode if types.is_string(kind) else bytes if types.is_binary(kind) else None
    if encode is None:
        raise TypeError(str(kind))
    pieces = [b"" if value is None else encode(value) for value in values]
    offsets = _arrow.py_buffer(_offsets([*map(len, pieces)]))
    buffers = [_bits(~is_null), offsets, _arrow.py_buffer(b"".join(pieces))]
    return _arrow.Array.from_buffers(kind, len(pieces), buffers)


def _offsets(lengths: Sequence[int]) -> Any:
    ends = np.cumsum(lengths, dtype=np.int64)
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError
    return np.concatenate([[0], ends]).astype(np.int32)


def _bits(flags: Any) -> Any:
    return _arrow.py_buffer(np.packbits(flags, bitorder="little"))
