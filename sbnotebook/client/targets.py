"""Resolve what users give: the target of a connection, and messages, times and addresses as arguments."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from numbers import Integral
from operator import index
from typing import Any, Final, Self, TypeAlias, TypeVar, overload
from urllib.parse import quote, urlsplit

import anyio.to_thread
import pyarrow as pa

from sbnotebook.analysis import query, tables
from sbnotebook.analysis.frames import collect_spark_frame
from sbnotebook.analysis.groups import Group
from sbnotebook.errors import ConfigurationError, DecisionError, near_match
from sbnotebook.model import DeadLetter, EntityAddress, MessageState, PeekedMessage, ReceivedMessage
from sbnotebook.model.connection_strings import Hidden, hidden
from sbnotebook.settlement import Connection, Ramp, explained, sign_in, tier_of

RampSizes: TypeAlias = str | int | Iterable[int]
"""The sizes of the batches of a ramp: ``"1,5,20,100"``, a number, or numbers."""

_UNITS: Final = {
    "milliseconds": ("ms", "msec", "msecs", "millisecond", "milliseconds"),
    "seconds": ("s", "sec", "secs", "second", "seconds"),
    "minutes": ("m", "min", "mins", "minute", "minutes"),
    "hours": ("h", "hr", "hrs", "hour", "hours"),
    "days": ("d", "day", "days"),
    "weeks": ("w", "wk", "wks", "week", "weeks"),
}
_BY_UNIT: Final = {name: unit for unit, names in _UNITS.items() for name in names}
_PART: Final = re.compile(r"(?<!\d)(\d++(?:\.\d++)?+)\s*+([a-z]++)")
_NUMBER: Final = re.compile(r"\d++(?:\.\d++)?+")
_LONGEST: Final = 60
_LARGEST_NUMBER: Final = 2**63 - 1
_CENTURIES: Final = timedelta(days=365_250)
"""The longest duration: the calendar of Python ends with the year 9999."""
_GRACE: Final = timedelta(minutes=1)
"""By which clocks may differ, and for which a user may hesitate."""


@overload
def duration(text: str | float | timedelta) -> timedelta: ...
@overload
def duration(text: None) -> None: ...
def duration(text: str | float | timedelta | None) -> timedelta | None:
    """Read a duration from a text such as ``90s``, ``5m``, ``5 minutes`` or ``1h30m``; None stays None.

    A number, also as a text, is seconds.
    """
    if text is None:
        return None
    try:
        number = timedelta(seconds=text) if isinstance(text, (int, float)) else text
        read = number if isinstance(number, timedelta) else _parse(number.lower())
    except (ValueError, OverflowError, AttributeError, TypeError):
        raise ConfigurationError(f"{str(text)[:40]!r} is not a duration: write 90s, 5m, 1h30m or 2d.") from None
    if read > _CENTURIES:
        raise ConfigurationError(f"A duration has 1,000 years at most; {str(text)[:40]!r} is longer.")
    return read


def _parse(text: str) -> timedelta:
    if len(text) > _LONGEST:
        raise ValueError(text)
    if _NUMBER.fullmatch(text.strip()):
        return timedelta(seconds=float(text))
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip(" ,") or not all(unit in _BY_UNIT for _, unit in parts):
        raise ValueError(text)
    return sum((timedelta(**{_BY_UNIT[unit]: float(number)}) for number, unit in parts), timedelta())


def start_time(since: str | datetime | timedelta | None) -> datetime | timedelta | None:
    """Read a time such as ``2026-01-31T08:00``, or a duration that counts back from now, such as ``2d``.

    A text without a time zone is in this machine's.
    """
    if not isinstance(since, str):
        return since
    try:
        return moment(since)
    except ConfigurationError:
        pass
    try:
        return duration(since)
    except ConfigurationError:
        raise ConfigurationError(
            f"{since[:40]!r} is neither a time nor a duration: write 2026-01-31, 2026-01-31T08:00 or 2d."
        ) from None


def moment(time: str | datetime | None) -> datetime | None:
    """Read a time such as ``2026-01-31`` or ``2026-01-31T08:00``, in this machine's time zone unless it has one.

    A datetime and None stay as they are.
    """
    if not isinstance(time, str):
        return time
    try:
        if len(time) <= _LONGEST and "-" in time:  # 20260131 may as well be a number
            return datetime.fromisoformat(time.strip()).astimezone()
    except (ValueError, OverflowError):
        pass
    raise ConfigurationError(f"{time[:40]!r} is not a time: write 2026-01-31 or 2026-01-31T08:00.")


def time_to_come(at: str | datetime | None) -> datetime | None:
    when = moment(at)
    if when is not None and when.tzinfo is not None and when < datetime.now(UTC) - _GRACE:
        raise ConfigurationError(
            f"{when:%Y-%m-%d %H:%M %Z} is in the past, and Service Bus would make the messages active at once: give a "
            "later time, or send them with %sb_send or send(…)."
        )
    return when


def ramp_of(batches: RampSizes, watch: str | float | timedelta, stop_at: float) -> Ramp:
    given: Any = batches.split(",") if isinstance(batches, str) else [batches] if isinstance(batches, int) else batches
    try:
        sizes = tuple(int(each) for each in given)
    except (TypeError, ValueError):
        raise ConfigurationError(f'{str(batches)[:40]!r} is not a ramp: write sizes such as "1,5,20,100".') from None
    return Ramp(sizes, duration(watch), stop_at)


def dead_letter(reason: str | None, description: str | None, error_description: str | None) -> DeadLetter:
    """Return the decision to dead-letter; ``error_description`` is the SDK's name of the description."""
    if description is not None and error_description is not None:
        raise ConfigurationError("Give description or error_description, which is the SDK's name of it, not both.")
    return DeadLetter(reason, error_description if description is None else description)


