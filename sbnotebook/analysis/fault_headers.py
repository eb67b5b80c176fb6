"""Read why a message failed from the properties that messaging frameworks write.

Frameworks move a message to an error queue of their own, or dead-letter it without a reason that says anything, and
write the fault into its application properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sbnotebook.errors import ConfigurationError
from sbnotebook.model.budget import MATCHED_CHARACTERS

_SILENT: Final = frozenset({"", "fault", "dead-letter", "maxdeliverycountexceeded"})
"""Reasons that say nothing, in lower case."""
_LONGEST_NAME: Final = 500


@dataclass(frozen=True, slots=True)
class FaultHeaders:
    """The names of the application properties in which a framework writes a fault; empty where it writes none."""

    framework: str
    exception_type: str = ""
    message: str = ""
    stack_trace: str = ""
    queue: str = ""
    time: str = ""


_FRAMEWORKS: Final = [
    # Particular/NServiceBus: SetExceptionHeaders in src/NServiceBus.Core/Utils/ExceptionHeaderHelper.cs, and for the
    # queue FailedQ in src/NServiceBus.Core/Recoverability/Faults/FaultsHeaderKeys.cs.
    FaultHeaders(
        "NServiceBus",
        "NServiceBus.ExceptionInfo.ExceptionType",
        "NServiceBus.ExceptionInfo.Message",
        "NServiceBus.ExceptionInfo.StackTrace",
        "NServiceBus.FailedQ",
        "NServiceBus.TimeOfFailure",
    ),
    # MassTransit/MassTransit: src/MassTransit.Abstractions/MessageHeaders.cs.
    FaultHeaders(
        "MassTransit",
        "MT-Fault-ExceptionType",
        "MT-Fault-Message",
        "MT-Fault-StackTrace",
        "MT-Fault-InputAddress",
        "MT-Fault-Timestamp",
    ),
    # rebus-org/Rebus: ErrorDetails and SourceQueue in Rebus/Messages/Headers.cs. The details are the text of the
    # exception, its type and stack trace included.
    FaultHeaders("Rebus", message="rbs2-error-details", queue="rbs2-source-queue"),
]
"""The names are from the public code of each framework.

Azure Functions and Dapr write none. After an exception in a function, the extension raises it in the SDK's processor,
which abandons the message (Azure/azure-sdk-for-net,
sdk/servicebus/Microsoft.Azure.WebJobs.Extensions.ServiceBus/src/Primitives/MessageProcessor.cs). Dapr abandons it
without properties (dapr/components-contrib, internal/component/azure/servicebus/subscription.go). Their messages become
dead letters by MaxDeliveryCountExceeded.
"""


def add_fault_headers(
    framework: str,
    *,
    exception_type: str = "",
    message: str = "",
    stack_trace: str = "",
    queue: str = "",
    time: str = "",
) -> None:
    """Add a framework whose application properties say why a message failed, for causes of this process.

    Args:
        framework: its name; another framework of this name is replaced.
        exception_type: the property with the type of the exception.
        message: the property with its message.
        stack_trace: the property with its stack trace.
        queue: the property that says where the message failed.
        time: the property that says when.

    Raises:
        ConfigurationError: there is neither a type nor a message.

    Example:
        >>> add_fault_headers("Acme", exception_type="acme-error", message="acme-error-text")
        >>> fault_of(None, None, {"acme-error": "Late", "acme-error-text": "Truck 7 is late"})
        ('Late', 'Late: Truck 7 is late')
    """
    if not exception_type and not message:
        raise ConfigurationError("Fault headers need the property of the exception's type, or of its message.")
    _FRAMEWORKS[:] = [each for each in _FRAMEWORKS if each.framework != framework]
    _FRAMEWORKS.append(FaultHeaders(framework, exception_type, message, stack_trace, queue, time))


def header_names() -> list[str]:
    """Return the properties of which a message with a fault has one."""
    return [name for each in _FRAMEWORKS for name in (each.exception_type, each.message) if name]


def fault_of(
    reason: str | None, description: str | None, properties: Mapping[Any, Any]
) -> tuple[str | None, str | None]:
    """Return the reason and the description of a message, from a framework's properties where its own say nothing."""
    if (reason or "").lower() not in _SILENT:
        return reason, description
    for names in _FRAMEWORKS:
        kind, message, trace, queue, time = (
            _text(properties.get(name)) if name else ""
            for name in (names.exception_type, names.message, names.stack_trace, names.queue, names.time)
        )
        if not kind and not message:
            continue
        if not kind:  # such as Rebus: the text of an exception begins with its type
            kind = message.partition(":")[0].strip().rpartition(" ")[2]
            said = message
        else:
            said = f"{kind}: {message}" if message else kind
        where = " ".join(part for part in (f"in {queue}" if queue else "", f"at {time}" if time else "") if part)
        parts = (said, trace, f"Failed {where}." if where else "")
        return kind[:_LONGEST_NAME] or reason, "\n".join(part for part in parts if part)[:MATCHED_CHARACTERS]
    return reason, description


def _text(value: Any) -> str:
    return value[:MATCHED_CHARACTERS] if isinstance(value, str) else "" if value is None else str(value)[:_LONGEST_NAME]
