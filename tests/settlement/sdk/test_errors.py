from __future__ import annotations

import pytest
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusConnectionError, ServiceBusError

from sbnotebook.model import EntityAddress
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.sdk.errors import answered_within, as_service_bus_error, condition_of, with_words

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("seconds", "said"), [(0.5, "0.5 seconds"), (1.0, "1 second"), (2.0, "2 seconds")])
async def test_a_missing_answer_says_how_long_it_was_awaited(seconds: float, said: str) -> None:
    with pytest.raises(TimeoutError) as caught, answered_within(seconds):
        raise TimeoutError
    assert str(caught.value) == f"No answer came within {said}."


async def test_only_the_error_of_a_lost_link_is_translated(namespace: AsyncNamespace) -> None:
    receiver = namespace.connection.receiver(EntityAddress("orders"))
    with (
        pytest.raises(ServiceBusConnectionError, match="management node is gone"),
        as_service_bus_error(receiver),
    ):
        raise ValueError("Management Operation in state: error")
    with pytest.raises(ValueError, match="another"), as_service_bus_error(receiver):
        raise ValueError("another")


@pytest.mark.parametrize("kind", [ServiceBusError, MessageLockLostError])
def test_other_words_leave_the_class(kind: type[ServiceBusError]) -> None:
    error = ServiceBusError("before") if kind is ServiceBusError else MessageLockLostError(message="before")
    changed = with_words(error, "clearer")
    assert type(changed) is kind
    assert str(changed) == "clearer"


def test_an_error_without_a_condition_has_none() -> None:
    assert condition_of(OSError("no route")) == (None, None)
