"""Plans as runnable text, so that clicks in a panel become a runbook: a cell with a magic, or Python.

Texts of a plan may come from messages, which are hostile input. A magic would evaluate ``{…}`` in them, so a magic gets
plain texts only, and Python gets all texts as literals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final, cast

from sbnotebook.client.targets import EMULATOR
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import (
    Abandon,
    BodyType,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    Message,
    MessageState,
    Resubmit,
    Send,
    Undo,
)
from sbnotebook.model.decision import CancelScheduled, Purge
from sbnotebook.model.durations import duration_text
from sbnotebook.model.schema import SENT_COLUMNS, columns_of, message_from_row
from sbnotebook.settlement import Plan, Ramp

_PLAIN: Final = re.compile(r"[\w .,:;/()@#%&+=!?-]{1,200}", re.ASCII)
"""A text that a magic takes as it is, in quotes."""
_PICKS: Final = (Complete, DeadLetter, Abandon, Defer)
_LONGEST_CHOICE: Final = 15_000
"""Characters of an expression that chooses messages; an expression of 20,000 is refused."""
_MOST_SENT, _MOST_CHARACTERS = 100, 100_000
"""New messages in code, and their characters."""
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_EDIT: Final = "# Define the function edit(message) first: it is not part of the plan."
_HELD: Final = "# Release the messages first: this plan was made while a kernel held them, and locks them again."
_VERBS: Final[dict[type, str]] = {
    CancelScheduled: "entity.cancel_scheduled",
    Resubmit: "entity.resubmit",
    Send: "entity.plan_send",
    Undo: "ns.undo",
}
_OTHER: Final = "elsewhere"
"""The variable of the entity in another namespace."""
_IMPORTS: Final = {
    "datetime.fromisoformat(": "from datetime import datetime",
    "timedelta(": "from datetime import timedelta",
}


def cell_of(plan: Plan, sent: Sequence[Message], rate: float | None, ramp: Ramp | None) -> str:
    """Return a plan as a cell with a magic; as Python where no magic says the same."""
    _check(plan, sent)
    words = _magic(plan)
    if words is None:
        return python_of(plan, sent, rate, ramp)
    paced = [] if rate is None else ["--rate", f"{rate:g}"]
    before = ["import sbnotebook", *_elsewhere(plan)] if _elsewhere(plan) else []
    lines = [*_remarks(plan), *before, " ".join([*words, *_ramp_words(ramp), *paced])]
    return "\n".join(lines) + "\n"


def python_of(
    plan: Plan, sent: Sequence[Message], rate: float | None, ramp: Ramp | None, target: str | None = None
) -> str:
    """Return a plan as Python that makes it again, shows it, and applies it; ``sent`` are the messages of a send."""
    _check(plan, sent)
    made = [*_elsewhere(plan), *_messages(plan, sent), f"plan = {_call(plan)}{_ramp_call(ramp)}"]
    code = "\n".join(made)
    imports = [line for name, line in _IMPORTS.items() if name in code]
    lines = [
        *imports,
        *([""] if imports else []),
        "import sbnotebook",
        "",
        *_remarks(plan),
        f"ns = {_connect(target)}",
        *([] if isinstance(plan.decision, Undo) else [f"entity = ns.entity({str(plan.entity)!r})"]),
        *made,
        "print(plan.preview())",
        f"report = plan.apply({'' if rate is None else f'rate={rate!r}'})",
        "report.raise_for_failures()",
    ]
    return "\n".join(lines) + "\n"


def _connect(target: str | None) -> str:
    """Return the call that connects to a target for writing; None for the one that the environment names."""
    named = [] if target is None else [repr(target)]
    return f"sbnotebook.connect({', '.join([*named, *([] if target == EMULATOR else ['write=True'])])})"


def _check(plan: Plan, sent: Sequence[Message]) -> None:
    decision, messages = plan.decision, plan.messages
    if not isinstance(decision, (*_PICKS, Resubmit, Purge, CancelScheduled, Send, Undo)):
        raise DecisionError(
            f"A plan to {decision.verb} has no code: it is on the locks of this kernel, or decides on each message."
        )
    is_by_age = isinstance(decision, Purge) and decision.before is not None
    if not (messages or sent or is_by_age):
        raise DecisionError("The plan has no messages, so there is no code for it.")
    if len(sent) > _MOST_SENT:
        raise DecisionError(
            f"A plan to send more than {_MOST_SENT} messages has no code: send the frame or the file of the messages."
        )


def _remarks(plan: Plan) -> list[str]:
    """Return comments on what the code does not do."""
    is_held = any(isinstance(message, LockedMessage) for message in plan.messages)
    return [*([_HELD] if is_held else []), *([_EDIT] if plan.edit is not None else [])]


def _elsewhere(plan: Plan) -> list[str]:
    """Return the line that connects to the destination, if it is in another namespace."""
    decision = plan.decision
    if not isinstance(decision, Resubmit) or decision.to_host is None:
        return []
    host = (
        "emulator" if decision.to_host.rpartition(":")[0] in _LOCAL or decision.to_host in _LOCAL else decision.to_host
    )
    return [f"{_OTHER} = {_connect(host)}.entity({str(decision.to or plan.entity.sends_to)!r})"]


def _messages(plan: Plan, sent: Sequence[Message]) -> list[str]:
    """Return the lines that name or make the messages."""
    if isinstance(plan.decision, Undo):
        return _removed(plan)
    if not sent:
        return [f"messages = {_numbers_in_python(_numbers(plan))}"]
    made = [f"    {_row_literal(message)}," for message in sent]
    if sum(map(len, made)) > _MOST_CHARACTERS:
        raise DecisionError("The messages of this plan are too large for code: send the frame or the file of them.")
    return ["messages = [", *made, "]"]


def _removed(plan: Plan) -> list[str]:
    """Return the lines that name removed messages, as a report would."""
    ordered = sorted(plan.messages, key=lambda message: (str(message.entity), message.sequence_number))
    places = [
        f"    {entity!r}: {_numbers_in_python([message.sequence_number for message in found])},"
        for entity, found in groupby(ordered, key=lambda message: str(message.entity))
    ]
    outcome = "sbnotebook.Outcome(settled, 'complete', sbnotebook.EntityAddress.parse(entity), number)"
    return [
        "settled = sbnotebook.OutcomeStatus.SETTLED",
        "removed = {",
        *places,
        "}",
        f"messages = [{outcome} for entity, numbers in removed.items() for number in numbers]",
    ]


def _numbers(plan: Plan) -> list[int]:
    return sorted(message.sequence_number for message in plan.messages)


def _ranges(numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Yield the first and last number of each run of consecutive numbers."""
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        yield found[0], found[-1]