def address(entity: str | EntityAddress | None) -> EntityAddress | None:
    return None if entity is None else EntityAddress.parse(entity)


def message_state(state: str | None) -> MessageState | None:
    if state is None:
        return None
    try:
        return MessageState(state)
    except ValueError:
        raise ConfigurationError(f"{state[:40]!r} is not a state: use {', '.join(MessageState)}.") from None


def whole_number(value: int, name: str, *, least: int = 0) -> int:
    if not isinstance(value, Integral) or value < least:
        hint = "; an expression is given as where=…" if isinstance(value, str) and not value.isdigit() else ""
        raise ConfigurationError(f"{name} is a whole number from {least}, not {str(value)[:40]!r}{hint}.")
    return int(value)


def check_sequence_number(value: int, name: str) -> None:
    if not isinstance(value, Integral) or value > _LARGEST_NUMBER:
        raise ConfigurationError(f"{name} is a whole number up to 2**63 - 1, not {str(value)[:40]!r}.")


def message_filter(where: str | None) -> Callable[[Sequence[PeekedMessage]], Sequence[PeekedMessage]] | None:
    query.where([], where)  # checks the expression before any message is peeked
    return partial(query.where, expression=where) if where is not None else None


# ---------------------------------------------------------------- messages

Choice: TypeAlias = Any
"""Which messages are meant: see :func:`chosen`."""
M = TypeVar("M", bound=ReceivedMessage)

_COLUMN: Final = "sequence_number"
_EXACT_FLOATS: Final = 2**53
_MOST_DIGITS: Final = 19
"""Digits of the largest sequence number."""
_ACCEPTED: Final = "give messages, sequence numbers, a group, or a frame or row with the column sequence_number"


def chosen(choice: Choice, address: EntityAddress) -> list[ReceivedMessage | int]:
    """Return the messages that a user means, or where only those are known, their sequence numbers."""
    return list(_each(choice, address))


def check_choice(choice: Choice | None, where: str | None) -> None:
    if (choice is None) is (where is None):
        raise ConfigurationError(f"Choose the messages by where=…, or {_ACCEPTED}.")


