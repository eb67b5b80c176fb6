"""Decoders by their names, and tables of messages with decoded bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from sbnotebook.analysis.avro_bodies import avro_decoder
from sbnotebook.analysis.decoders import Decoder, decoder_of
from sbnotebook.analysis.protobuf_bodies import protobuf_decoder
from sbnotebook.errors import ConfigurationError, near_match

if TYPE_CHECKING:
    import pyarrow as pa

GROUP: Final = "sbnotebook.decoders"
"""The entry points of packages that bring decoders."""
_REGISTERED: Final[dict[str, Decoder]] = {}
Decode = str | Decoder | Callable[..., Any]
"""A decoder, its name, a function, or ``avro:FILE`` or ``protobuf:FILE#MESSAGE``."""


def decoder(
    name: str, function: Decoder | Callable[..., Any], *, schema: pa.Schema | pa.DataType | None = None
) -> Decoder:
    """Give a decoder of bodies a name, by which ``decode=`` and ``%sb_peek --decode`` find it in this process.

    A package can bring decoders as entry points of the group ``sbnotebook.decoders``: functions, found by their names.

    Args:
        name: any name without a colon; another decoder of this name is replaced.
        function: a decoder of :func:`avro_decoder` or :func:`protobuf_decoder`, or a function of your own. Your
            function gets the bytes of the body, without compression. With a second argument, it also gets ``subject``,
            ``content_type`` and ``application_properties``. It returns a value as JSON has them, or None for a body of
            another format. An error that it raises is the ``decode_error`` of this message. It is called for each body
            that is looked at, so it must not change anything.
        schema: for Spark: the Arrow schema of the values.

    Returns:
        The decoder.

    Raises:
        ConfigurationError: the name is wrong.

    Example:
        >>> decoder("lines", lambda body: {"lines": body.decode().split("|")}).read(b"UA|DL", None)
        {'lines': ['UA', 'DL']}
    """
    made = decoder_of(function, schema)
    if not name.isprintable() or not name.strip() or ":" in name:
        raise ConfigurationError(f"{name!r:.80} cannot be the name of a decoder: use letters, such as 'orders'.")
    _REGISTERED[name] = made
    return made


def registered_decoders() -> Mapping[str, Decoder]:
    return _REGISTERED


def decoder_for(decode: Decode) -> Decoder:
    if not isinstance(decode, str):
        return decoder_of(decode)
    found = _REGISTERED.get(decode)
    if found is not None:
        return found
    kind, colon, rest = decode.partition(":")
    if colon and kind == "avro":
        return avro_decoder(rest)
    if colon and kind == "protobuf":
        file, _, message = rest.partition("#")
        return protobuf_decoder(file, message or None)
    return decoder_of(_installed(decode))


def _installed(name: str) -> Any:
    points = entry_points(group=GROUP)
    if name in points.names:
        try:
            return points[name].load()
        except Exception as error:  # noqa: BLE001 (any package's import)
            raise ConfigurationError(f"The decoder {name!r} cannot be imported: {str(error)[:200]}") from None
    known = [*_REGISTERED, *points.names]
    near = near_match(name, known)
    said = f"did you mean {near}?" if near else "make it with sbnotebook.decoder(name, …), or say avro:FILE."
    raise ConfigurationError(f"There is no decoder {name[:80]!r}: {said}")
