from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

import anyio
import pytest
from azure.servicebus._pyamqp.aio import _connection_async  # pyright: ignore[reportPrivateUsage]

from sbnotebook.emulator import ManualClock, Tier, running
from sbnotebook.emulator.service.conditions import Condition
from sbnotebook.emulator.service.links import ReceiverLink
from sbnotebook.errors import ConfigurationError, ReadOnlyError
from sbnotebook.settlement import Connection
from sbnotebook.settlement.probing import locking
from sbnotebook.settlement.probing import run as run_module
from sbnotebook.settlement.probing.probe import Finding, Probe, ProbeVerdict, Saw, probe
from sbnotebook.settlement.probing.run import PROBES, ProbeRun, tier_to_probe
from sbnotebook.settlement.probing.site import Site
from tests.settlement.probing.variants import VARIANTS, Service

BY_NAME = {each.name: each for each in PROBES}
SAW = {"no-time-to-live": "1.0 days"}
"""The sentences that say a figure."""
DIFFERENT_HERE = {"partition-token-batch"}
"""The emulator takes it, unless its fault is set."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def service(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(locking, "_HELD", 300)
    with running(queues=["users"], clock=clock) as emulator:
        yield Service(emulator, monkeypatch)


async def found(service: Service, clock: ManualClock, *probes: Probe) -> dict[str, Finding]:
    """Run probes one by one while the emulator's clock is turned for them."""
    # The SDK knows port 443 only, on which this test may not listen.
    port = service.websocket_port or urlsplit(service.emulator.http_url).port
    service.patch.setattr(_connection_async, "WEBSOCKET_PORT", port)

    async def wait(seconds: float) -> None:
        if not service.time_passes:
            return
        clock.advance(max(0.0, time.time() - clock.now() / 1000))
        for _ in range(round(seconds)):
            clock.advance(1)
            await anyio.sleep(0.1)

    run = ProbeRun(Connection(service.emulator.connection_string), wait=wait, side_by_side=1, probes=probes)
    await run.run()
    assert run.left == set()
    assert [finding.probe for finding in run.findings] == [*probes]
    return {finding.probe.name: finding for finding in run.findings}


@pytest.mark.anyio
async def test_the_emulator_is_as_expected(service: Service, clock: ManualClock) -> None:
    findings = await found(service, clock, *PROBES)
    unexpected = [each for each in findings.values() if each.verdict is not ProbeVerdict.EXPECTED]
    assert {each.verdict for each in unexpected} == {ProbeVerdict.DIFFERENT}, unexpected
    assert {each.probe.name for each in unexpected} == DIFFERENT_HERE, unexpected


@pytest.mark.anyio
async def test_another_refusal_of_a_lost_lock_is_a_difference(service: Service, clock: ManualClock) -> None:
    service.patch.setattr(ReceiverLink, "lock_lost", Condition.NOT_FOUND)
    finding = (await found(service, clock, BY_NAME["lost-lock-refused"]))["lost-lock-refused"]
    assert finding.verdict is ProbeVerdict.DIFFERENT, finding.saw


@pytest.mark.anyio
@pytest.mark.parametrize("name", VARIANTS)
async def test_each_probe_notices_a_difference(service: Service, clock: ManualClock, name: str) -> None:
    VARIANTS[name](service)
    finding = (await found(service, clock, BY_NAME[name]))[name]
    assert finding.verdict is ProbeVerdict.DIFFERENT, finding.saw
    assert finding.saw == SAW.get(name, finding.saw)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("fault", "value", "name"),
    [
        ("order_after_release", "front", "order-after-release"),
        ("order_after_release", "front", "order-after-release-in-session"),
        ("over_max_unsettled", "stop", "held-on-one-link"),
    ],
)
async def test_other_faults_are_noticed_too(
    service: Service, clock: ManualClock, fault: str, value: object, name: str
) -> None:
    VARIANTS[name](service)
    setattr(service.emulator.faults, fault, value)
    assert (await found(service, clock, BY_NAME[name]))[name].verdict is ProbeVerdict.DIFFERENT


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["in_state", "detach"])
async def test_a_rollback_is_recognised_however_it_is_answered(
    service: Service, clock: ManualClock, how: Literal["in_state", "detach"]
) -> None:
    service.emulator.faults.transaction_refusal = how
    finding = (await found(service, clock, BY_NAME["transaction-rolled-back"]))["transaction-rolled-back"]
    assert finding.verdict is ProbeVerdict.EXPECTED, finding.saw


