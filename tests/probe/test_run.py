from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import anyio
import pytest

from sbnotebook.emulator import ManualClock, Tier, running
from sbnotebook.emulator.entities.box import Box
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.errors import ConfigurationError, ReadOnlyError
from sbnotebook.probe import locking
from sbnotebook.probe import run as run_module
from sbnotebook.probe.probe import Finding, Probe, ProbeVerdict, Saw, Site, probe, remove_queue
from sbnotebook.probe.run import PROBES, ProbeRun, tier_to_probe
from sbnotebook.settlement import Connection
from tests.probe.variants import LIKE_EXPECTED, OTHER_VARIANTS, VARIANTS, Service

BY_NAME = {each.name: each for each in PROBES}
SAW_HERE = {
    "peek-states": "active: active, deferred: deferred, locked: active, scheduled: scheduled",
    "page-size": "250 of 260 messages",
    "peek-without-bodies": "1,231 bytes with the body, 259 without",
    "no-empty-peeks": "0 of 100 peeks were empty",
    "dead-letter-number": "2 became 2",
    "scheduled-number": "2 → 4",
    "activated-state": "active when peeked, scheduled when received",
    "scheduled-times": "enqueued 10.0 s before it was due, then 0.0 s after",
    "no-time-to-live": "none",
    "partition-pages": "60 of 60 messages, in 16 partitions",
    "peek-from-number": "30 of 30 messages, in 12 partitions",
    "lost-lock-refused": "MessageLockLostError (com.microsoft:message-lock-lost) The lock supplied is invalid",
    "release-not-counted": "0, then 0",
    "release-confirmed": "1 of 1 confirmed, 1 are there",
    "release-range-confirmed": "5 of 5 confirmed, 5 are there",
    "defer-range-confirmed": "5 of 5 confirmed, 5 are there",
    "complete-range-confirmed": "5 of 5 confirmed, 0 are there",
    "lock-outlives-link": "it was held; by its token: it succeeded; 0 left",
    "order-after-release": "1, 2 and 3 were released, then came 1, 2, 3, 4, 5",
    "order-after-release-in-session": "1, 2 and 3 were released, then came 1, 2, 3, 4, 5",
    "order-after-session-reopens": "1, 2 and 3 were released; opened again, it gave 1, 2, 3, 4, 5",
    "partition-token-batch": "it succeeded",
    "refused-tokens": "MessageLockLostError (com.microsoft:message-lock-lost) ",
    "deferred-all-or-none": "two and a missing one: MessageNotFoundError (com.microsoft:message-not-found) ",
    "deferred-delivery-count": "delivery counts [1, 2, 3], abandoned in between",
    "dead-letter-delivery-count": "first 0, after its lock ended 0, abandoned 0, deferred 0",
    "deferred-removed-250": "250 removed, 0 left",
    "deferred-expiry": "MessageNotFoundError (com.microsoft:message-not-found) ",
    "deferred-dead-letter-of-session": "it succeeded",
    "deferred-only-session": "OperationTimeoutError  The operation did not complete",
    "batch-refused-whole": "ServiceBusError (amqp:not-allowed) The SessionId was not set on a message",
    "partitioned-size": "1,024 MB were asked for, 16,384 MB given",
    "frame-size": "65,536 bytes",
    "websocket": "1 of 1 message",
    "listen-key-counts": "401, 401",
    "administration-statuses": "taken: 409; removed: 404; not there: ResourceNotFoundError; 0 subscriptions",
    "transaction-committed": "it succeeded; 1 of 1 clone came, 0 of 1 dead letter is left",
    "transaction-rolled-back": "MessageLockLostError (com.microsoft:message-lock-lost) ",
    "transaction-to-another": "it succeeded; 1 of 1 clone came, 0 of 1 dead letter is left",
    "peek-in-transaction": "0 clones and 1 of 1 dead letter in the open transaction",
    "held-on-one-link": "300 held",
    "batch-of-one-partition-key": (
        "ServiceBusError (amqp:not-allowed) Batching brokered messages with distinct SessionId, PartitionKey, or "
        "MessageId  is not supported"
    ),
}
"""The sentence of each probe at the emulator, up to the words of an error."""
SAW = {
    "page-size": "100 of 260 messages",
    "peek-without-bodies": "1,231 bytes with the body, 1,231 without",
    "dead-letter-number": "2 became 1002",
    "activated-state": "scheduled when peeked, scheduled when received",
    "no-empty-peeks": "3 of 100 peeks were empty",
    "no-time-to-live": "1.0 days",
    "partition-pages": "4 of 60 messages, in 1 partitions",
    "scheduled-number": "2 → 2",
    "release-not-counted": "0, then 1",
    "release-confirmed": "0 of 1 confirmed, 1 are there: ServiceBusConnectionError ",
    "defer-range-confirmed": "0 of 5 confirmed, 5 are there: ServiceBusConnectionError ",
    "complete-range-confirmed": "0 of 5 confirmed, 0 are there: ServiceBusConnectionError ",
    "release-range-confirmed": "0 of 5 confirmed, 5 are there: ServiceBusConnectionError ",
    "order-after-release": "1, 2 and 3 were released, then came 4, 5, 1, 2, 3",
    "order-after-release-in-session": "1, 2 and 3 were released, then came 4, 5, 1, 2, 3",
    "order-after-session-reopens": "1, 2 and 3 were released; opened again, it gave 4, 5, 1, 2, 3",
    "lock-outlives-link": "it came to another; by its token: MessageLockLostError ",
    "deferred-all-or-none": "two and a missing one: it succeeded; then each alone: it succeeded",
    "deferred-delivery-count": "delivery counts [1, 1, 1], abandoned in between",
    "dead-letter-delivery-count": "first 0, after its lock ended 0, abandoned 1, deferred 1",
    "deferred-removed-250": "100 removed, 150 left",
    "batch-refused-whole": "it succeeded; 2 of 2 arrived",
    "partitioned-size": "1,024 MB were asked for, 1,024 MB given",
    "frame-size": "262,144 bytes",
    "listen-key-counts": "allowed, allowed",
    "administration-statuses": "taken: 400; removed: 400; ",
    "peek-in-transaction": "0 clones and 0 of 1 dead letter in the open transaction",
}
"""The sentence of a probe at its variant, up to the words of an error."""
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
    clock.advance(90)  # the service's clock may be ahead of this machine's
    findings = await found(service, clock, *PROBES)
    unexpected = [each for each in findings.values() if each.verdict is not ProbeVerdict.EXPECTED]
    assert {each.verdict for each in unexpected} == {ProbeVerdict.DIFFERENT}, unexpected
    assert {each.probe.name for each in unexpected} == DIFFERENT_HERE, unexpected
    assert {name: findings[name].saw[: len(saw)] for name, saw in SAW_HERE.items()} == SAW_HERE


