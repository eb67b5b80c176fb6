"""``sbnotebook mcp``: the tools of an assistant over the Model Context Protocol, on standard input and output.

The protocol is that of the official SDK, https://modelcontextprotocol.io. Where a client can ask a person
('elicitation'), it asks before a plan is applied; otherwise the person confirms in the notebook.
"""

# No postponed annotations: the SDK reads those of apply, which name a function inside another.
import inspect
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any, Final

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import AcceptedElicitation, Elicit, ElicitationResult, Resolve
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from sbnotebook.client.assistant import NOTICE, Assistant, RemoteAssistant
from sbnotebook.errors import SbNotebookError

_INSTRUCTIONS: Final = (
    f"Look at queues and dead letters of Azure Service Bus. {NOTICE} You cannot change anything by yourself: plan "
    "makes a plan, and apply carries it out only after a person has confirmed its digest. An entity is such as orders, "
    "orders/$dlq or events/subscriptions/audit/$dlq. A where is a SQL expression of DuckDB over the message columns, "
    "such as dead_letter_reason = 'Invalid' and body_json.total > 5."
)


class Confirmation(BaseModel):
    """The answer of a person."""

    confirm: bool = Field(description="Carry this plan out")


def serve(assistant: Assistant | RemoteAssistant) -> None:
    """Serve the tools of an assistant until the client closes standard input. Logs go to standard error."""
    server: MCPServer[Any] = MCPServer(
        "sbnotebook",
        instructions=_INSTRUCTIONS,
        version=metadata.version("sbnotebook"),
        log_level="WARNING",
        subscriptions=False,
    )
    for name in assistant.tools:
        is_reading = name != "apply"
        hints = ToolAnnotations(read_only_hint=is_reading, destructive_hint=not is_reading, open_world_hint=False)
        function = _tool(assistant, name) if is_reading else _apply(assistant)
        server.add_tool(function, name, annotations=hints, structured_output=False)
    server.run("stdio")


def _tool(assistant: Assistant | RemoteAssistant, name: str) -> Callable[..., CallToolResult]:
    method = getattr(Assistant, name)

    def run(**arguments: Any) -> CallToolResult:
        return _called(assistant, name, arguments)

    signature = inspect.signature(method, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "self"]
    run.__dict__["__signature__"] = signature.replace(parameters=own, return_annotation=CallToolResult)
    run.__name__, run.__doc__ = name, inspect.getdoc(method)
    return run


def _apply(assistant: Assistant | RemoteAssistant) -> Callable[..., CallToolResult]:
    def ask(digest: str, context: Context[Any, Any]) -> Elicit[Confirmation] | Confirmation:
        capabilities = context.client_capabilities
        can = capabilities.elicitation if capabilities is not None else None
        if can is None or (can.form is None and can.url is not None):
            return Confirmation(confirm=False)
        try:
            question = assistant.question(digest)
        except SbNotebookError:
            question = None  # apply says why
        return Confirmation(confirm=False) if question is None else Elicit(question, Confirmation)

    def apply(digest: str, answer: Annotated[ElicitationResult[Confirmation], Resolve(ask)]) -> CallToolResult:
        try:
            if isinstance(answer, AcceptedElicitation) and answer.data.confirm:
                assistant.confirm(digest)
        except SbNotebookError as error:
            return _said(str(error), failed=True)
        return _called(assistant, "apply", {"digest": digest})

    apply.__doc__ = Assistant.apply.__doc__
    return apply


def _called(assistant: Assistant | RemoteAssistant, name: str, arguments: dict[str, Any]) -> CallToolResult:
    try:
        return _said(*assistant.call(name, arguments))
    except SbNotebookError as error:  # the notebook ended
        return _said(str(error), failed=True)


def _said(text: str, failed: bool) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)