def test_every_probe_has_a_variant_and_a_name_of_its_own() -> None:
    assert [each.name for each in PROBES if each.name not in VARIANTS] == []
    assert len(BY_NAME) == len(PROBES) == len(VARIANTS)


@pytest.mark.anyio
async def test_probes_can_meet_what_this_emulator_lacks(service: Service, clock: ManualClock) -> None:
    service.emulator.faults.mixed_partitions = "refused"
    findings = await found(service, clock, BY_NAME["partition-token-batch"])
    assert {name: each.verdict for name, each in findings.items()} == dict.fromkeys(
        DIFFERENT_HERE, ProbeVerdict.EXPECTED
    )


@probe("fails", "It fails.", operations=1)
async def _fails(site: Site) -> Saw:
    await site.queue()
    raise RuntimeError(f"SharedAccessKey=c2VjcmV0 at {site.connection.host}")


@probe("hangs", "It ends.", operations=1)
async def _hangs(site: Site) -> Saw:
    await site.queue()
    await anyio.sleep_forever()
    raise AssertionError


@pytest.mark.anyio
async def test_what_fails_is_told_without_secrets(service: Service, clock: ManualClock) -> None:
    finding = (await found(service, clock, _fails))["fails"]
    assert finding.verdict is ProbeVerdict.UNKNOWN
    assert finding.saw == "RuntimeError  SharedAccessKey=*** at ADDRESS"


@pytest.mark.anyio
async def test_a_cancelled_run_removes_only_its_own(service: Service, clock: ManualClock) -> None:
    run = ProbeRun(Connection(service.emulator.connection_string), probes=[_hangs, _fails])
    with anyio.move_on_after(5):
        await run.run()
    assert run.left == set()
    assert [(each.probe.name, each.verdict) for each in run.findings] == [
        ("hangs", ProbeVerdict.UNKNOWN),
        ("fails", ProbeVerdict.UNKNOWN),
    ]
    assert service.emulator.counts("users").active == 0
    assert clock.now() > 0


@pytest.mark.anyio
async def test_what_cannot_be_removed_is_named(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(run_module, "remove_queue", refuse)
    run = ProbeRun(Connection(service.emulator.connection_string), probes=[_fails])
    await run.run()
    assert run.left == {f"{run.prefix}-fails"}


@pytest.mark.anyio
async def test_a_queue_is_removed_when_its_probe_ends(service: Service) -> None:
    run = ProbeRun(Connection(service.emulator.connection_string), probes=[_fails, _hangs])
    left: list[set[str]] = []
    run.told = lambda _: left.append(set(run.left))
    with anyio.move_on_after(5):
        await run.run()
    assert f"{run.prefix}-fails" not in left[0]


@pytest.mark.anyio
async def test_an_entity_of_another_is_not_touched(service: Service, clock: ManualClock) -> None:
    run = ProbeRun(Connection(service.emulator.connection_string), probes=[_fails])
    taken = f"{run.prefix}-fails"
    service.emulator.create_queue(taken)
    await run.run()
    assert run.left == set()
    assert service.emulator.counts(taken).active == 0
    assert clock.now() > 0


@pytest.mark.anyio
async def test_what_cannot_be_probed_is_refused(service: Service) -> None:
    only_looks = Connection(service.emulator.connection_string)
    only_looks.read_only = True
    with pytest.raises(ReadOnlyError):
        await ProbeRun(only_looks).run()
    with running(tier=Tier.BASIC) as basic, pytest.raises(ConfigurationError, match="Standard or Premium"):
        await tier_to_probe(Connection(basic.connection_string))
