"""The names of the magics by task, and the names of other tools that lead to them."""

from __future__ import annotations

from typing import Final

from sbnotebook.errors import near_match

TASKS: Final = {
    "start": ("connect", "create", "entities"),
    "look": ("peek", "browse", "groups", "triage", "dlq", "find", "sql", "diff", "monitor"),
    "hold and settle": ("lock", "renew", "complete", "abandon", "dead_letter", "defer", "release"),
    "choose and settle": ("pick", "deferred", "purge"),
    "send": ("send", "resubmit"),
    "afterwards": ("journal", "resume", "undo"),
    "elsewhere": ("spark", "sample"),
    "assistant": ("assistant", "confirm"),
}
"""The verbs of all magics, by task."""
VERBS: Final = tuple(verb for verbs in TASKS.values() for verb in verbs)

OTHER_NAMES: Final = {
    "help": "%sb",
    "login": "%sb_connect",
    "use": "%sb_connect",
    "servicebus": "%sb",
    "service_bus": "%sb",
    "azure": "%sb",
    "count": "%sb_entities",
    "counts": "%sb_entities",
    "describe": "%sb_entities",
    "info": "%sb_entities",
    "list": "%sb_entities",
    "queues": "%sb_entities",
    "topics": "%sb_entities",
    "queue": "%sb_entities",
    "topic": "%sb_entities",
    "subscription": "%sb_entities",
    "rules": "%sb_entities",
    "sessions": "%sb_entities ENTITY --sessions",
    "session": "%sb_lock ENTITY --session ID",
    "read": "%sb_peek",
    "show": "%sb_peek",
    "get": "%sb_peek",
    "fetch": "%sb_peek",
    "messages": "%sb_peek",
    "export": "%sb_peek ENTITY --to FILE",
    "download": "%sb_peek ENTITY --to FILE",
    "save": "%sb_peek ENTITY --to FILE",
    "causes": "%sb_groups",
    "mcp": "%sb_assistant",
    "chat": "%sb_assistant",
    "search": "%sb_find",
    "trace": "%sb_find --message-id ID",
    "query": "%sb_sql",
    "report": "%sb_dlq --to FILE",
    "watch": "%sb_monitor",
    "stats": "%sb_monitor",
    "status": "%sb_monitor",
    "metrics": "%sb_monitor",
    "dashboard": "%sb_monitor",
    "receive": "%sb_lock",
    "locks": "%sb_lock",
    "consume": "%sb_lock",
    "unlock": "%sb_release",
    "deadletter": "%sb_dead_letter",
    "settle": "%sb_complete",
    "nack": "%sb_abandon",
    "reject": "%sb_dead_letter",
    "move": "%sb_resubmit",
    "forward": "%sb_resubmit",
    "redrive": "%sb_resubmit",
    "replay": "%sb_resubmit",
    "requeue": "%sb_resubmit",
    "retry": "%sb_resubmit",
    "push": "%sb_send DESTINATION NAME",
    "publish": "%sb_send",
    "schedule": "%sb_send DESTINATION TEXT --delay 5m",
    "scheduled": "%sb_peek ENTITY --state scheduled",
    "history": "%sb_journal --fates",
    "note": "%sb_journal --note FINGERPRINT TEXT",
    "notes": "%sb_journal",
    "restore": "%sb_undo",
    "copy": "%sb_sample",
    "import": "%sb_send",
    "df": "%sb_spark",
    "load": "%sb_spark",
    "stream": "%sb_spark",
}
"""Names that sbnotebook had, that other tools have, or that new users try. None leads to a removal."""

REMOVALS: Final = ("delete", "remove", "clear", "drop", "empty", "erase", "destroy", "wipe", "force")
"""Beginnings of names that suggest nothing: a similar name may be another removal than you mean."""
_SHOWN: Final = 60


def about_name(name: str) -> str:
    """Return that there is no magic of a name, and which one it may mean."""
    verb = name.lower().removeprefix("sb").lstrip("_ ").replace("-", "_")
    if verb in VERBS:  # as a cell
        return f"%%{name} takes no cell: write it on one line, %sb_{verb}."
    near = OTHER_NAMES.get(verb) or _near(verb)
    return f"There is no magic %{name[:_SHOWN]}{f'; did you mean {near}?' if near else '.'} %sb shows all magics."


def _near(verb: str) -> str | None:
    if verb.startswith(REMOVALS):
        return None
    near = near_match(verb, VERBS)
    return f"%sb_{near}" if near else None
