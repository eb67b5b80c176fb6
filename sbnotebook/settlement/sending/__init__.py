"""Sending messages now or later, with a limit on the transfers in progress."""
