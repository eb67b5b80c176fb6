"""The notebook kit for Azure Service Bus.

Every public name is loaded when it is first used, so that ``import sbnotebook`` is quick and loads none of the
packages behind it::

    import sbnotebook

    namespace = sbnotebook.connect("emulator")

In a notebook, ``%load_ext sbnotebook`` adds the magics.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sbnotebook.lazy import lazy_names

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.analysis.avro_bodies import avro_decoder
    from sbnotebook.analysis.decoding import decoder
    from sbnotebook.analysis.protobuf_bodies import protobuf_decoder
    from sbnotebook.analysis.shapes import add_fault_headers
    from sbnotebook.client import AsyncNamespace, Entity, Namespace, NamespaceCopy, connect, read_copy, read_messages
    from sbnotebook.errors import (
        AmqpDecodeError,
        ArchiveError,
        BatchClosedError,
        ConfigurationError,
        DecisionError,
        EmulatorError,
        EmulatorStartError,
        InvalidEntityAddressError,
        JournalError,
        MissingExtraError,
        ProtocolViolationError,
        ReadOnlyError,
        SbNotebookError,
        SettlementFailedError,
    )
    from sbnotebook.model import (
        Abandon,
        Complete,
        DeadLetter,
        Defer,
        EntityAddress,
        LockedMessage,
        Message,
        Outcome,
        OutcomeStatus,
        PeekedMessage,
        Release,
        Report,
        Resubmit,
        SubQueue,
    )
    from sbnotebook.model.edits import edit_json
    from sbnotebook.settlement import Archive, Policy, PolicyRow, RejectMessage, SkipMessage, StopProcessing, Then
    from sbnotebook.widgets.entity_browser import Browser
    from sbnotebook.widgets.lock_board import LockBoard
    from sbnotebook.widgets.monitor import Monitor
    from sbnotebook.widgets.table.message_table import MessageTable
    from sbnotebook.widgets.triage import Triage

__all__ = [
    "Abandon",
    "AmqpDecodeError",
    "Archive",
    "ArchiveError",
    "AsyncNamespace",
    "BatchClosedError",
    "Browser",
    "Complete",
    "ConfigurationError",
    "DeadLetter",
    "DecisionError",
    "Defer",
    "EmulatorError",
    "EmulatorStartError",
    "Entity",
    "EntityAddress",
    "InvalidEntityAddressError",
    "JournalError",
    "LockBoard",
    "LockedMessage",
    "Message",
    "MessageTable",
    "MissingExtraError",
    "Monitor",
    "Namespace",
    "NamespaceCopy",
    "Outcome",
    "OutcomeStatus",
    "PeekedMessage",
    "Policy",
    "PolicyRow",
    "ProtocolViolationError",
    "ReadOnlyError",
    "RejectMessage",
    "Release",
    "Report",
    "Resubmit",
    "SbNotebookError",
    "SettlementFailedError",
    "SkipMessage",
    "StopProcessing",
    "SubQueue",
    "Then",
    "Triage",
    "add_fault_headers",
    "avro_decoder",
    "connect",
    "decoder",
    "edit_json",
    "protobuf_decoder",
    "read_copy",
    "read_messages",
]

__version__ = "0.1.0"

if not TYPE_CHECKING:  # a checker refuses names that are not imported above
    __getattr__, __dir__, _ = lazy_names(__name__)


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Register the magics; called by ``%load_ext sbnotebook``."""
    import_module("sbnotebook.magics").load_ipython_extension(ipython)