def chosen_of(
    held: Iterable[M], choice: Choice, address: EntityAddress, kind: type[M], lost: Iterable[M] = ()
) -> list[M]:
    """Return the messages that a user means, by default the held ones; ``lost`` ones can be meant by number, too."""
    if choice is None:
        return list(held)
    by_number = {message.sequence_number: message for message in (*lost, *held)}
    found: list[M] = []
    missing: list[int] = []
    for each in chosen(choice, address):
        number = each if isinstance(each, int) else each.sequence_number
        one = each if isinstance(each, kind) else by_number.get(number)
        if one is None:
            missing.append(number)
        else:
            found.append(one)
    if missing:
        raise DecisionError(
            f"The batch does not hold {len(missing):,} of the chosen messages, so nothing was done: "
            f"#{missing[0]} is the first."
        )
    return found


def _each(choice: Choice, address: EntityAddress) -> Iterator[ReceivedMessage | int]:
    choice = _as_table(choice)
    if isinstance(choice, ReceivedMessage):
        yield choice
    elif isinstance(choice, (pa.Table, pa.RecordBatch)):
        yield from _of_columns(choice, address)
    elif isinstance(choice, Group):
        yield from _each(choice.messages, address)
    elif _COLUMN in choice if isinstance(choice, Mapping) else hasattr(choice, _COLUMN):
        yield from _of_row(choice, address)
    elif isinstance(choice, Iterable) and not isinstance(choice, (str, bytes, Mapping)):
        for item in choice:  # pyright: ignore[reportUnknownVariableType]
            yield from _each(item, address)
    else:
        yield _number(choice)  # pyright: ignore[reportUnknownArgumentType]


def _as_table(choice: Choice) -> Choice:
    module = type(choice).__module__.partition(".")[0]
    if module == "pyspark" and hasattr(choice, "toArrow"):
        return collect_spark_frame(choice.select(*(name for name in choice.columns if name in ("entity", _COLUMN))))
    if module == "pandas" and hasattr(choice, "columns"):
        names = [name for name in ("entity", _COLUMN) if name in choice.columns]
        return pa.table({name: choice[name].tolist() for name in names})
    return choice


def _of_columns(table: pa.Table | pa.RecordBatch, address: EntityAddress) -> Iterator[int]:
    columns: Any = table
    if _COLUMN not in columns.schema.names:
        raise ConfigurationError(f"The frame has no column sequence_number: {_ACCEPTED}.")
    if "entity" in columns.schema.names:
        for entity in columns.column("entity").unique().to_pylist():
            _check(entity, address)
    yield from map(_number, columns.column(_COLUMN).to_pylist())


def _of_row(row: Any, address: EntityAddress) -> Iterator[int]:
    fields: Any = row
    if not isinstance(row, Mapping):
        fields = {"entity": getattr(row, "entity", None), _COLUMN: row.sequence_number}
    _check(fields.get("entity"), address)
    yield _number(fields[_COLUMN])


def _check(entity: object, address: EntityAddress) -> None:
    if isinstance(entity, (str, EntityAddress)) and entity and EntityAddress.parse(entity) != address:
        raise DecisionError(
            f"Some of the chosen messages are in {str(entity)[:260]}, and not in {address}: choose them in the entity "
            "that they are in."
        )


def _number(value: object) -> int:
    """Return a sequence number, also one that a frame turned into a float or a text."""
    try:
        if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_FLOATS:
            return int(value)
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS:
            return int(value)
        if not isinstance(value, bool):
            return index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        pass
    raise DecisionError(f"{str(value)[:40]!r} is not a sequence number: {_ACCEPTED}.")


