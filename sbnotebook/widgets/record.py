"""The record of a panel: static HTML in the saved notebook, for readers without a kernel.

A front end that has no kernel cannot draw widgets. GitHub, nbconvert and a reopened notebook show the HTML of an output
instead. The record is an output of its own below the panel, because an update of the panel's own output would make the
browser draw the panel again. A style in it hides it while the panel above it is alive.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from IPython.display import display

from sbnotebook.analysis.page_columns import array_of_flags, array_of_values
from sbnotebook.widgets.blocks import Block, Table, Text
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.pretty import cell
from sbnotebook.widgets.renderers.words import html_of
from sbnotebook.widgets.table.message_table import MessageTable

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_CAUSES: Final = 50
_MAX_CHARACTERS: Final = 300_000
"""Of the whole record: the notebook has to stay small enough for GitHub to show it."""
_CUT: Final = "The record is cut here. The journal and the archive have the rest: see %sb_journal."
_COLUMNS: Final = ("count", "reason", "cause", "frame", "first seen", "last seen", "resubmitted", "came back", "note")
_NO_KERNEL: Final = (
    "This panel needs a running kernel: run the cell to open it. If it had loaded its messages, its record is below."
)


class Record:
    """The static summary of a panel."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex
        self._html = ""
        self._is_displayed = False
        self._panel: Panel | None = None
        self._lock = threading.Lock()

    @property
    def owner(self) -> str:
        """Return the CSS class that the panel must have, so that the record is hidden while the panel is alive."""
        return f"sbn-owner-{self._id}"

    def as_html(self) -> str:
        """Return the record. It loads nothing, runs nothing and has no text that is not escaped."""
        # The grid of a living panel has its rows from the kernel. The copy of a panel in an exported page has none.
        is_alive = f".{self.owner}:not(.jupyter-widgets-disconnected) .sbn-alive"
        style = f"<style>body:has({is_alive}) .sbn-record-{self._id} {{ display: none }}</style>"
        return f'<div class="sbn-record-{self._id} mathjax_ignore tex2jax_ignore">{style}{self._html}</div>'

    def display_below(self, panel: Panel) -> None:
        if "ipykernel" not in sys.modules:
            raise NotImplementedError
        panel.widget.add_class(self.owner)
        bundle: Any = panel._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage]
        display(bundle | {"text/plain": _NO_KERNEL}, raw=True)
        with self._lock:
            self._is_displayed = True
            self._publish(is_update=False)

    def join(self, panel: Panel) -> None:
        """Become a part of a panel, for front ends whose pages keep widgets and no later outputs, such as marimo."""
        self._panel = panel
        self._is_displayed = True

    def show(self, blocks: Sequence[Block]) -> None:
        shown = _html(blocks)
        with self._lock:
            if shown != self._html:
                self._html = shown
                if self._is_displayed:
                    self._publish(is_update=True)

    def _publish(self, *, is_update: bool) -> None:
        if self._panel is not None:
            self._panel.view.record = self.as_html()
            return
        bundle = {"text/html": self.as_html(), "text/plain": "The record of the panel, as HTML"}
        display(bundle, raw=True, display_id=f"sbn-record-{self._id}", update=is_update)


def _html(blocks: Sequence[Block]) -> str:
    parts: list[str] = []
    room = _MAX_CHARACTERS
    for block in blocks:
        part = html_of([block])
        room -= len(part)
        if room < 0:
            return "".join([*parts, html_of([Text(_CUT)])])
        parts.append(part)
    return "".join(parts)


def causes_block(messages: MessageTable) -> Table | None:
    with messages.lock:
        rows, found, notes, resubmits = messages.rows, messages.causes, messages.notes, messages.resubmits.copy()
        removed = rows.removed.copy()
    if len(found.fingerprints) != len(rows):
        return None
    # Arrow's own groups, scalars and times would import pandas.
    columns: dict[str, Any] = {"cause": array_of_values(found.fingerprints, pa.string())}
    columns |= {"time": pc.cast(rows.table["enqueued_time"], pa.int64()), "back": rows.table["resubmit_count"]}
    kept: Any = pa.table(columns).filter(array_of_flags(~removed))
    kernels: Any = pc
    counts = {each["values"]: each["counts"] for each in kernels.value_counts(kept["cause"]).to_pylist()}
    listed = sorted(counts, key=lambda each: -counts[each])[:_MAX_CAUSES]
    lines: list[list[object]] = []
    for fingerprint in listed:
        cause, only = found.every[fingerprint], array_of_values([fingerprint], pa.string())
        its = kept.filter(kernels.is_in(kept["cause"], value_set=only))
        traits = (cause["reason"] or "(no reason)", cause["cause"], cause["frame"])
        times = kernels.min_max(its["time"]).as_py().values()
        when, count = resubmits.get(fingerprint, (None, 0))
        sent = f"{count:,}, {cell(when)}" if count else ""
        back = kernels.sum(kernels.sign(its["back"])).as_py() or ""
        span = [cell(None if time is None else _EPOCH + timedelta(microseconds=time)) for time in times]
        lines.append([counts[fingerprint], *traits, *span, sent, back, notes.get(fingerprint, "")])
    others = sum(counts.values()) - sum(counts[each] for each in listed)
    if others:
        lines.append([others, f"{len(counts) - len(listed):,} more causes", *[""] * (len(_COLUMNS) - 2)])
    used = [place for place in range(len(_COLUMNS)) if any(line[place] != "" for line in lines)]
    return Table([_COLUMNS[place] for place in used], [[line[place] for place in used] for line in lines])
