"""Connections to a namespace, and their failures in clear words."""
