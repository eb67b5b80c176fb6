"""Chosen messages in the middle of an entity, while all others stay as they are."""
