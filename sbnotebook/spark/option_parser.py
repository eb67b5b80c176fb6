"""A parser for the options of ``format("servicebus")``, which refuses wrong names and values."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from sbnotebook.client.scrubbing import secrets_of
from sbnotebook.client.targets import NamespaceTarget
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import Connection
from sbnotebook.settlement.connecting.connection import scrub

__all__ = ["MAX_NUMBER", "NamespaceTarget", "OptionParser", "secrets_in"]

MAX_NUMBER: Final = 2**63 - 1
"""The greatest sequence number."""

_CONNECTION_STRINGS: Final = ("connectionString", "secret.connectionString")
_TARGETS: Final = (*_CONNECTION_STRINGS, "fullyQualifiedNamespace", "target")
_EVERYWHERE: Final = ("entity", *_TARGETS)
_SHOWN: Final = 40
_SIZE: Final = re.compile(r"([0-9]{1,18})([kmg]?)b?", re.ASCII | re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
Choice = TypeVar("Choice", bound=StrEnum)


class OptionParser:
    """The options of a user; their names are case-insensitive, as in Spark.

    Args:
        options: names and values.
        names: the options that are allowed here, beside the entity and the namespace.

    Raises:
        ConfigurationError: there is no such option.
    """

    def __init__(self, options: Mapping[str, str], names: Iterable[str]) -> None:
        self._values = {name.lower(): value.strip() for name, value in options.items()}
        known = {name.lower(): name for name in (*_EVERYWHERE, *names)}
        for name in sorted(self._values.keys() - known.keys()):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {known[near[0]]}? There are" if near else "there are"
            raise ConfigurationError(f"There is no option {name[:_SHOWN]!r} here; {hint} {', '.join(known.values())}.")

    @property
    def secrets(self) -> list[str]:
        """Return the texts that must not be shown."""
        return secrets_in(self._values)

    def entity(self) -> EntityAddress:
        """Return the entity."""
        text = self._values.get("entity")
        if not text:
            raise ConfigurationError('The entity is missing: .option("entity", "orders/$dlq").')
        return EntityAddress.parse(text)

    def namespace(self) -> NamespaceTarget:
        """Return the namespace."""
        given = [name for name in _TARGETS if self._values.get(name.lower())]
        if len(given) != 1:
            raise ConfigurationError(f"Give exactly one of the options {', '.join(_TARGETS)}.")
        (name,) = given
        value = self._values[name.lower()]
        if name == "target" and value.startswith("env:"):
            value = _from_environment(value.removeprefix("env:"))
        is_connection_string = "endpoint=" in value.lower()
        if is_connection_string:
            Connection(value)  # refuses one that cannot be read
        if name != "target" and is_connection_string != (name in _CONNECTION_STRINGS):
            raise ConfigurationError(
                "connectionString holds a whole connection string, Endpoint=sb://… and so on, "
                "and fullyQualifiedNamespace a host name, NAME.servicebus.windows.net."
            )
        return NamespaceTarget(value)

    def text(self, name: str) -> str | None:
        """Return a text; None when the option is absent."""
        text = self._values.get(name.lower())
        if text == "":
            raise ConfigurationError(f"{name} is empty: leave it out, or give it a value.")
        return text

    def whole(self, name: str, *, most: int = MAX_NUMBER) -> int | None:
        """Return a whole number from 1 on; None when the option is absent."""
        text = self._values.get(name.lower())
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:_SHOWN]) <= most):
            upper = "more" if most == MAX_NUMBER else f"at most {most:,}"
            raise ConfigurationError(f"{name} is a whole number, 1 or {upper}, not {text[:_SHOWN]!r}.")
        return int(text)

    def size(self, name: str) -> int | None:
        """Return a number of bytes, given as ``500000``, ``64k``, ``16m`` or ``1g``; None when the option is absent."""
        text = self._values.get(name.lower())
        if text is None:
            return None
        found = _SIZE.fullmatch(text)
        size = int(found[1]) * _UNITS[found[2].lower()] if found else 0
        if size < 1:
            raise ConfigurationError(
                f"{name} is a number of bytes such as 500000, 64k, 16m or 1g, not {_quoted(text)}."
            )
        return size

    def rate(self, name: str) -> float | None:
        """Return a number of messages a second; None when the option is absent."""
        text = self._values.get(name.lower())
        try:
            rate = None if text is None else float(text)
        except ValueError:
            rate = 0.0
        if rate is not None and not 0 < rate < float("inf"):
            raise ConfigurationError(f"{name} is a number of messages a second above 0, not {_quoted(text)}.")
        return rate

    def flag(self, name: str, *, default: bool) -> bool:
        """Return whether an option is ``true``; the default when it is absent."""
        text = self._values.get(name.lower(), str(default)).lower()
        if text not in ("true", "false"):
            raise ConfigurationError(f"{name} is true or false, not {_quoted(text)}.")
        return text == "true"

    def choice(self, name: str, kind: type[Choice]) -> Choice | None:
        """Return one of the values of an enumeration; None when the option is absent."""
        text = self._values.get(name.lower())
        try:
            return None if text is None else kind(text.lower())
        except ValueError:
            raise ConfigurationError(f"{name} is {' or '.join(kind)}, not {_quoted(text)}.") from None


def secrets_in(options: Mapping[str, str]) -> list[str]:
    """Return the texts in options that must not be shown, also under a misspelt name."""
    targets = {name.lower() for name in _TARGETS}
    texts = [value.strip() for name, value in options.items() if name.lower() in targets or scrub(value) != value]
    return [secret for text in texts for secret in secrets_of(text)]


def _quoted(text: str | None) -> str:
    return repr(str(text)[:_SHOWN])


def _from_environment(variable: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value or value.startswith("env:"):
        raise ConfigurationError(
            f"Spark's driver has no target in the environment variable {variable[:_SHOWN]}: "
            "set it before the Spark session starts."
        )
    return value
