"""The report of a probe run, to attach to an issue, without secrets or the name of the namespace."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib.metadata import version

from sbnotebook.settlement.probing.probe import Finding, ProbeVerdict
from sbnotebook.settlement.probing.redaction import kind_of_host

__all__ = ["markdown", "summary"]


def summary(findings: Sequence[Finding]) -> str:
    """Return the number of findings of each verdict, in words."""
    counts = Counter(finding.verdict for finding in findings)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in ProbeVerdict)


def markdown(findings: Sequence[Finding], *, host: str, tier: str, when: datetime) -> str:
    """Return the report of a run.

    Args:
        findings: without names and secrets.
        host: of the namespace, of which only the public part is shown.
        tier: of the namespace.
        when: of the run.
    """
    versions = f"sbnotebook {version('sbnotebook')}, azure-servicebus {version('azure-servicebus')}"
    lines = [
        "# What sbnotebook found in a namespace",
        "",
        f"- {kind_of_host(host)}, tier {_cell(tier)}, on {when:%Y-%m-%d}",
        f"- {versions}, Python {platform.python_version()}, {platform.system()}",
        f"- {summary(findings)}",
        "",
        "| probe | expectation | found | saw |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{each.probe.name}` | {_cell(each.probe.expectation)} | {each.verdict.value} | {_cell(each.saw)} |"
        for each in findings
    ]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    """Return a text that cannot end its cell, nor be a link or markup."""
    shown = escape(" ".join(text.split()), quote=False)
    for sign in "\\`*_[]|":
        shown = shown.replace(sign, f"\\{sign}")
    return shown
