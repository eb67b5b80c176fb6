"""Decode bodies in Protobuf with Google's library: plain ones, and those framed by a schema registry.

A frame is a byte 0, four bytes for the ID of the schema, and the place of the message in its file, as zigzag varints
(source: Confluent, "Wire format"). No plain message begins with a byte 0: no field has the number 0.

The library bounds the levels of a message to 100 and all sizes to the body's own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sbnotebook.analysis.decoders import Decoder, Labels, UndecodableError
from sbnotebook.errors import ConfigurationError, MissingExtraError, near_match

_HEADER: Final = 5
_MOST_STEPS: Final = 32
"""Levels at which a message is declared within messages."""
_GOOGLE: Final = "google.protobuf."
_WELL_KNOWN: Final = frozenset(
    f"{_GOOGLE}{name}" for name in ("Any", "Duration", "FieldMask", "Struct", "Value", "ListValue")
)
"""The messages for which the JSON of Protobuf has a form of its own."""
_TYPES: Final[dict[int, Any]] = {
    # The numbers of FieldDescriptor.CPPTYPE_…
    1: pa.int32(),
    2: pa.int64(),
    3: pa.int64(),  # Spark has no numbers without a sign
    4: pa.decimal128(20, 0),
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
    8: pa.string(),
    9: pa.string(),
}
_BYTES: Final = 12
"""FieldDescriptor.TYPE_BYTES."""
_ENUM: Final = 8
_MESSAGE: Final = 10
"""FieldDescriptor.CPPTYPE_ENUM and CPPTYPE_MESSAGE."""


def protobuf_decoder(source: Any, message: str | None = None) -> Decoder:
    r"""Make a decoder of bodies in Protobuf.

    Args:
        source: a file with a descriptor set, which ``protoc --include_imports --descriptor_set_out=FILE`` writes, or
            its bytes; or the class of a message, or a module, that ``protoc`` generated.
        message: the full name of the message, such as ``shop.Order``; not needed for a class, nor where there is only
            one.

    Returns:
        The decoder, for :func:`decoder` and ``decode=``. Enumerations become their names, and timestamps become times.

    Raises:
        ConfigurationError: the descriptor set cannot be read, or it has no such message.
        MissingExtraError: the extra ``protobuf`` is missing.

    Example:
        >>> from google.protobuf.wrappers_pb2 import StringValue
        >>> protobuf_decoder(StringValue).read(b"\n\x02UA", Labels())
        'UA'
    """
    try:
        from google.protobuf import descriptor_pb2
    except ImportError:
        raise MissingExtraError("A decoder of Protobuf", "protobuf") from None

    descriptors: Any = descriptor_pb2
    if hasattr(source, "DESCRIPTOR"):
        files, name = _files_of(source.DESCRIPTOR, descriptors), getattr(source.DESCRIPTOR, "full_name", None)
    else:
        files, name = _files_in(source, descriptors), None
    bodies = ProtobufBodies(files, message or name or _only_message(files, descriptors))
    return Decoder(bodies, bodies.schema, is_exact=True)


def _files_of(descriptor: Any, descriptors: Any) -> bytes:
    files: dict[str, Any] = {}

    def add(file: Any) -> None:
        if file.name in files:
            return
        for each in file.dependencies:
            add(each)
        files[file.name] = made = descriptors.FileDescriptorProto()
        file.CopyToProto(made)

    add(getattr(descriptor, "file", descriptor))
    return descriptors.FileDescriptorSet(file=[*files.values()]).SerializeToString()


def _files_in(source: Any, descriptors: Any) -> bytes:
    if isinstance(source, (bytes, bytearray)):
        data, name = bytes(source), "the descriptor set"
    else:
        name = str(source)[:200]
        try:
            data = Path(str(source)).expanduser().read_bytes()
        except OSError as error:
            raise ConfigurationError(f"The descriptor set {name!r} cannot be read: {error.strerror}.") from None
    try:
        found: Any = descriptors.FileDescriptorSet.FromString(data)
    except Exception:  # noqa: BLE001 (the library has several)
        found = None
    if found is None or not found.file:
        raise ConfigurationError(
            f"{name} is not a descriptor set: make one with protoc --include_imports --descriptor_set_out=FILE."
        )
    return data


def _only_message(data: bytes, descriptors: Any) -> str:
    files: Any = descriptors.FileDescriptorSet.FromString(data).file
    own = [file for file in files if not file.name.startswith("google/protobuf/")]
    names = [f"{file.package}.{each.name}".lstrip(".") for file in own for each in file.message_type]
    if len(names) == 1:
        return names[0]
    raise ConfigurationError(f"Name the message of Protobuf that bodies are, one of {', '.join(names)[:300]}.")


class ProtobufBodies:
    def __init__(self, files: bytes, name: str) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        descriptors: Any = descriptor_pb2
        pool: Any = descriptor_pool.DescriptorPool()
        known = list[str]()
        try:
            for file in descriptors.FileDescriptorSet.FromString(files).file:
                pool.AddSerializedFile(file.SerializeToString())
                known += [f"{file.package}.{each.name}".lstrip(".") for each in file.message_type]
            found: Any = pool.FindMessageTypeByName(name)
        except KeyError:
            near = near_match(name, known)
            raise ConfigurationError(
                f"The descriptor set has no message {name[:200]!r}" + (f": did you mean {near}?" if near else ".")
            ) from None
        except TypeError as error:
            raise ConfigurationError(
                f"The descriptor set cannot be used ({str(error)[:200]}): make it with --include_imports."
            ) from None
        factory: Any = message_factory
        self._files, self._name = files, name
        self._make: Any = factory.GetMessageClass(found)
        self._path = _path_of(found)
        self._value, self.schema = _of_message(found, {}, frozenset())

    def __reduce__(self) -> tuple[type[ProtobufBodies], tuple[Any, ...]]:
        """Return how to make it again, on a worker of Spark."""
        return ProtobufBodies, (self._files, self._name)

    def __call__(self, body: bytes, labels: Labels) -> Any:
        from google.protobuf.unknown_fields import UnknownFieldSet

        del labels
        start = self._behind_frame(body) if body[:1] == b"\0" else 0
        try:
            message = self._make.FromString(body[start:])
        except Exception as error:  # noqa: BLE001 (the library has several)
            raise UndecodableError(f"the body is not a {self._name}: {error}") from None
        if len(body) > start and not message.ListFields() and len(UnknownFieldSet(message)):
            raise UndecodableError(f"the body has no field of {self._name}")
        return self._value(message)

    def _behind_frame(self, body: bytes) -> int:
        """Return where the message begins behind a registry's frame; refuse another message of the same file."""
        count, at = _varint(body, _HEADER)
        steps: list[int] = []
        for _ in range(min(count, _MOST_STEPS)):
            step, at = _varint(body, at)
            steps.append(step)
        if (steps or [0]) != self._path:
            where = ".".join(map(str, steps or [0]))
            raise UndecodableError(f"the frame names the message {where} of its file, and {self._name} is another")
        return at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(body):
            break
        number |= (body[at] & 127) << shift
        at += 1
        if body[at - 1] < 128:  # noqa: PLR2004 (the bit that says that more follows)
            return (number >> 1) ^ -(number & 1), at
    raise UndecodableError("the registry's frame is damaged")


