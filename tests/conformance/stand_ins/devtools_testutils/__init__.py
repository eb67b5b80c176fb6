"""A replacement of the package of the Azure SDK's monorepo that gives its tests their resources.

It is not published. This has only the parts that the tests of azure-servicebus use in a live run. Every resource is
made for one test and removed after it, even if the tests would share it.
"""

from __future__ import annotations

import functools
import inspect
import secrets
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from namespaces import KEY, KEY_NAME, SUFFIX, here

__all__ = [
    "AzureMgmtPreparer",
    "AzureMgmtRecordedTestCase",
    "AzureRecordedTestCase",
    "AzureTestError",
    "CachedResourceGroupPreparer",
    "FakeResource",
    "PowerShellPreparer",
    "RandomNameResourceGroupPreparer",
    "ReservedResourceNameError",
    "accepted",
    "add_general_regex_sanitizer",
    "get_credential",
    "get_region_override",
    "presented",
    "recorded_by_proxy",
    "set_custom_default_matcher",
]

_Test = Callable[..., Any]
_PARAMETERS: Final = ("uamqp_transport", "socket_transport")
"""What the tests have from pytest.mark.parametrize; all else comes from preparers."""


class AzureTestError(Exception):
    """A resource is not available."""


class ReservedResourceNameError(Exception):
    """A resource cannot have this name."""


class FakeResource:
    """A resource of which the tests read no more than the name."""

    def __init__(self, name: str, id: str) -> None:  # noqa: A002 - so it is called
        self.name = name
        self.id = id


class AzureRecordedTestCase:
    """What test classes derive from."""

    is_live = True

    @staticmethod
    def await_prepared_test(test: _Test) -> _Test:
        """Let a coroutine be prepared like a function; every preparer here can."""
        return test


AzureMgmtRecordedTestCase = AzureRecordedTestCase


class AzureMgmtPreparer:
    """A decorator that makes a resource, hands it to the test, and removes it afterwards.

    Args:
        name_prefix: begins the resource's name.
        random_name_length: characters of the name in all.
        options: of recordings, which there are none of.
    """

    is_live = True

    def __init__(self, name_prefix: str = "", random_name_length: int = 24, **options: Any) -> None:
        self.name_prefix = name_prefix
        self.random_name_length = random_name_length
        self.random_name_enabled: bool = options.get("random_name_enabled", True)
        self.resource: Any = None
        self.resource_random_name = ""
        self.moniker = ""

    def __call__(self, test: _Test) -> _Test:
        """Wrap a test, or what another preparer made of it."""
        if inspect.iscoroutinefunction(test):

            async def prepared(case: Any, **arguments: Any) -> None:
                name, resources = self._create(arguments)
                try:
                    await test(case, **accepted(test, {**arguments, **resources}))
                finally:
                    self.remove_resource(name, **arguments)

            return presented(prepared, test)

        def prepared_sync(case: Any, **arguments: Any) -> None:
            name, resources = self._create(arguments)
            try:
                test(case, **accepted(test, {**arguments, **resources}))
            finally:
                self.remove_resource(name, **arguments)

        return presented(prepared_sync, test)

    def create_resource(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Make it; returns what the test gets as arguments."""
        raise NotImplementedError

    def remove_resource(self, name: str, **arguments: Any) -> None:
        """Remove it."""

    def create_mgmt_client(self, client_class: type, **options: Any) -> Any:
        """A client of the resource manager."""
        return client_class(**options)

    def set_cache(self, *_: Any) -> None:
        """Declare resources shared by several tests: there are none."""

    def _create(self, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        prefix = self.name_prefix[: self.random_name_length - 8]
        self.moniker = name = prefix + secrets.token_hex(4)
        return name, self.create_resource(name, **arguments)


class PowerShellPreparer(AzureMgmtPreparer):
    """Gives the test an existing namespace with its keys; here it is made for the test.

    Args:
        directory: the service's name.
        fakes: arguments of the tests, with what they are in a recording.
    """

    def __init__(self, directory: str, **fakes: str) -> None:
        super().__init__(directory)
        self._wanted = fakes

    def create_resource(self, name: str, **_: Any) -> dict[str, Any]:
        """Start a namespace."""
        here.create(name)
        known = {
            "servicebus_connection_str": here.connection_string(name),
            "servicebus_fully_qualified_namespace": name + SUFFIX,
            "servicebus_sas_policy": KEY_NAME,
            "servicebus_sas_key": KEY,
        }
        return self._wanted | known

    def remove_resource(self, name: str, **_: Any) -> None:
        """End the namespace."""
        here.delete(name)


class CachedResourceGroupPreparer(AzureMgmtPreparer):
    """Groups matter to nothing here."""

    def create_resource(self, name: str, **_: Any) -> dict[str, Any]:
        """Name a group."""
        return {"resource_group": FakeResource(name, name)}


RandomNameResourceGroupPreparer = CachedResourceGroupPreparer


def get_credential(*, is_async: bool = False) -> Any:
    """The credential of the namespace: its key, since there is no Entra ID here to give tokens."""
    handler = import_module(
        "azure.servicebus.aio._base_handler_async" if is_async else "azure.servicebus._base_handler"
    )
    return handler.ServiceBusSharedKeyCredential(KEY_NAME, KEY)


def recorded_by_proxy(test: _Test) -> _Test:
    """Wrap a test whose HTTP requests could be recorded; they never are."""

    def unrecorded(*arguments: Any, **named: Any) -> Any:
        return test(*arguments, **accepted(test, named))

    return presented(unrecorded, test)


def get_region_override(default: str) -> str:
    """The region of Azure."""
    return default


def add_general_regex_sanitizer(**_: Any) -> None:
    """Keep something out of recordings."""


def set_custom_default_matcher(**_: Any) -> None:
    """Say which recording answers a request."""


def presented(wrapper: _Test, test: _Test) -> _Test:
    """Let pytest see the test's name and marks, and of its arguments only those that pytest is to fill."""
    functools.update_wrapper(wrapper, test)
    del wrapper.__dict__["__wrapped__"]
    given = [each for each in inspect.signature(test).parameters.values() if each.name in _PARAMETERS]
    case = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(wrapper)["__signature__"] = inspect.Signature([case, *given])
    vars(wrapper)["_accepts"] = vars(test).get("_accepts") or inspect.signature(test)
    vars(wrapper)["needs_a_namespace"] = True
    return wrapper


def accepted(test: _Test, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a test takes."""
    parameters = (vars(test).get("_accepts") or inspect.signature(test)).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}
