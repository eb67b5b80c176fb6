"""Clones that take the place of messages, and finishing what was cut off."""
