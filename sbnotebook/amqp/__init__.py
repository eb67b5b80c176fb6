"""AMQP 1.0 values as Python values, and their encoding as bytes.

Plain Python types represent the AMQP types with an unambiguous match: ``str`` string, ``bytes`` binary, ``float``
double, ``bool`` boolean, ``UUID`` uuid, ``list`` list, ``dict`` map. Each other type has a class, so that a decoded
value is encoded again as the same type. A plain
``int`` is encoded as ``int`` where it fits and as ``long`` otherwise, a ``datetime`` as timestamp.

Source: AMQP 1.0 part 1, types, section 1.6.
"""

from sbnotebook.amqp.decoding import decode, decode_all, decode_exactly, skip
from sbnotebook.amqp.encoding import (
    AmqpValue,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
    list_of_encoded,
    type_name,
)

__all__ = [
    "AmqpValue",
    "Array",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Described",
    "Float",
    "Int",
    "Long",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "decode",
    "decode_all",
    "decode_exactly",
    "encode",
    "list_of_encoded",
    "skip",
    "type_name",
]