EMULATOR: Final = "emulator"
_SECRET_PARTS: Final = frozenset({"sharedaccesskey", "sharedaccesssignature"})
ENVIRONMENT_VARIABLES: Final = ("SBNOTEBOOK_CONNECTION", "SERVICEBUS_CONNECTION_STRING")
_CONNECTION_STRING, _HOST_NAME = "a connection string", "a host name"
_HOST: Final = re.compile(r"(?i:(?<![a-z0-9-])[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9-]+)+)")
_PREFIXES: Final = {
    "env": re.compile(r"[^\W\d]\w*"),
    "secret": re.compile(r"[^/]+/.+", re.DOTALL),
    "credential": re.compile(rf"[^@;=]+@{_HOST.pattern}"),
}
"""The form of the text behind each prefix."""
_WRITTEN: Final = {
    "env": "An environment variable is written env:VARIABLE, by its name.",
    "secret": "A Databricks secret is written secret:SCOPE/KEY.",
    "credential": "A service credential is written credential:NAME@HOST, where HOST is "
    "NAMESPACE.servicebus.windows.net.",
}
"""The sentence for another text, which it does not show: that may be a secret."""
_LONGEST_NAME: Final = 50
_SHOWN: Final = 80
_FORM: Final = (
    "emulator, NAMESPACE.servicebus.windows.net, env:VARIABLE, secret:SCOPE/KEY, credential:NAME@HOST or, in Python "
    "only, a connection string"
)


@dataclass(frozen=True, slots=True)
class Target:
    connection: Connection
    found_by: str


@dataclass(frozen=True, slots=True)
class NamespaceTarget:
    """A target for other processes, which is resolved in each process that connects.

    It alone pickles a connection string, because Spark's tasks need it. Spark shows the bytes of a task nowhere.
    """

    text: Hidden
    machine: str

    def __init__(self, text: str | Hidden, machine: str | None = None) -> None:
        object.__setattr__(self, "text", hidden(text))
        object.__setattr__(self, "machine", machine or socket.gethostname())

    def __reduce__(self) -> tuple[type[NamespaceTarget], tuple[str, str]]:
        return NamespaceTarget, (self.text.reveal(), self.machine)

    @classmethod
    def of(cls, connection: Connection) -> Self:
        if connection.parsed is not None:
            return cls(connection.parsed.text)
        credential = connection.credential
        name = f"credential:{credential.name}@" if isinstance(credential, ServiceCredential) else ""
        return cls(f"{name}{connection.host}")

    @property
    def secrets(self) -> tuple[str, ...]:
        return secrets_of(self.text)

    def connection(self) -> Connection:
        if _form(self.text) == EMULATOR and self.machine != socket.gethostname():
            raise ConfigurationError(
                "The emulator runs on the machine of Spark's driver only, and a worker on another machine needs it: "
                "use a local Spark, or a namespace in Azure."
            )
        connection = resolve(self.text, allow_remote=True).connection
        connection.has_answered = True  # where this was made
        connection.read_only = False  # a frame that is written, or a stream that consumes, says so by itself
        return connection


def secrets_of(target: str | Hidden) -> tuple[str, ...]:
    """Return the texts of a target that must not be shown: the connection string and its keys, the longest first."""
    text = hidden(target).reveal()
    parts = [part.partition("=") for part in text.split(";")]
    # Without the padding, which is easily cut off a key in a text; padding alone reveals nothing.
    keys = [value.strip().rstrip("=") for name, _, value in parts if name.strip().lower() in _SECRET_PARTS]
    found = {text, *keys} if "=" in text else set(keys)
    found |= {quote(each, safe="") for each in found}  # as in a URL
    return tuple(sorted(filter(None, found), key=len, reverse=True))


class ServiceCredential:
    """A service credential of Unity Catalog, for which Databricks gives tokens: nothing secret is in an option.

    A notebook gets a provider from ``dbutils.credentials``, and a Spark task from ``databricks.service_credentials``,
    which needs the task's context. Source: Databricks' documentation, "Use Unity Catalog service credentials to connect
    to external cloud services" (Runtime 16.2 or newer, no SQL warehouses).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._provider = _provider(name)

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        """Return a token, from a thread: the provider's own call waits."""
        return await anyio.to_thread.run_sync(partial(self._provider.get_token, *scopes, **options))

    async def close(self) -> None:
        """Do nothing: Databricks owns the provider."""


