"""A replacement of azure-mgmt-resource: groups of resources do not matter here."""

from __future__ import annotations

from typing import Any

__all__ = ["ResourceManagementClient"]


class ResourceManagementClient:
    """Takes any request and does nothing."""

    def __init__(self, **_: Any) -> None:
        self.resource_groups = self

    def create_or_update(self, name: str, parameters: dict[str, Any]) -> Any:
        """Make a group."""
        del parameters
        return type("ResourceGroup", (), {"name": name})()

    def begin_delete(self, name: str, **_: Any) -> Any:
        """Remove a group."""
        del name
        return self

    def result(self) -> None:
        """Wait for the end."""