def _numbers_in_python(numbers: Sequence[int]) -> str:
    said: list[str] = []
    for first, last in _ranges(numbers):
        is_long = last > first + 1
        said += [f"*range({first}, {last + 1})"] if is_long else [str(number) for number in range(first, last + 1)]
    return f"[{', '.join(said)}]"


def _choice(plan: Plan) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in _ranges(_numbers(plan)))


def _time(purge: Purge) -> str:
    return "" if purge.before is None else purge.before.isoformat()


def _expression(plan: Plan) -> str:
    terms = [f"sequence_number between {first} and {last}" for first, last in _ranges(_numbers(plan))]
    text = " or ".join(terms)
    if len(text) > _LONGEST_CHOICE:
        raise DecisionError("The messages of this purge have too many gaps for code: purge by an expression.")
    return text


# ---------------------------------------------------------------- a magic


def _magic(plan: Plan) -> list[str] | None:
    """Return the words of a magic; None where no magic says the same."""
    unusual = {name for name in plan.options if not (isinstance(plan.decision, Purge) and name == "archived")}
    if isinstance(plan.decision, (Send, Undo)) or unusual:
        return None
    entity, decision, chosen = str(plan.entity), plan.decision, ["--messages", _choice(plan)]
    match decision:
        case Resubmit():
            words = _resubmit_words(decision)
            return ["%sb_resubmit", entity, *chosen, *words, *(["--edit", "edit"] if plan.edit else [])]
        case Purge():
            kept = ["--no-archive"] if plan.options else []
            chosen = ["--where", f'"{_expression(plan)}"'] if decision.before is None else ["--before", _time(decision)]
            return ["%sb_purge", entity, *chosen, *kept]
        case Complete() | Abandon(delay=None) | Defer(wake_after=None):
            return [_picks(plan), entity, *chosen, f"--{decision.verb}"]
        case DeadLetter(reason, description):
            named = {"--reason": reason, "--description": description}
            texts = {name: text for name, text in named.items() if text is not None}
            if not all(_PLAIN.fullmatch(text) and not text.startswith("-") for text in texts.values()):
                return None
            quoted = [word for name, text in texts.items() for word in (name, f'"{text}"')]
            return [_picks(plan), entity, *chosen, "--dead-letter", *quoted]
        case _:
            return None


def _picks(plan: Plan) -> str:
    return "%sb_deferred" if _are_deferred(plan) else "%sb_pick"