def _provider(name: str) -> Any:
    failed: Exception | None = None
    for credentials in _credentials():
        try:
            return credentials.getServiceCredentialsProvider(name)
        except Exception as error:  # noqa: BLE001 (it may come from Java, or for want of a task)
            failed = error
    if failed is None:
        raise ConfigurationError(
            f"There are no service credentials of Unity Catalog in this process, so {name[:_SHOWN]!r} cannot be used: "
            "they need Databricks Runtime 16.2 or newer, and a notebook or a Spark task."
        )
    words = explained(failed).partition("\n")[0][:200]
    raise ConfigurationError(
        f"Databricks gave this process no service credential {name[:_SHOWN]!r}, which needs the privilege ACCESS: "
        f"{words}"
    )


def _credentials() -> list[Any]:
    """Return what may give a provider: the module of tasks, and the dbutils of a notebook or of Databricks' SDK."""
    found: list[Any] = []
    with suppress(ImportError):
        found.append(import_module("databricks.service_credentials"))
    dbutils = notebook_variable("dbutils")
    if dbutils is None:
        with suppress(Exception):  # it may find no workspace
            dbutils = import_module("databricks.sdk.runtime").dbutils
    return found if dbutils is None else [*found, dbutils.credentials]


def refuse_secret(target: str | Hidden | None) -> None:
    target = hidden(target)
    if target is not None and _form(target) == _CONNECTION_STRING:
        raise ConfigurationError(
            "A connection string on the command line is visible to other users of this machine, and stays in the "
            "shell's history: put it into an environment variable and give env:VARIABLE."
        )


def resolve(target: str | Hidden | None = None, credential: Any = None, *, allow_remote: bool = False) -> Target:
    target = hidden(target)
    if target is None:
        return _default(credential, allow_remote=allow_remote)
    # The error never repeats the text, which may be a secret.
    form = _form(target)
    if credential is not None and form in (EMULATOR, _CONNECTION_STRING, "secret", "credential"):
        raise ConfigurationError(
            "A credential goes with a host name, NAMESPACE.servicebus.windows.net. The emulator and connection strings "
            "have a key of their own: leave the credential out, or give the host name."
        )
    if form == EMULATOR:
        return Target(_emulator(), "local emulator")
    if form == _CONNECTION_STRING:
        return Target(Connection(target, allow_remote=allow_remote), "a connection string")
    if form == "env":
        return _from_environment(_rest(target, form).reveal(), credential, allow_remote=allow_remote)
    if form == "secret":
        secret = _databricks_secret(*_rest(target, form).reveal().split("/", 1))
        return Target(Connection(secret, allow_remote=allow_remote), "a Databricks secret")
    if form in (_HOST_NAME, "credential"):
        return _of_host(target, form, credential)
    raise ConfigurationError(_unknown(target.reveal().strip()))


def _of_host(target: Hidden, form: str, credential: Any) -> Target:
    if form == _HOST_NAME:
        return Target(Connection.with_credential(target.reveal().strip(), credential), "Microsoft Entra ID")
    name, _, host = _rest(target, form).reveal().rpartition("@")
    return Target(Connection.with_credential(host, ServiceCredential(name)), "a service credential of Unity Catalog")


def _unknown(text: str) -> str:
    """Return why a text is not a target, and the near match; without the text itself, which may be a secret."""
    host = _host_in(text)
    if host is not None:
        return f"A namespace is written as its host name alone: did you mean {host}?"
    if near_match(text, (EMULATOR,)):
        return f"The target is {_FORM}: did you mean emulator?"
    if near_match(text, ENVIRONMENT_VARIABLES):
        return f"An environment variable is written env:VARIABLE: did you mean env:{ENVIRONMENT_VARIABLES[0]}?"
    if text.isascii() and text.replace("-", "").isalnum() and len(text) <= _LONGEST_NAME:
        return f"A namespace is written as its whole host name: did you mean {text}.servicebus.windows.net?"
    return f"The target is {_FORM}."


def _host_in(text: str) -> str | None:
    try:
        host = urlsplit(text if "://" in text else f"//{text}").hostname or ""
    except ValueError:
        return None
    return host if ".servicebus." in host and _HOST.fullmatch(host) else None


