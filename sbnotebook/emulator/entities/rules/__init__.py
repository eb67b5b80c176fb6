"""Rules of subscriptions: filters that take messages, and actions that change the copies."""

from sbnotebook.emulator.entities.rules.action import SqlAction
from sbnotebook.emulator.entities.rules.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from sbnotebook.emulator.entities.rules.operands import FilterError
from sbnotebook.emulator.entities.rules.rule import DEFAULT_RULE, Rule
from sbnotebook.emulator.entities.rules.subject import RuleSubject

__all__ = [
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
]