def _are_deferred(plan: Plan) -> bool:
    return all(message.state is MessageState.DEFERRED for message in plan.messages)


def _resubmit_words(decision: Resubmit) -> list[str]:
    words: list[str] = []
    for name, value in _given(decision).items():
        option = "to-entity" if isinstance(value, _Name) else name.replace("_", "-")
        if name == "atomic":
            words.append("--atomic-forward" if value == "forward" else "--atomic")
        elif value is True:
            words.append(f"--{option}")
        else:
            words += [f"--{option}", "none" if value is None else str(value)]
    return words


def _ramp_words(ramp: Ramp | None) -> list[str]:
    if ramp is None:
        return []
    words = ["--ramp", ",".join(map(str, ramp.batches)), "--watch", duration_text(ramp.watch)]
    return [*words, "--stop-at", repr(ramp.stop_at)] if ramp.stop_at else words


# ---------------------------------------------------------------- Python


def _call(plan: Plan) -> str:
    decision, verb = plan.decision, _VERBS.get(type(plan.decision))
    options = [f"{name}={value!r}" for name, value in plan.options.items()]
    if isinstance(decision, Purge):
        chosen = f"where={_expression(plan)!r}" if decision.before is None else f'before="{_time(decision)}"'
        return f"entity.purge({', '.join([chosen, *options])})"
    edit = ["edit=edit"] if plan.edit else []
    if verb is not None and not (isinstance(decision, Resubmit) and options and decision.to_host is None):
        given = [f"{name}={value!r}" for name, value in _given(decision).items()]
        return f"{verb}({', '.join(['messages', *given, *edit])})"
    made = f"sbnotebook.{type(decision).__name__}({_fields(decision)})"
    if _are_deferred(plan) and not options:
        return f"entity.deferred().plan({made}, messages)"
    return f"entity.pick({', '.join(['messages', made, *edit, *options])})"


class _Name(str):
    """A variable of the code."""

    __slots__ = ()
    __repr__ = str.__str__


def _given(decision: Decision) -> dict[str, Any]:
    """Return the fields of a decision that differ from the default, as the arguments of its verb."""
    found = {each.name: (getattr(decision, each.name), each.default) for each in fields(decision)}
    given = {name: _typed(value) for name, (value, default) in found.items() if value != default}
    if given.pop("to_host", None) is not None:
        given["to"] = _Name(_OTHER)
    return given


def _typed(value: Any) -> Any:
    """Return a value as users type it."""
    match value:
        case EntityAddress():
            return str(value)
        case timedelta():
            return duration_text(value)
        case datetime():
            return value.isoformat()
        case _:
            return value


def _ramp_call(ramp: Ramp | None) -> str:
    if ramp is None:
        return ""
    sizes = str(ramp.batches[0]) if len(ramp.batches) == 1 else repr(",".join(map(str, ramp.batches)))
    share = f", stop_at={ramp.stop_at!r}" if ramp.stop_at else ""
    return f".with_ramp({sizes}, watch={duration_text(ramp.watch)!r}{share})"


def _fields(decision: Decision) -> str:
    """Return the arguments of a decision as literals."""
    given = {each.name: getattr(decision, each.name) for each in fields(decision)}
    return ", ".join(f"{name}={_literal(value)}" for name, value in given.items() if value is not None)


# ---------------------------------------------------------------- literals


def _literal(value: Any) -> str:
    """Return a value as a literal."""
    match value:
        case timedelta():
            return f"timedelta(seconds={value.total_seconds()!r})"
        case datetime():
            return f"datetime.fromisoformat({value.isoformat()!r})"
        case EntityAddress():
            return f"sbnotebook.EntityAddress.parse({str(value)!r})"
        case dict():
            pairs = cast("dict[str, Any]", value).items()
            return f"{{{', '.join(f'{name!r}: {_literal(each)}' for name, each in pairs)}}}"
        case str():
            return repr(str(value))
        case _:
            return repr(value)


def _row_literal(message: Message) -> str:
    """Return a row of message columns that is sent as the same message."""
    values = {name: found[0] for name, found in columns_of([message]).items() if name in SENT_COLUMNS}
    row = {name: value for name, value in values.items() if value is not None and value != {}}
    if message.body_type is BodyType.DATA:
        del row["body_type"]
    as_text = {name: value for name, value in row.items() if name != "body"}
    with suppress(ConfigurationError):
        if message_from_row(as_text).body == message.body:
            return _literal(as_text)
    row.pop("body_text", None)
    return _literal(row)