def _form(target: Hidden) -> str:
    """Return the form of a target, or its prefix; the empty text for none."""
    text = target.reveal().strip()
    if text.lower() == EMULATOR:
        return EMULATOR
    if "endpoint=" in text.lower():
        return _CONNECTION_STRING
    prefix, colon, _ = text.partition(":")
    if colon and prefix in _PREFIXES:
        return prefix
    return _HOST_NAME if _HOST.fullmatch(text) else ""


def _rest(target: Hidden, prefix: str) -> Hidden:
    rest = Hidden(target.reveal().strip().partition(":")[2])
    if not _PREFIXES[prefix].fullmatch(rest.reveal()):
        raise ConfigurationError(_WRITTEN[prefix])
    return rest


def _default(credential: Any, *, allow_remote: bool) -> Target:
    for variable in ENVIRONMENT_VARIABLES:
        if os.environ.get(variable):
            return _from_environment(variable, credential, allow_remote=allow_remote)
    if credential is not None:
        raise ConfigurationError('A credential needs a host name: connect("NAMESPACE.servicebus.windows.net", …).')
    return Target(_emulator(), f"local emulator (neither {' nor '.join(ENVIRONMENT_VARIABLES)} is set)")


def _from_environment(variable: str, credential: Any, *, allow_remote: bool) -> Target:
    value = Hidden(os.environ.get(variable, ""))
    if not value.reveal().strip():
        raise ConfigurationError(f"The environment variable {variable[:80]} is not set: set it before Python starts.")
    if _form(value) == "env":
        raise ConfigurationError(f"The environment variable {variable[:80]} names another variable.")
    found = resolve(value, credential, allow_remote=allow_remote)
    return Target(found.connection, f"the environment variable {variable}")


def _emulator() -> Connection:
    from sbnotebook.emulator.process import ensure_running

    return Connection(Hidden(ensure_running()))


def _databricks_secret(scope: str, key: str) -> Hidden:
    dbutils = notebook_variable("dbutils")
    if dbutils is None:
        raise ConfigurationError("There is no dbutils here: secret:SCOPE/KEY works in a Databricks notebook only.")
    try:
        return Hidden(str(dbutils.secrets.get(scope, key)))
    except Exception as error:  # any form that the compute gives an error in Java
        raise ConfigurationError(
            "Databricks gave no secret of this name: dbutils.secrets.list(SCOPE) shows those that you may read."
        ) from error


def notebook_variable(name: str) -> Any:
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return shell.user_ns.get(name) if shell is not None else None


# ---------------------------------------------------------------- what a connection is


@dataclass(frozen=True, slots=True)
class About:
    """The host, tier, identity and rights of a connection. Shown as a few lines; it holds no secret."""

    host: str
    is_emulator: bool
    tier: str | None
    signed_in_as: str
    is_confirmed: bool
    found_by: str
    read_only: bool

    def __repr__(self) -> str:
        head, *rows = self._rows()
        return "\n".join(f"{name:14}{tables.printable(value)}" for name, value in (head, *rows))

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        return tables.html_table(head, rows)

    def _rows(self) -> list[tuple[str, str]]:
        kind = ", ".join(filter(None, ("emulator" if self.is_emulator else "Azure", self.tier)))
        if self.read_only:
            writing = "off: nothing can be changed; %sb_connect --write turns it on"
        else:
            writing = "on" if self.is_emulator else "on: %sb_connect --read-only turns it off"
        still = "" if self.is_confirmed else "; the sign-in is checked at the first use"
        return [
            ("Connected to", f"{self.host} ({kind}){still}"),
            ("signed in as", self.signed_in_as),
            ("source", self.found_by),
            ("writing", writing),
        ]


async def about(connection: Connection, found_by: str) -> About:
    signed_in, tier = await sign_in(connection), None
    # A user without the right to ask is connected nevertheless, and soon.
    with anyio.move_on_after(2), suppress(Exception):
        tier = await tier_of(connection)
    return About(
        connection.host,
        connection.is_emulator,
        tier,
        signed_in.name,
        signed_in.is_confirmed,
        found_by,
        connection.read_only,
    )