@pytest.mark.anyio
async def test_probes_ask_for_what_azure_takes(service: Service, clock: ManualClock) -> None:
    """The emulator takes shorter locks and other keys, too."""
    locks, keys = set[float](), list[str]()

    def queue(method: Any, site: Site, *, lock: float = 60, **options: Any) -> Any:
        locks.add(lock)
        keys.extend(str(rule.primary_key) for rule in options.get("authorization_rules", ()))
        return method(site, lock=lock, **options)

    service.wrap(Site, "queue", queue)
    names = ("lost-lock-refused", "dead-letter-delivery-count", "listen-key-counts")
    await found(service, clock, *(BY_NAME[name] for name in names))
    assert 5 in locks
    assert all(5 <= lock <= 300 for lock in locks)
    assert [len(base64.b64decode(key)) for key in keys] == [32]


@pytest.mark.anyio
@pytest.mark.parametrize("condition", [Condition.NOT_FOUND, Condition.SESSION_LOCK_LOST])
async def test_another_refusal_of_a_lost_lock_is_a_difference(
    service: Service, clock: ManualClock, condition: Condition
) -> None:
    def lock_lost(_: Box) -> RefusedError:
        return RefusedError(condition, "The lock is lost.")

    service.patch.setattr(Box, "lock_lost", lock_lost)
    finding = (await found(service, clock, BY_NAME["lost-lock-refused"]))["lost-lock-refused"]
    assert finding.verdict is ProbeVerdict.DIFFERENT, finding.saw


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "variant", "saw"),
    [*((name, variant, SAW.get(name, "")) for name, variant in VARIANTS.items()), *OTHER_VARIANTS],
    ids=[*VARIANTS, *range(len(OTHER_VARIANTS))],
)
async def test_each_probe_notices_a_difference(
    service: Service, clock: ManualClock, name: str, variant: Callable[[Service], None], saw: str
) -> None:
    variant(service)
    finding = (await found(service, clock, BY_NAME[name]))[name]
    assert finding.verdict is ProbeVerdict.DIFFERENT, finding.saw
    assert finding.saw.startswith(saw)


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "variant", "saw"), LIKE_EXPECTED, ids=range(len(LIKE_EXPECTED)))
async def test_what_a_probe_does_not_ask_is_no_difference(
    service: Service, clock: ManualClock, name: str, variant: Callable[[Service], None], saw: str
) -> None:
    variant(service)
    finding = (await found(service, clock, BY_NAME[name]))[name]
    assert (finding.verdict, finding.saw) == (ProbeVerdict.EXPECTED, saw)


