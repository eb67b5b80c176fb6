"""The decimals of AMQP as text: IEEE 754-2008 with a binary significand, and the variant that .NET writes.

The clients of Azure for .NET put the upper half of the exponent of a decimal128 two bits too low, and read both forms.
``DecimalEncoding`` of Azure/azure-amqp shifts by 9 bits where the standard says 7. Their exponents are those of
values from 1e-4608, so a decimal128 with such an exponent and a significand of 96 bits is one of .NET.

Source: AMQP 1.0 part 1, sections 1.6.15 to 1.6.17; IEEE 754-2008, section 3.5.2.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

# By the number of bytes: bits of the exponent and its bias, and the digits of the significand.
_LAYOUTS: Final = {4: (8, 101, 7), 8: (10, 398, 16), 16: (14, 6176, 34)}
_MOST: Final = {size: 10**digits for size, (_, _, digits) in _LAYOUTS.items()}
_BIAS: Final = 6176
_MOST_SCALE: Final = 28  # Digits behind the point of a decimal of .NET
# The exponent 0 as .NET writes it; it is lower by one for each digit behind the point
_NET_EXPONENT: Final = (_BIAS >> 9 << 7) | (_BIAS & 0x7F)
_NET_BITS: Final = 96


def decimal_text(data: bytes, *, is_of_net: bool = False) -> str | None:
    """Return a decimal as text; None where the text would not lead back to the same bytes."""
    if len(data) not in _LAYOUTS:
        return None
    if data[0] & 0x78 == 0x78:  # noqa: PLR2004
        value = _special(data)
        return str(value) if _special_bytes(value, len(data)) == data else None
    sign, significand, exponent = _parts(data, is_of_net=is_of_net)
    try:
        if _packed(sign, significand, exponent, len(data), is_of_net=is_of_net) != data:
            return None
    except OverflowError:
        return None
    return str(Decimal(f"{'-' if sign else ''}{significand}E{exponent}"))


def _special(data: bytes) -> Decimal:
    name = ("Infinity", "Infinity", "NaN", "sNaN")[data[0] >> 1 & 3]
    return Decimal(f"-{name}" if data[0] & 0x80 else name)


def _special_bytes(value: Decimal, size: int) -> bytes:
    sign, coefficient, exponent = value.as_tuple()
    if any(coefficient):
        raise OverflowError("A number of a NaN is not written.")
    top = {"F": 0x78, "n": 0x7C, "N": 0x7E}[str(exponent)]
    return bytes([sign << 7 | top]).ljust(size, b"\0")


def _parts(data: bytes, *, is_of_net: bool) -> tuple[int, int, int]:
    """Return the sign, the significand and the exponent."""
    exponent_bits, bias, _ = _LAYOUTS[len(data)]
    bits, width = int.from_bytes(data), 8 * len(data)
    rest = width - 1 - exponent_bits
    if data[0] & 0x60 == 0x60:  # noqa: PLR2004 (a significand with a bit more)
        exponent = bits >> (rest - 2) & ((1 << exponent_bits) - 1)
        significand = 1 << rest | bits & ((1 << (rest - 2)) - 1)
    else:
        exponent, significand = bits >> rest & ((1 << exponent_bits) - 1), bits & ((1 << rest) - 1)
    return bits >> (width - 1), significand, exponent - (_NET_EXPONENT if is_of_net else bias)


def decimal_bytes(value: Decimal, size: int, *, is_of_net: bool = False) -> bytes:
    sign, coefficient, exponent = value.as_tuple()
    if isinstance(exponent, str):
        return _special_bytes(value, size)
    significand = int("".join(map(str, coefficient)) or "0")
    return _packed(sign, significand, exponent, size, is_of_net=is_of_net)


def _packed(sign: int, significand: int, exponent: int, size: int, *, is_of_net: bool) -> bytes:
    exponent_bits, bias, digits = _LAYOUTS[size]
    rest, biased = 8 * size - 1 - exponent_bits, exponent + bias
    if significand >= _MOST[size] or not 0 <= biased < 3 << (exponent_bits - 2):
        raise OverflowError(
            f"A number with the exponent {exponent} and {digits} digits does not fit into {size} bytes."
        )
    if is_of_net:
        if not -_MOST_SCALE <= exponent <= 0 or significand >> _NET_BITS:
            raise OverflowError("The number is not a decimal of .NET.")
        biased = _NET_EXPONENT + exponent
    if significand >> rest:
        lower = significand & ((1 << (rest - 2)) - 1)
        return (sign << (8 * size - 1) | 3 << (8 * size - 3) | biased << (rest - 2) | lower).to_bytes(size)
    return (sign << (8 * size - 1) | biased << rest | significand).to_bytes(size)
