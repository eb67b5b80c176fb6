"""The settlement library: peek, lock, settle, send and resubmit, asynchronously.

The only part of sbnotebook that imports ``azure``. All messages are settled and sent here, for magics, widgets, Python
and Spark. Other packages import from here only. Each name is loaded when it is first used.
"""

# ruff: noqa: F401
# pyright: reportUnusedImport=false

from __future__ import annotations

from typing import TYPE_CHECKING

from sbnotebook.lazy import lazy_names

if TYPE_CHECKING:
    from sbnotebook.settlement.actions.deferred import Deferrals
    from sbnotebook.settlement.actions.pick import LockReference
    from sbnotebook.settlement.actions.reach import names_sentence
    from sbnotebook.settlement.administration import EntityCounts, replicate_entities, route_of, tier_of
    from sbnotebook.settlement.connecting.administration_clients import (
        administration_client,
        async_administration_client,
    )
    from sbnotebook.settlement.connecting.connection import Connection, sign_in
    from sbnotebook.settlement.connecting.failures import Failure, explained
    from sbnotebook.settlement.engine import RunReport
    from sbnotebook.settlement.interrupts import Watch, in_flight, reporting
    from sbnotebook.settlement.locking.ahead import DEFAULT_MAX_HELD
    from sbnotebook.settlement.locking.by_number import DeferredDeleter
    from sbnotebook.settlement.locking.lock import DEFAULT_RENEW_FOR, LockedBatch
    from sbnotebook.settlement.locking.lock_table import LockEvent, LockEventKind, number_list
    from sbnotebook.settlement.locking.sessions import SessionBatch, SessionState
    from sbnotebook.settlement.memory.archive import Archive, ArchivedCount, ArchiveState
    from sbnotebook.settlement.memory.journal import (
        AssistantCalls,
        DeferralEntry,
        Journal,
        ResubmitEntry,
        Resubmitted,
    )
    from sbnotebook.settlement.namespace import AsyncEntity, AsyncNamespace
    from sbnotebook.settlement.pace import InFlight, Pause
    from sbnotebook.settlement.peek import Page, PeekCursor
    from sbnotebook.settlement.place import Resources, SequenceNumbers
    from sbnotebook.settlement.plan import (
        ApplyOnce,
        Limits,
        Plan,
        Preview,
        Progress,
        Ramp,
        RampStep,
        check_decision,
    )
    from sbnotebook.settlement.processing.calls import MessageFunction, ProcessStatus
    from sbnotebook.settlement.processing.policy import (
        Policy,
        PolicyRow,
        RejectMessage,
        SkipMessage,
        StopProcessing,
        Then,
    )
    from sbnotebook.settlement.processing.process import Processing
    from sbnotebook.settlement.requests import OUTAGE_PATIENCE, in_parallel
    from sbnotebook.settlement.telemetry import query_logs
    from sbnotebook.settlement.wire.decoding import peeked_from_payload, read_service_part
    from sbnotebook.settlement.wire.encoding import EncodedRows, payload_of

if not TYPE_CHECKING:  # a checker refuses names that are not imported above
    __getattr__, __dir__, __all__ = lazy_names(__name__)
