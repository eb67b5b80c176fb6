"""Magics that connect to a namespace, list and create its entities, and share the connection with an assistant."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import StdinNotImplementedError
from IPython.core.magic_arguments import argument
from IPython.display import display

from sbnotebook.analysis.tables import Shown, Table
from sbnotebook.client import Namespace
from sbnotebook.client.assistant import Assistant, Sharing
from sbnotebook.client.dead_letters import choose_entities
from sbnotebook.client.targets import duration
from sbnotebook.emulator import QueueOptions
from sbnotebook.emulator.entities.options import options_of
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import INTO, MAYBE_ENTITY, MagicArguments, option
from sbnotebook.magics.current import Current, say
from sbnotebook.magics.plan_magics import command
from sbnotebook.model import EntityAddress
from sbnotebook.model.connection_strings import Hidden, scrub
from sbnotebook.model.durations import duration_text
from sbnotebook.settlement import EntityCounts

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_LITERAL: Final = re.compile(
    r'(?<!\\)(?:"""(?P<a>(?:\\.|(?!""")[^\\])*+)"""|' + r"'''(?P<b>(?:\\.|(?!''')[^\\])*+)'''|"
    r'"(?P<c>(?:\\.|[^"\\\n])*+)"|' + r"'(?P<d>(?:\\.|[^'\\\n])*+)')",
    re.DOTALL,
)
_LITERAL_OR_CALL: Final = re.compile(rf"{_LITERAL.pattern}|Credential\s*\(|[()]", re.DOTALL)
_JOINED: Final = re.compile(r"(?:format|join|[\s+\\()\[\],.%rbfuRBFU]|#[^\n]*\n)*+")
"""The code between the literals of one text: nothing, +, str.join, str.format or %."""
_KEY: Final = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{43}=(?![A-Za-z0-9+/=])")
"""A shared access key of Service Bus: 32 bytes in base64."""
_INPUT: Final = re.compile(r"_i+|_i\d+")
"""IPython's variables with the input."""
_LOOKED_BACK: Final = 400
"""Characters; the name of a key and the key are shorter."""


def keep_secrets_out(shell: InteractiveShell) -> None:
    """Keep keys out of a shell's history and out of its tracebacks.

    A cell is in the history before it runs, so it is cleaned on the way there: ``In``, ``_i``, ``%history`` and the
    history file never have the key. Earlier cells of this session are cleaned now.
    """
    untyped: Any = shell
    show = untyped._showtraceback  # noqa: SLF001 (IPython: "Subclasses may override this")

    def show_traceback(kind: Any, error: Any, lines: list[str]) -> None:
        show(kind, error, [_without_named_keys(line) for line in lines])

    untyped._showtraceback = show_traceback  # noqa: SLF001
    manager: Any = shell.history_manager
    if manager is None:
        return
    store = manager.store_inputs

    def store_inputs(line_num: int, source: str, source_raw: str | None = None) -> None:
        store(line_num, without_keys(source), None if source_raw is None else without_keys(source_raw))

    manager.store_inputs = store_inputs
    _clean_session(manager, untyped.user_ns)


def without_keys(source: str) -> str:
    """Return a cell without the keys of connection strings and the literals of credentials.

    A key may be spread over several literals. A key of its own is known by its length of 44 characters.
    """
    parts: list[str] = []
    end = 0
    for first, last in sorted({*_spread_over_literals(source), *_of_credentials(source)}):
        parts += [source[end:first], "***"]
        end = last
    return _without_named_keys("".join([*parts, source[end:]]))


def _without_named_keys(text: str) -> str:
    return _KEY.sub("***", scrub(text))


def _spread_over_literals(source: str) -> Iterator[tuple[int, int]]:
    """Yield where the literals are that hold a part of a key which begins in the literal before."""
    before, end = "", 0
    for literal in _LITERAL.finditer(source):
        span = literal.span(literal.lastgroup or 0)
        text = source[slice(*span)].replace("\\\n", "")
        if _JOINED.fullmatch(source, end, literal.start()) is None:
            before = ""
        is_cut = len(text) < span[1] - span[0]
        if _without_named_keys(before + text) != _without_named_keys(before) + (
            text if is_cut else _without_named_keys(text)
        ):
            yield span
        before, end = (before + text)[-_LOOKED_BACK:], literal.end()


def _of_credentials(source: str) -> Iterator[tuple[int, int]]:
    depth = begun = 0  # how deep in parentheses, and where the credential's own began
    for token in _LITERAL_OR_CALL.finditer(source):
        if token.lastgroup is not None:
            if begun:
                yield token.span(token.lastgroup)
        elif token[0] == ")":
            depth = max(0, depth - 1)
            begun = begun if depth >= begun else 0
        else:
            depth += 1
            begun = begun or (depth if token[0] != "(" else 0)


def _clean_session(manager: Any, variables: dict[str, Any]) -> None:
    """Clean what this session typed before: in memory, in the user's variables and in the history file."""
    manager.writeout_cache()
    for number, (source, raw) in enumerate(zip(manager.input_hist_parsed, manager.input_hist_raw, strict=False)):
        clean = without_keys(source), without_keys(raw)
        if clean == (source, raw):
            continue
        manager.input_hist_parsed[number], manager.input_hist_raw[number] = clean
        if manager.db is not None and hasattr(manager.db, "execute"):
            with manager.db:
                manager.db.execute("PRAGMA secure_delete = ON")
                manager.db.execute(
                    "UPDATE history SET source = ?, source_raw = ? WHERE session = ? AND line = ?",
                    (*clean, manager.session_number, number),
                )
    for name in [name for name in variables if _INPUT.fullmatch(name)]:
        variables[name] = without_keys(str(variables[name]))
    for name in ("_i", "_ii", "_iii", "_i00"):
        setattr(manager, name, without_keys(getattr(manager, name)))


_COLUMNS: Final = ("entity", "kind", "active", "scheduled", "dead_letter", "transfer_dead_letter", "size_bytes")
_LOCK, _DELIVERIES = (options_of(QueueOptions)[name] for name in ("LockDuration", "MaxDeliveryCount"))


class Entities(Shown, list[EntityCounts]):
    _one_line = False

    def _table(self, most: int) -> Table:  # noqa: ARG002 (all rows)
        rows = [[counts.address, *(getattr(counts, name) for name in _COLUMNS[1:])] for counts in self]
        none = "There are no entities in this namespace: %sb_create queue orders creates a queue."
        return _COLUMNS, rows, "" if self else none


@command(
    argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="emulator, NAMESPACE.servicebus.windows.net, env:VARIABLE, secret:SCOPE/KEY or credential:NAME@HOST",
    ),
    option("-p, --prompt", "ask for a connection string, without showing it"),
    option("--read-only", "turn writing off (the default on Azure)"),
    option("--write", "allow writes (the default on an emulator). Without TARGET: on the current connection"),
    INTO,
)
def sb_connect(current: Current, args: MagicArguments) -> Namespace | None:
    """Connect to a namespace, sign in, and show its host, the identity, and whether writing is on.

    It closes the connection before. Without TARGET, it reads SBNOTEBOOK_CONNECTION, or else
    SERVICEBUS_CONNECTION_STRING, from the environment. If neither is set, it starts the emulator on this machine.
    Keep a connection string in an environment variable or a secret, or use --prompt: the notebook would keep
    one that you type here. On Azure, writing is off until you give --write.

    Example::

        %sb_connect emulator
        %sb_connect env:SBNOTEBOOK_CONNECTION --read-only
        %sb_connect --write --into namespace
    """
    if args.prompt and args.target:
        raise ConfigurationError("Give a target or --prompt, not both.")
    if args.read_only and args.write:
        raise ConfigurationError("Give --read-only or --write, not both.")
    if current.is_connected:
        current.release_and_say()
    write = args.write if args.read_only or args.write else None
    if write is not None and current.is_connected and not (args.target or args.prompt):
        namespace = current.reconnect(write=write)
    else:
        namespace = current.connect(_prompted() if args.prompt else args.target, write=write)
    display(current.about)
    return namespace if args.into else None


@command(
    MAYBE_ENTITY,
    option("--sessions", "with ENTITY: list its sessions with messages or a state"),
    INTO,
)
def sb_entities(current: Current, args: MagicArguments) -> Entities | list[str]:
    """Show the entities of the namespace, or one, with their counts; or the sessions of one.

    The counts take a management operation for each entity: do not run this often. %sb_peek ENTITY --session NAME
    looks into a session, and %sb_lock ENTITY --session NAME locks it.

    Example::

        %sb_entities
        %sb_entities trips --sessions
    """
    if args.entity is None:
        if args.sessions:
            raise ConfigurationError("Name the entity of the sessions: %sb_entities ENTITY --sessions.")
        return Entities(current.namespace.entities())
    if args.sessions:
        return current.namespace.entity(args.entity).sessions()
    address = EntityAddress.parse(args.entity)
    listed = current.namespace.entities(topics=[address.name])
    return Entities(choose_entities(listed, [address.entity]))


@command(
    argument("kind", metavar="KIND", choices=("queue", "topic", "subscription"), help="queue, topic or subscription"),
    argument("name", metavar="NEW", help="name, for a subscription such as events/subscriptions/audit"),
    option(
        "--lock-duration DURATION",
        f"duration of a lock, {_LOCK.values} (default {duration_text(_LOCK.default / 1000)})",
    ),
    option(
        "--max-delivery-count N",
        f"deliveries before a message is dead-lettered (default {_DELIVERIES.default})",
    ),
    option("--requires-session", "require a session for each message"),
)
def sb_create(current: Current, args: MagicArguments) -> None:
    """Create a queue, a topic or a subscription.

    Example::

        %sb_create queue returns --lock-duration 2m
        %sb_create topic events
        %sb_create subscription events/subscriptions/audit
    """
    place = EntityAddress.parse(args.name)
    wanted = EntityAddress(place.name, place.subscription)
    if place != wanted or (place.subscription is None) == (args.kind == "subscription"):
        example = "events/subscriptions/audit" if args.kind == "subscription" else "orders"
        near = args.name.replace("/", "/subscriptions/", 1) if args.kind == "subscription" else ""  # of events/audit
        raise ConfigurationError(
            f"A {args.kind} is written like {example}" + (f": did you mean {near}?" if "/" in near else ".")
        )
    given = {
        "lock_duration": duration(args.lock_duration),
        "max_delivery_count": args.max_delivery_count,
        "requires_session": args.requires_session,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    QueueOptions(**options)  # refuses what Service Bus refuses, before it is asked
    namespace = current.namespace
    if args.kind == "topic":
        if options:
            raise ConfigurationError("A topic has no locks and sessions: give these options to its subscriptions.")
        namespace.create_topic(place.name)
    elif place.subscription is not None:
        namespace.create_subscription(place.name, place.subscription, **options)
    else:
        namespace.create_queue(place.name, **options)
    say(f"Created the {args.kind} {wanted}.")


@command(
    option("--may-plan", "let it make plans, which run after you have confirmed them"),
    option("--show-bodies", "show it bodies and properties without masks"),
    option("--calls", "show the calls of assistants, which the journal keeps"),
    option("--stop", "stop sharing"),
    INTO,
)
def sb_assistant(current: Current, args: MagicArguments) -> Any:
    """Share the connection of this notebook with an assistant, which can look at messages, and cannot act.

    The assistant is a client of the Model Context Protocol on this machine. Bodies and properties are masked. With
    --may-plan it can propose plans. %sb_confirm confirms one.

    Example::

        %sb_assistant
        %sb_assistant --may-plan
        %sb_assistant --calls
        %sb_assistant --stop
    """
    if args.calls:
        import pandas as pd

        return pd.DataFrame(current.namespace.assistant_calls.last())
    if current.sharing is not None:
        current.sharing.close()
        current.sharing = None
    if args.stop:
        say("The connection is not shared any more.")
        return None
    current.namespace.identity()  # says so if there is no connection
    assistant = Assistant(lambda: current.namespace, may_plan=args.may_plan, show_bodies=args.show_bodies)
    current.sharing = Sharing(assistant)
    may = "look and propose plans: %sb_confirm shows them" if args.may_plan else "look only"
    say(
        'Shared with clients of MCP on this machine: give one the server {"command": "sbnotebook", "args": ["mcp", '
        f'"--notebook"]}}. It may {may}.'
    )
    return None


@command(argument("digest", nargs="?", metavar="DIGEST", help="digest of a plan (default: show those that wait)"))
def sb_confirm(current: Current, args: MagicArguments) -> None:
    """Confirm a plan of an assistant, which may then apply it once, within ten minutes after it was made.

    It runs only if its messages and the namespace are still as they were.

    Example::

        %sb_confirm
        %sb_confirm 0f17e6e44b37ec0e
    """
    if current.sharing is None:
        raise ConfigurationError("The connection is not shared with an assistant: run %sb_assistant --may-plan.")
    assistant = current.sharing.assistant
    if args.digest is not None:
        display(assistant.proposal(args.digest).plan)
        say(f"Confirmed: {assistant.confirm(args.digest)} The assistant may apply it now, once.")
        return
    waiting = assistant.waiting()
    for each in waiting:
        display(each.plan)
        say(f"%sb_confirm {each.digest}{' (confirmed)' if each.confirmed else ''}")
    if not waiting:
        say("No plan waits.")


def _prompted() -> Hidden:
    try:
        return Hidden(getpass.getpass("Connection string: "))
    except (EOFError, StdinNotImplementedError):
        raise ConfigurationError("This kernel cannot prompt: use env:VARIABLE or secret:SCOPE/KEY.") from None
