from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "test-your-code.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

LOADED = """
import sys
def test_the_plugin_loads_no_heavy_module():
    heavy = {"azure", "aiohttp", "pandas", "pyarrow", "sbnotebook.emulator", "sbnotebook.settlement"}
    assert "sbnotebook.testing.plugin" in sys.modules
    assert not heavy & sys.modules.keys()
"""

QUEUES = """
import pytest

@pytest.fixture
def servicebus_emulator(servicebus_emulator):
    servicebus_emulator.create_queue("orders")
    return servicebus_emulator
"""


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run the tests of a folder as a user does: pytest in its own process, with the installed package."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:nbmake", *options, timeout=120)


def test_a_run_that_uses_no_fixture_loads_nothing_heavy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LOADED)
    run(pytester).assert_outcomes(passed=1)


def test_the_plugin_does_not_need_hypothesis() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import sbnotebook.testing.plugin, sbnotebook.testing as t; "
    code += "t.administration_client"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.thorough
def test_the_plugin_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(servicebus_emulator): pass")
    result = run(pytester, "-p", "no:sbnotebook")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'servicebus_emulator' not found*"])


def test_the_examples_of_the_documentation_pass(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("\n".join(BLOCK.findall(PAGE.read_text())))
    run(pytester).assert_outcomes(passed=4)


MISTAKES = """
from azure.servicebus import ServiceBusClient, ServiceBusMessage

def test_a_fixture_of_another_name(servicebus): ...

def test_a_queue_that_does_not_exist(servicebus_connection_string, servicebus_emulator):
    servicebus_emulator.create_queue("order")
    with ServiceBusClient.from_connection_string(servicebus_connection_string, retry_total=0) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("x"))
"""


def test_a_failure_names_fixtures_and_entities(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MISTAKES)
    result = run(pytester)
    result.assert_outcomes(errors=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "The fixtures of sbnotebook are servicebus_admin_client, servicebus_client, *",
            "The emulator has these entities: order. Create one with servicebus_emulator.create_queue(NAME).",
        ]
    )


FRESH = """
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

addresses = set()

@pytest.mark.parametrize("round", range(3))
def test_it(round, servicebus_emulator, servicebus_client, servicebus_admin_client):
    assert servicebus_emulator.faults.accept_delay_ms == 0
    assert isinstance(servicebus_admin_client, ServiceBusAdministrationClient)
    assert [queue.name for queue in servicebus_admin_client.list_queues()] == []
    servicebus_admin_client.create_queue("orders")
    sender = servicebus_client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("x"))
    assert servicebus_emulator.counts("orders").active == 1
    servicebus_emulator.faults.accept_delay_ms = 60_000
    addresses.add(servicebus_emulator.connection_string)

def test_the_address_is_the_same():
    assert len(addresses) == 1
"""


CLOCK = """
import time

def hours_ahead(emulator):
    emulator.create_queue("now")
    with administration_client(emulator.connection_string) as client:
        created = client.get_queue_runtime_properties("now").created_at_utc.timestamp()
    return round((created - time.time()) / 3600)

from sbnotebook.testing import administration_client

def test_the_clock_is_advanced_by_hand(servicebus_emulator, servicebus_clock):
    servicebus_clock.advance(7200)
    assert hours_ahead(servicebus_emulator) == 2

def test_the_next_test_has_the_system_clock_again(servicebus_emulator):
    assert hours_ahead(servicebus_emulator) == 0
"""


def test_each_test_has_an_empty_namespace_and_the_time_of_day(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_fresh=FRESH, test_clock=CLOCK)
    run(pytester).assert_outcomes(passed=6)


ASYNC = """
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
@pytest.mark.parametrize("round", range(2))
async def test_it(round, servicebus_connection_string):
    async with (
        ServiceBusClient.from_connection_string(servicebus_connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders", max_wait_time=5) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage(str(round)))
        (message,) = await receiver.receive_messages(max_message_count=1)
        assert str(message) == str(round)
        await receiver.complete_message(message)
"""


def test_the_asynchronous_sdk_runs_in_the_loop_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(QUEUES)
    pytester.makepyfile(ASYNC)
    run(pytester).assert_outcomes(passed=2)


WORKERS = """
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("round", range(6))
def test_it(round, servicebus_emulator):
    servicebus_emulator.create_queue("bills")
    with Path("addresses.txt").open("a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], servicebus_emulator.http_url, file=file)
"""


@pytest.mark.thorough
def test_each_worker_of_xdist_has_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WORKERS)
    run(pytester, "-n", "2", "--dist", "each").assert_outcomes(passed=12)
    lines = Path(pytester.path, "addresses.txt").read_text().splitlines()
    pairs = {tuple(line.split()) for line in lines}
    assert len(lines) == 12
    assert len(pairs) == len({address for _, address in pairs}) == 2


SESSION = """
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

@pytest.fixture(scope="session")
def app(servicebus_server):
    servicebus_server.create_queue("too-early")
    with ServiceBusClient.from_connection_string(servicebus_server.connection_string) as client:
        yield client.get_queue_sender("orders")  # opened by the first send

@pytest.mark.parametrize("round", range(2))
def test_it(round, app, servicebus_emulator, servicebus_admin_client):
    assert [queue.name for queue in servicebus_admin_client.list_queues()] == ["orders"]
    app.send_messages(ServiceBusMessage("x"))
    assert servicebus_emulator.counts("orders").active == 1
"""


@pytest.mark.thorough
def test_a_client_of_the_session_connects_again(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(QUEUES)
    pytester.makepyfile(SESSION)
    run(pytester).assert_outcomes(passed=2)
