"""Write the reference of the magics and of Python from the code, and prepare plain Markdown for Sphinx.

``python -m scripts.reference_pages`` writes the pages of MAGICS and PYTHON. In the site, the lists of ``docs/index.md``
become the navigation, pictures follow the theme, links to notebooks lead to their pages, and WORDS lead to pages in the
search.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from argparse import SUPPRESS, Action
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sbnotebook.magics.arguments import TASKS
from sbnotebook.magics.plan_magics import COMMANDS
from sbnotebook.spark.options import ReadOptions, StreamOptions, WriteOptions, declared_by
from scripts.python_reference import PYTHON, python_page

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["MAGICS", "WORDS", "magic_page", "setup", "spark_options", "summary"]

ROOT: Final = Path(__file__).resolve().parents[1]
MAGICS: Final = {
    "reference/magics-look.md": ("Magics that look", ("start", "look", "elsewhere")),
    "reference/magics-act.md": (
        "Magics that act",
        ("hold and settle", "choose and settle", "send", "afterwards", "assistant"),
    ),
}
"""The title and the tasks of each page that is written from the code."""
WORDS: Final = {
    "how-to/assistant": ("assistant", "MCP", "AI"),
    "how-to/causes": ("cause", "reason", "group", "Application Insights", "telemetry", "KQL"),
    "how-to/decode": ("avro", "protobuf", "schema", "decode", "binary"),
    "how-to/connect": ("connect", "connection string", "sign in"),
    "how-to/copy": ("sample", "mask", "anonymize", "GDPR"),
    "how-to/delay": ("delay", "postpone"),
    "how-to/export": ("export", "backup", "CSV"),
    "how-to/find": ("trace", "correlation id", "lineage"),
    "how-to/from-the-sdk": ("azure-servicebus", "migrate", "migration", "Service Bus Explorer"),
    "how-to/lock": ("lock", "settle", "complete"),
    "how-to/move": ("move", "copy"),
    "how-to/overview": ("overview", "alarm", "report"),
    "how-to/permissions": ("RBAC", "role", "permission", "service principal", "managed identity", "unauthorized"),
    "how-to/pick": ("pick", "delete message", "delete one message"),
    "how-to/purge": ("purge", "clear", "drain", "delete all", "empty queue"),
    "how-to/query": ("where", "query", "SQL", "cookbook", "filter", "expression"),
    "how-to/rehearse": ("rehearse", "simulate", "try", "staging"),
    "how-to/resubmit": ("resubmit", "redrive", "requeue", "replay", "reprocess", "resend", "retry"),
    "how-to/runbook": ("runbook", "alert", "incident", "on call"),
    "how-to/sessions": ("session", "order"),
    "how-to/topics": ("topic", "subscription"),
    "how-to/troubleshooting": ("troubleshooting", "FAQ", "firewall", "private endpoint", "proxy", "timeout", "error"),
    "how-to/undo": ("undo", "restore", "rollback", "recycle bin"),
    "reference/terms": ("glossary", "terminology", "definition"),
}
_GROUP: Final = re.compile(r"^## (.+)\n\n((?:- .+\n)+)", re.MULTILINE)
_PAGE: Final = re.compile(r"\]\(([\w/-]+)\.md\)")
_PICTURE: Final = re.compile(
    r'^<picture>\n.*srcset="([^"]+)">\n.*src="([^"]+)" alt="([^"]+)">\n</picture>$', re.MULTILINE
)
_NOTEBOOK: Final = re.compile(r"\]\((?:\.\./)+notebooks/(\w+\.ipynb)\)")
_BELOW: Final = {"tutorials/index": "[0-9]*", "reference/python": "python/*"}
# IPython puts the usage before the text of a docstring, and the options behind it.
_HELP: Final = re.compile(r"::\n\n.*?\n\n(.*?)(?:\n\n(?:positional arguments|options):\n.*)?$", re.DOTALL)
_DEFAULT: Final = re.compile(r" \((?:the )?default:? ([^()]*)\)")
_SHARED: Final = 3
"""An option is shared if so many magics of a page have it with the same meaning and default."""
_TESTED: Final = "<!-- no-run: tests run the help of each magic -->"
_OPTIONS: Final = "| option | meaning | default |\n|---|---|---|\n"


def setup(app: Sphinx) -> None:
    """Register this as an extension of Sphinx."""
    app.connect("source-read", _complete)
    app.connect("build-finished", _write_summary)


def _write_summary(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
        Path(app.outdir, "llms.txt").write_text(summary(index), encoding="utf-8")


def summary(index: str) -> str:
    """Return ``llms.txt``: what sbnotebook is, and each page with a line about it."""
    text = re.sub(r"^<picture>.*?</picture>\n\n", "", index, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\.md\)", ".html)", text)


def _complete(_app: Sphinx, page: str, source: list[str]) -> None:
    text = _NOTEBOOK.sub(r"](/tutorials/\1)", _PICTURE.sub(_both_themes, source[0]))
    if page == "index":
        text += "".join(map(_toctree, _GROUP.finditer(text)))
    if pages := _BELOW.get(page):
        text += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{pages}\n```\n"
    if words := WORDS.get(page):
        # Exclamation marks make them main entries of the index, which the search shows first.
        entries = ", ".join(f"! {word}" for word in words)
        text = re.sub(r"^# .*$", rf"\g<0>\n\n```{{index}} {entries}\n```", text, count=1, flags=re.MULTILINE)
    source[0] = text


def _toctree(group: re.Match[str]) -> str:
    pages = "\n".join(_PAGE.findall(group[2]))
    return f"\n```{{toctree}}\n:hidden:\n:caption: {group[1]}\n\n{pages}\n```\n"


def _both_themes(picture: re.Match[str]) -> str:
    dark, light, text = picture.groups()
    return "\n\n".join(
        f"```{{image}} {path}\n:class: only-{theme}\n:alt: {text}\n```"
        for path, theme in ((light, "light"), (dark, "dark"))
    )


def magic_page(title: str, tasks: tuple[str, ...]) -> str:
    """Return the Markdown of the magics of some tasks: the help, an example, and the options of each."""
    names = [f"sb_{verb}" for task in tasks for verb in TASKS[task]]
    rows = Counter(_row(each) for name in names for each in _options(name))
    shared = [row for row, count in rows.items() if count >= _SHARED]
    parts = [
        f"# {title}",
        "These are the help texts of the magics. [Magics](magics.md) has what they share, and what to write in Python.",
        *(_magic(name, shared) for name in names),
        "## Shared options",
        _OPTIONS + "\n".join(shared),
    ]
    return "\n\n".join(parts) + "\n"


def spark_options(place: str) -> str:
    """Return the table of the options of ``spark.read``, ``spark.readStream`` or ``frame.write``."""
    (kind,) = (each for each in (ReadOptions, StreamOptions, WriteOptions) if place == each.PLACE)
    defaults = {each.name: each.default for each in fields(kind)}
    lines = ["| option | meaning | default |", "|---|---|---|"]
    for name, option in declared_by(kind).items():
        default = "" if defaults[name] is None else f"`{str(defaults[name]).lower()}`"
        lines.append(
            f"| `{option.name}` | {f'to {option.only}: ' if option.only else ''}{option.meaning} | {default} |"
        )
    return "\n".join(lines)


def _options(name: str) -> list[Action]:
    return [each for each in COMMANDS[name].parser._actions if each.help is not SUPPRESS]  # noqa: SLF001


def _magic(name: str, shared: list[str]) -> str:
    text = inspect.cleandoc(COMMANDS[name].__doc__)
    first, _, rest = _HELP.sub(r"\1", text).partition("\n\n")
    text, _, example = rest.partition("Example::")
    actions = _options(name)
    operands = " ".join(
        f"[{_name(each)}]" if each.nargs else _name(each) for each in actions if not each.option_strings
    )
    own = [row for each in actions if (row := _row(each)) not in shared]
    others = [f"`{each.option_strings[-1]}`" for each in actions if each.option_strings and _row(each) in shared]
    return "\n\n".join(
        part
        for part in (
            f"## `%{name}`",
            f"`%{name} {operands}`".replace(" `", "`"),
            _markdown(first),
            _markdown(text).strip(),
            f"{_TESTED}\n```ipython\n{textwrap.dedent(example).strip()}\n```" if example.strip() else "",
            _OPTIONS + "\n".join(own) if own else "",
            f"[Shared options](#shared-options): {', '.join(others)}" if others else "",
        )
        if part
    )


def _name(action: Action) -> str:
    return str(action.metavar or action.dest)


def _row(action: Action) -> str:
    meaning = (action.help or "").replace("%%", "%")
    default = _DEFAULT.search(meaning)
    meaning = _DEFAULT.sub("", meaning) if default else meaning
    if action.choices is not None:
        meaning += f": {', '.join(f'`{each}`' for each in action.choices)}"
    value = "" if action.default in {None, False} or action.nargs == 0 else f"{action.default}"
    said = default[1] if default else value
    names = [f"`{each}`" for each in action.option_strings] or [f"`{_name(action)}`"]
    operand = f" {_name(action)}" if action.option_strings and action.nargs != 0 and action.choices is None else ""
    return f"| {', '.join(names)}{operand} | {_markdown(meaning).replace('|', chr(92) + '|')} | {said} |"


def _markdown(text: str) -> str:
    plain = re.sub(r"``(.+?)``", r"`\1`", text.replace("%%", "%"))
    return re.sub(r"(?<![`\w-])(--[a-z-]+|%sb_\w+|[\w.]{25,})", r"`\1`", re.sub(r"::$", ":", plain))


if __name__ == "__main__":
    for _path, _content in MAGICS.items():
        (ROOT / "docs" / _path).write_text(magic_page(*_content), encoding="utf-8")
    for _path in PYTHON:
        (ROOT / "docs" / _path).write_text(python_page(_path), encoding="utf-8")
