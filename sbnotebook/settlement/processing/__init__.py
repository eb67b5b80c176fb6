"""Entities that are consumed with a function, by a policy."""