@pytest.mark.anyio
async def test_what_a_probe_cannot_tell_is_said(service: Service, clock: ManualClock) -> None:
    service.queues_have(enable_partitioning=False)
    finding = (await found(service, clock, BY_NAME["partition-token-batch"]))["partition-token-batch"]
    assert (finding.verdict, finding.saw) == (ProbeVerdict.UNKNOWN, "all messages were in one partition")
    with_credential = Connection.with_credential("shop.servicebus.windows.net", NoCredential(), write=True)
    run = ProbeRun(with_credential, probes=[BY_NAME["listen-key-counts"]])
    await run.run()
    assert [(each.verdict, each.saw) for each in run.findings] == [
        (ProbeVerdict.UNKNOWN, "a connection string is needed for this")
    ]


class NoCredential:
    async def get_token(self, *_: str, **__: Any) -> Any:
        raise AssertionError("nothing is asked of it here")


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


@probe
async def fails(site: Site) -> Saw:
    """It fails."""
    await site.queue()
    raise RuntimeError(f"SharedAccessKey=c2VjcmV0 at {site.connection.host}")


@probe
async def hangs(site: Site) -> Saw:
    """It ends."""
    await site.queue()
    await site.wait(math.inf)
    raise AssertionError


@pytest.mark.anyio
async def test_what_fails_is_told_without_secrets(service: Service, clock: ManualClock) -> None:
    finding = (await found(service, clock, fails))["fails"]
    assert finding.verdict is ProbeVerdict.UNKNOWN
    assert finding.saw == "RuntimeError  SharedAccessKey=*** at ADDRESS"


@pytest.mark.anyio
async def test_a_cancelled_run_removes_only_its_own(service: Service, clock: ManualClock) -> None:
    run = ProbeRun(Connection(service.emulator.connection_string), probes=[hangs, fails])
    with anyio.CancelScope() as scope:
        run.told = lambda _: scope.cancel()
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
    run = ProbeRun(Connection(service.emulator.connection_string), probes=[fails])
    await run.run()
    assert run.left == {f"{run.prefix}-fails"}


@pytest.mark.anyio
async def test_what_was_not_removed_is_tried_again(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    async def first_refuse(connection: Connection, name: str) -> None:
        names.append(name)
        if len(names) == 1:
            raise OSError
        await remove_queue(connection, name)

    monkeypatch.setattr(run_module, "remove_queue", first_refuse)
    scope = anyio.CancelScope()

    async def wait(_: float) -> None:
        scope.cancel()  # the queue is there

    run = ProbeRun(Connection(service.emulator.connection_string), wait=wait, probes=[hangs])
    with scope:
        await run.run()
    assert names == [f"{run.prefix}-hangs"] * 2
    assert run.left == set()


@pytest.mark.anyio
async def test_a_run_ends_by_itself(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "MAX_SECONDS", 13)
    monkeypatch.setattr(run_module, "_CLEAN_UP", 12)
    run = ProbeRun(Connection(service.emulator.connection_string), probes=[hangs])
    with anyio.fail_after(60):
        await run.run()
    assert [(each.verdict, each.saw) for each in run.findings] == [(ProbeVerdict.UNKNOWN, "it did not end")]
    assert run.left == set()


@pytest.mark.anyio
async def test_a_queue_is_removed_when_its_probe_ends(service: Service) -> None:
    run = ProbeRun(Connection(service.emulator.connection_string), probes=[fails, hangs])
    left: list[set[str]] = []
    with anyio.CancelScope() as scope:

        def told(_: Finding) -> None:
            left.append(set(run.left))
            scope.cancel()

        run.told = told
        await run.run()
    assert f"{run.prefix}-fails" not in left[0]


@pytest.mark.anyio
async def test_an_entity_of_another_is_not_touched(service: Service, clock: ManualClock) -> None:
    run = ProbeRun(Connection(service.emulator.connection_string), probes=[fails])
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
    not_allowed = service.emulator.connection_string.replace("SAS_KEY_VALUE", "c2VjcmV0")
    with pytest.raises(ConfigurationError, match="cannot be probed, which needs the right Manage: ") as refused:
        await tier_to_probe(Connection(not_allowed))
    assert "c2VjcmV0" not in str(refused.value)
    assert await tier_to_probe(Connection(service.emulator.connection_string)) == "Premium"


@pytest.mark.anyio
async def test_a_refusal_is_an_answer_and_a_fault_is_none() -> None:
    text = "Endpoint=sb://emulator.test;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
    site = Site(Connection(text, allow_remote=True), "probe", wait=anyio.sleep, made=set())
    refused = ValueError("The message is too large.")

    async def attempt(error: Exception | None) -> None:
        if error is not None:
            raise error

    assert await site.refusal(attempt(refused)) is refused
    assert await site.refusal(attempt(None)) is None
    with pytest.raises(KeyError):
        await site.refusal(attempt(KeyError()))
    listens = site.with_key("listen", "b3RoZXI=")
    assert listens.host == "emulator.test"
    assert (listens.parsed and listens.parsed.key_name, listens.is_emulator) == ("listen", True)
