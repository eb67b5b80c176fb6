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

_MEANT: Final = {
    "%sb": ("help", "servicebus", "service_bus", "azure"),
    "%sb_connect": ("login", "use"),
    "%sb_entities": (
        "count",
        "counts",
        "describe",
        "info",
        "list",
        "queue",
        "queues",
        "rules",
        "subscription",
        "topic",
        "topics",
    ),
    "%sb_entities ENTITY --sessions": ("sessions",),
    "%sb_peek": ("read", "show", "get", "fetch", "messages"),
    "%sb_peek ENTITY --to FILE": ("export", "download", "save"),
    "%sb_groups": ("causes",),
    "%sb_assistant": ("mcp", "chat"),
    "%sb_find": ("search",),
    "%sb_find --message-id ID": ("trace",),
    "%sb_sql": ("query",),
    "%sb_dlq --to FILE": ("report",),
    "%sb_monitor": ("watch", "stats", "status", "metrics", "dashboard"),
    "%sb_lock": ("receive", "locks", "consume"),
    "%sb_lock ENTITY --session ID": ("session",),
    "%sb_release": ("unlock",),
    "%sb_abandon": ("nack",),
    "%sb_dead_letter": ("deadletter", "reject"),
    "%sb_complete": ("settle",),
    "%sb_resubmit": ("move", "forward", "redrive", "replay", "requeue", "retry"),
    "%sb_send DESTINATION NAME": ("push",),
    "%sb_send": ("publish", "import"),
    "%sb_send DESTINATION TEXT --delay 5m": ("schedule",),
    "%sb_peek ENTITY --state scheduled": ("scheduled",),
    "%sb_journal --fates": ("history",),
    "%sb_journal --note FINGERPRINT TEXT": ("note",),
    "%sb_journal": ("notes",),
    "%sb_undo": ("restore",),
    "%sb_sample": ("copy",),
    "%sb_spark": ("df", "load", "stream"),
}
OTHER_NAMES: Final = {name: magic for magic, names in _MEANT.items() for name in names}
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
