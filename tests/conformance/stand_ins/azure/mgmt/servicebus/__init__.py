"""Replace azure-mgmt-servicebus: namespaces are emulators, and the administration client makes entities."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient
from namespaces import KEY, KEY_NAME, here

from sbnotebook.emulator.entities.options import AuthorizationRule as Access
from sbnotebook.emulator.entities.options import Claim

if TYPE_CHECKING:
    from azure.mgmt.servicebus.models import SBAuthorizationRule, SBQueue, SBSubscription

__all__ = ["ServiceBusManagementClient"]


@dataclass
class _Named:
    name: str


@dataclass
class _Keys:
    key_name: str
    primary_key: str
    primary_connection_string: str


@contextmanager
def _administration(namespace: str) -> Generator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(here.connection_string(namespace)) as client:
        yield client


class _Namespaces:
    def begin_create_or_update(self, group: str, name: str, parameters: dict[str, Any]) -> _Done:
        del group, parameters
        here.create(name)
        return _Done(_Named(name))

    def delete(self, group: str, name: str) -> None:
        del group
        here.delete(name)

    def list_keys(self, group: str, name: str, rule: str) -> _Keys:
        del group
        key = KEY if rule == KEY_NAME else _keys[name, rule]
        return _Keys(rule, key, here.connection_string(name, rule, key))

    def create_or_update_authorization_rule(
        self, group: str, namespace: str, name: str, rule: SBAuthorizationRule
    ) -> _Named:
        del group
        key = _keys[namespace, name] = secrets.token_urlsafe(16)
        here.add_rule(namespace, Access(name, key, "", frozenset(Claim(right.value) for right in rule.rights)))
        return _Named(name)

    def delete_authorization_rule(self, group: str, namespace: str, name: str) -> None:
        """Leave it: it ends with its namespace."""
        del self, group, namespace, name


class _Queues:
    def create_or_update(self, group: str, namespace: str, name: str, queue: SBQueue) -> _Named:
        del group
        with _administration(namespace) as client:
            client.create_queue(name, **asdict(queue))
        return _Named(name)

    def delete(self, group: str, namespace: str, name: str) -> None:
        del group
        with _administration(namespace) as client:
            client.delete_queue(name)

    def create_or_update_authorization_rule(
        self, group: str, namespace: str, queue: str, name: str, rule: SBAuthorizationRule
    ) -> _Named:
        del group
        key = _keys[f"{namespace}/{queue}", name] = secrets.token_urlsafe(16)
        with _administration(namespace) as client:
            properties = client.get_queue(queue)
            rights = [right.value for right in rule.rights]
            properties.authorization_rules = [
                AuthorizationRule(key_name=name, primary_key=key, secondary_key=key, rights=rights)
            ]
            client.update_queue(properties)
        return _Named(name)

    def delete_authorization_rule(self, group: str, namespace: str, queue: str, name: str) -> None:
        """Leave it: it ends with its namespace."""
        del self, group, namespace, queue, name

    def list_keys(self, group: str, namespace: str, queue: str, rule: str) -> _Keys:
        del group
        key = _keys[f"{namespace}/{queue}", rule]
        return _Keys(rule, key, f"{here.connection_string(namespace, rule, key)};EntityPath={queue}")


class _Topics:
    def create_or_update(self, group: str, namespace: str, name: str, topic: dict[str, Any]) -> _Named:
        del group
        with _administration(namespace) as client:
            client.create_topic(name, **topic)
        return _Named(name)

    def delete(self, group: str, namespace: str, name: str) -> None:
        del group
        with _administration(namespace) as client:
            client.delete_topic(name)


class _Subscriptions:
    def create_or_update(
        self, group: str, namespace: str, topic: str, name: str, subscription: SBSubscription
    ) -> _Named:
        del group
        with _administration(namespace) as client:
            client.create_subscription(topic, name, **asdict(subscription))
        return _Named(name)

    def delete(self, group: str, namespace: str, topic: str, name: str) -> None:
        del group
        with _administration(namespace) as client:
            client.delete_subscription(topic, name)


@dataclass
class _Done:
    outcome: _Named

    def result(self) -> _Named:
        return self.outcome


class ServiceBusManagementClient:
    """The resource manager's client, with the operations that the preparers use."""

    def __init__(self, **_: Any) -> None:
        self.namespaces = _Namespaces()
        self.queues = _Queues()
        self.topics = _Topics()
        self.subscriptions = _Subscriptions()


_keys: dict[tuple[str, str], str] = {}
"""Keys by where they are valid, a namespace or NAMESPACE/QUEUE, and by the name of their rule."""
