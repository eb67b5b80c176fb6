"""Rules of subscriptions: filters that take messages, and actions that change the copies."""

from sbnotebook.emulator.entities.rules.operands import FilterError
from sbnotebook.emulator.entities.rules.rule import (
    CORRELATION_PROPERTIES,
    DEFAULT_RULE,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    filter_of,
    parts_of,
)
from sbnotebook.emulator.entities.rules.subject import RuleSubject

__all__ = [
    "CORRELATION_PROPERTIES",
    "DEFAULT_RULE",
    "CorrelationFilter",
    "FalseFilter",
    "Filter",
    "FilterError",
    "Rule",
    "RuleSubject",
    "SqlAction",
    "SqlFilter",
    "TrueFilter",
    "filter_of",
    "parts_of",
]
