"""``sbnotebook probe``, and its report to attach to an issue, without secrets or the name of the namespace.

The command line shows the help of the command without loading the settlement library.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sbnotebook.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from sbnotebook.probe.probe import Finding
    from sbnotebook.probe.run import ProbeRun
    from sbnotebook.settlement import Connection

_INTERRUPTED: Final = 130


def probe(
    namespace: Annotated[
        str | None, typer.Argument(help="NAMESPACE.servicebus.windows.net, env:VARIABLE or emulator; as %sb_connect.")
    ] = None,
    *,
    report: Annotated[
        Path | None, typer.Option(help="Where the report is written; a new file in this folder if not said.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it begins.")] = False,
) -> None:
    """Check sbnotebook's assumptions about Service Bus against your namespace, in 5 minutes at most.

    It makes temporary queues, touches no other entity, and removes its own, also after Ctrl-C.
    """
    import anyio
    from rich.console import Console

    from sbnotebook.client.targets import refuse_secret, resolve
    from sbnotebook.probe.run import ProbeRun

    refuse_secret(namespace)
    when = datetime.now(UTC)
    path = _new_file(report or Path(f"sbnotebook-probe-{when:%Y%m%d-%H%M%S}.md"))
    console = Console()
    connection = resolve(namespace).connection
    connection.read_only = False  # the command is there to write, into queues of its own, and asks first
    tier = anyio.run(_tier, connection)
    run = ProbeRun(connection)
    console.print(_announcement(run, tier), highlight=False, markup=False)
    if not yes:
        typer.confirm("Begin?", abort=True)
    interrupted = _carry_out(run, console)
    _show(run, console)
    _write(run, path, tier, when)
    console.print(f"The report is in {path}: please attach it to an issue.", highlight=False, markup=False)
    if run.left:
        names = ", ".join(sorted(run.left))
        console.print(f"Not removed, so please remove: {names}", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(_INTERRUPTED if interrupted else 1 if run.left else 0)


def _new_file(path: Path) -> Path:
    if path.exists():
        raise ConfigurationError(f"{path} exists: say --report with the name of a new file.")
    if not path.parent.is_dir():
        raise ConfigurationError(f"There is no folder {path.parent}: say --report with a file in a folder that exists.")
    return path


async def _tier(connection: Connection) -> str:
    from sbnotebook.probe.run import tier_to_probe
    from sbnotebook.settlement import sign_in

    try:
        await sign_in(connection)
        return await tier_to_probe(connection)
    finally:
        await connection.close()  # what it has opened is of this loop only


def _announcement(run: ProbeRun, tier: str) -> str:
    from sbnotebook.probe.run import MAX_SECONDS, MINUTES, OPERATIONS

    return (
        f"{len(run.probes)} probes make as many temporary queues in {run.connection.host}, tier {tier}. Their names "
        f"begin with {run.prefix}. No other entity is touched. That takes about {MINUTES} minutes, at most "
        f"{MAX_SECONDS // 60}, and about {OPERATIONS:,} operations. It needs the right Manage, and the tier Standard "
        "or Premium; Premium has no partitioned queues, unless the namespace is partitioned."
    )


def _carry_out(run: ProbeRun, console: Console) -> bool:
    """Run the probes, and return whether the user has interrupted them."""
    import anyio

    async def main() -> None:
        try:
            await run.run()
        finally:
            with anyio.CancelScope(shield=True):
                await run.connection.close()

    count = 0
    with console.status("") as status:

        def told(_: object) -> None:
            nonlocal count
            count += 1
            status.update(f"{count} of {len(run.probes)} probes; Ctrl-C removes the queues and ends")

        run.told = told
        try:
            anyio.run(main)
        except KeyboardInterrupt:
            return True
    return False


def _show(run: ProbeRun, console: Console) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    from sbnotebook.probe.probe import ProbeVerdict

    colours = {ProbeVerdict.EXPECTED: "green", ProbeVerdict.DIFFERENT: "red", ProbeVerdict.UNKNOWN: "yellow"}
    table = Table("Expectation", "Found", Column("Saw", overflow="fold"))
    for each in run.findings:
        verdict = Text(each.verdict.value, style=colours[each.verdict])
        table.add_row(Text(each.probe.expectation), verdict, Text(each.saw))
    console.print(table)
    console.print(f"{summary(run.findings)}.", highlight=False)


def _write(run: ProbeRun, path: Path, tier: str, when: datetime) -> None:
    text = markdown(run.findings, host=run.connection.host, tier=tier, when=when)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def summary(findings: Sequence[Finding]) -> str:
    """Return the number of findings of each verdict, in words."""
    from sbnotebook.probe.probe import ProbeVerdict

    counts = Counter(finding.verdict for finding in findings)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in ProbeVerdict)


def markdown(findings: Sequence[Finding], *, host: str, tier: str, when: datetime) -> str:
    """Return the report of a run."""
    from sbnotebook.probe.probe import kind_of_host

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