def _path_of(descriptor: Any) -> list[int]:
    """Return the place of a message in its file: its number, within that of the message around it."""
    around = descriptor.containing_type
    others = descriptor.file.message_types_by_name if around is None else around.nested_types_by_name
    place = [each.full_name for each in others.values()].index(descriptor.full_name)
    return [*(_path_of(around) if around is not None else []), place]


# ------------------------------------------------------------ values and their types

Read = Callable[[Any], Any]
Form = tuple[Read, Any]
"""The function that gives a value, and the Arrow type of that."""


def _of_message(descriptor: Any, known: dict[str, Read], above: frozenset[str]) -> Form:
    """Return the form of a message; a message within itself is a text of JSON in Arrow."""
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return lambda message: message.ToDatetime(tzinfo=UTC), pa.timestamp("us", tz="UTC")
    if name.startswith(_GOOGLE) and name.endswith("Value") and [*descriptor.fields_by_name] == ["value"]:
        return lambda message: message.value, _of_value(descriptor.fields_by_name["value"], known, above)[1]
    if name in _WELL_KNOWN:
        return _as_google_writes, pa.string()
    if name in above:
        return known[name], pa.string()
    fields: list[tuple[str, bool, Read]] = []

    def read(message: Any) -> dict[str, Any]:
        return {
            field: convert(getattr(message, field))
            for field, may_lack, convert in fields
            if not may_lack or message.HasField(field)
        }

    known[name] = read
    forms = {field.name: (field, *_of_field(field, known, above | {name})) for field in descriptor.fields}
    fields += [(place, field.has_presence, convert) for place, (field, convert, _) in forms.items()]
    return read, pa.struct([(place, kind) for place, (_, _, kind) in forms.items()])


def _of_field(field: Any, known: dict[str, Read], above: frozenset[str]) -> Form:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        values, kind = _of_value(field.message_type.fields_by_name["value"], known, above)
        return lambda pairs: {str(key): values(pairs[key]) for key in pairs}, pa.map_(pa.string(), kind)
    read, kind = _of_value(field, known, above)
    if field.is_repeated:
        return lambda items: [*map(read, items)], pa.list_(kind)
    return read, kind


def _of_value(field: Any, known: dict[str, Read], above: frozenset[str]) -> Form:
    if field.cpp_type == _MESSAGE:
        return _of_message(field.message_type, known, above)
    if field.type == _BYTES:
        return _unchanged, pa.binary()
    kind = _TYPES[field.cpp_type]
    if field.cpp_type == _ENUM:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, number), kind
    return _unchanged, kind


def _unchanged(value: Any) -> Any:
    return value


def _as_google_writes(message: Any) -> Any:
    """Return a well-known message as the JSON of Protobuf has it."""
    from google.protobuf import json_format

    to_dict: Any = json_format.MessageToDict
    try:
        return to_dict(message)
    except TypeError:  # an Any of a type that the descriptor set does not have
        return {"@type": message.type_url, "value": message.value}
