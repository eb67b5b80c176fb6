"""Pure values: addresses, messages, decisions, outcomes and the message columns.

Standard library only. Everything here is immutable and free of I/O.
"""
