"""Errors without secrets: see :mod:`sbnotebook.client.scrubbing`."""

from sbnotebook.client.scrubbing import in_words, scrubbed, secrets_of

__all__ = ["in_words", "scrubbed", "secrets_of"]
