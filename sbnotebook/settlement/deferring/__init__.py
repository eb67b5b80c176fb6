"""Deferred messages: written down, found, woken and settled."""
