"""A run of probes against one namespace: side by side, within a time, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
from azure.core.exceptions import AzureError

from sbnotebook.errors import ConfigurationError
from sbnotebook.model.connection_strings import scrub
from sbnotebook.probe import deferring, locking, looking, sending
from sbnotebook.probe.probe import (
    Finding,
    Probe,
    ProbeVerdict,
    Saw,
    Site,
    new_prefix,
    remove_queue,
    second_name,
    without_names,
    words_of,
)
from sbnotebook.settlement import Connection, tier_of

# The last of locking may make Service Bus busy for others, and so comes last.
_MODULES: Final = (looking, deferring, sending, locking)
PROBES: Final = tuple(each for module in _MODULES for each in vars(module).values() if isinstance(each, Probe))
MAX_SECONDS: Final = 300
"""A run takes no longer."""
OPERATIONS, MINUTES = 12_000, 2
"""About what a run takes."""
_REMOVE_WITHIN: Final = 15
_CLEAN_UP: Final = 45
"""Seconds of them that are reserved for removing queues."""
_VERDICTS: Final = {True: ProbeVerdict.EXPECTED, False: ProbeVerdict.DIFFERENT, None: ProbeVerdict.UNKNOWN}


async def tier_to_probe(connection: Connection) -> str:
    """Return the tier of a namespace, such as Standard."""
    try:
        tier = await tier_of(connection)
    except AzureError as error:
        raise ConfigurationError(
            f"The namespace cannot be probed, which needs the right Manage: {scrub(words_of(error))}"
        ) from None
    if tier == "Basic":
        raise ConfigurationError("Probes need the tier Standard or Premium: Basic has no sessions.")
    return tier


@dataclass(slots=True)
class ProbeRun:
    """A run of probes, which knows what it has found, and which queues it has left, at any moment."""

    connection: Connection
    wait: Callable[[float], Awaitable[None]] = anyio.sleep
    side_by_side: int = 6
    probes: Sequence[Probe] = PROBES
    told: Callable[[Finding], None] | None = None
    prefix: str = field(default_factory=new_prefix, init=False)
    findings: list[Finding] = field(default_factory=list[Finding], init=False)
    left: set[str] = field(default_factory=set[str], init=False)

    async def run(self) -> None:
        """Run the probes, and remove what they have made, also when this is cancelled."""
        self.connection.require_writing()
        limiter = anyio.CapacityLimiter(self.side_by_side)
        try:
            with anyio.move_on_after(MAX_SECONDS - _CLEAN_UP):
                async with anyio.create_task_group() as tasks:
                    for each in self.probes:
                        tasks.start_soon(self._run_one, each, limiter)
        finally:
            with anyio.move_on_after(_CLEAN_UP, shield=True):
                await self._clean_up()
            done = {finding.probe.name: finding for finding in self.findings}
            missing = Saw(None, "it did not end")
            self.findings = [done.get(each.name) or self._finding(each, missing) for each in self.probes]

    async def _run_one(self, probe: Probe, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            name = f"{self.prefix}-{probe.name}"
            try:
                async with Site(self.connection, name, wait=self.wait, made=self.left) as site:
                    saw = await probe.look(site)
            except Exception as error:  # noqa: BLE001 (a probe reports any error)
                saw = Saw(None, words_of(error))
            finally:
                with anyio.move_on_after(_REMOVE_WITHIN, shield=True):
                    await self._remove(name)
                    await self._remove(second_name(name))
            finding = self._finding(probe, saw)
            self.findings.append(finding)
            if self.told is not None:
                self.told(finding)

    def _finding(self, probe: Probe, saw: Saw) -> Finding:
        return Finding(probe, _VERDICTS[saw.is_expected], without_names(saw.words, self.connection.host))

    async def _clean_up(self) -> None:
        """Try once more to remove the remaining queues."""
        async with anyio.create_task_group() as tasks:
            for name in sorted(self.left):
                tasks.start_soon(self._remove, name)

    async def _remove(self, name: str) -> None:
        if name in self.left:
            with suppress(Exception):  # then it stays in the set
                await remove_queue(self.connection, name)
                self.left.discard(name)
