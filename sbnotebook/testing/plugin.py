"""Pytest fixtures for tests of code that uses Azure Service Bus: pytest finds them by itself.

::

    def test_an_order_is_sent(servicebus_emulator, servicebus_client):
        servicebus_emulator.create_queue("orders")
        my_code.send_order(servicebus_client)
        assert servicebus_emulator.counts("orders").active == 1

pytest loads this module in every run, also where no test uses it, so it imports what it needs in the fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.management import ServiceBusAdministrationClient

    from sbnotebook.emulator import ManualClock, RunningEmulator

__all__ = [
    "servicebus_admin_client",
    "servicebus_client",
    "servicebus_clock",
    "servicebus_connection_string",
    "servicebus_emulator",
    "servicebus_server",
]


_LIKE_OURS: Final = ("servicebus", "service_bus", "emulator")
_ENTITIES: Final = "The emulator has these entities: {}. Create one with servicebus_emulator.create_queue(NAME)."


def pytest_exception_interact(node: Any, call: pytest.CallInfo[object], report: Any) -> None:
    """Say below a failure which fixtures there are, or which entities the emulator has."""
    error: Any = call.excinfo.value if call.excinfo is not None else None
    kind, module = type(error).__name__, type(error).__module__
    if kind == "FixtureLookupError" and any(each in str(error.argname) for each in _LIKE_OURS):
        report.sections.append(("sbnotebook", f"The fixtures of sbnotebook are {', '.join(__all__)}."))
    emulator = getattr(node, "funcargs", {}).get("servicebus_emulator")
    if emulator is not None and module.startswith("azure.servicebus."):
        report.sections.append(("sbnotebook", _ENTITIES.format(", ".join(emulator.paths()) or "none")))


@pytest.fixture(scope="session")
def servicebus_server() -> Iterator[RunningEmulator]:
    """Yield the emulator that all tests of this run share, for fixtures that live longer than a test.

    It keeps its address for the whole run, and its entities only until the next test.
    """
    from sbnotebook.emulator import running

    with running() as emulator:
        yield emulator


@pytest.fixture
def servicebus_emulator(servicebus_server: RunningEmulator) -> Iterator[RunningEmulator]:
    """Yield an emulator with an empty namespace; after the test it is reset and all connections are dropped.

    Override it to have the entities that your tests need::

        @pytest.fixture
        def servicebus_emulator(servicebus_emulator):
            servicebus_emulator.create_queue("orders")
            return servicebus_emulator
    """
    # Before the test, too: a fixture of the session may have made something, which only the first test would see.
    servicebus_server.reset()
    yield servicebus_server
    servicebus_server.reset()


@pytest.fixture
def servicebus_connection_string(servicebus_emulator: RunningEmulator) -> str:
    """Return the connection string for the SDK's clients, which is the same in the whole run."""
    return servicebus_emulator.connection_string


@pytest.fixture
def servicebus_clock(servicebus_emulator: RunningEmulator) -> ManualClock:
    """Return the emulator's clock, which stands still in this test until you call ``advance(seconds)``."""
    from sbnotebook.emulator import ManualClock

    clock = ManualClock()
    servicebus_emulator.use_clock(clock)
    return clock


@pytest.fixture
def servicebus_client(servicebus_connection_string: str) -> Iterator[ServiceBusClient]:
    """Yield the SDK's synchronous client, closed after the test."""
    from azure.servicebus import ServiceBusClient

    with ServiceBusClient.from_connection_string(servicebus_connection_string) as client:
        yield client


@pytest.fixture
def servicebus_admin_client(servicebus_connection_string: str) -> Iterator[ServiceBusAdministrationClient]:
    """Yield the SDK's synchronous administration client, closed after the test."""
    from sbnotebook.settlement import administration_client

    with administration_client(servicebus_connection_string) as client:
        yield client
