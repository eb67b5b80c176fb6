"""``%sb_triage`` in JupyterLab with 10,000 and 100,000 dead letters: how long until a user sees some, and has all.

Their descriptions are one line, or stack traces of 2.4 to 3.6 kB from 40 places in the code of an application.

Emulator, server, kernel and Chromium are processes of their own on the same machine; each size has a fresh kernel and
page, which has connected and nothing more. It is measured in the page, from the request to run the cell: until the
first row can be read, and until all rows are there with their causes and nothing is peeked any more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from benchmarks.emulators import emulator
from benchmarks.results import Result, show
from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection
from tests.browser.conftest import Lab, chromium, run_notebook, running_lab

__all__ = ["measure"]

AREAS: Final = ("orders", "billing", "flights", "rates", "mail", "stock", "claims", "crews", "gates", "bags")
JAVA: Final = (
    "com.acme.{0}.Rules.check(Rules.java:77)",
    "com.acme.{0}.Handler.lambda$handle$3(Handler.java:31)",
    "java.base/java.util.stream.ReferencePipeline$3$1.accept(ReferencePipeline.java:197)",
    "java.base/java.util.stream.AbstractPipeline.wrapAndCopyInto(AbstractPipeline.java:499)",
    "com.acme.{0}.Handler$$EnhancerBySpringCGLIB$$9d2f6a1b.handle(<generated>)",
    "org.springframework.aop.framework.CglibAopProxy$CglibMethodInvocation.proceed(CglibAopProxy.java:765)",
    "org.springframework.transaction.interceptor.TransactionInterceptor.invoke(TransactionInterceptor.java:119)",
    "org.springframework.messaging.handler.invocation.InvocableHandlerMethod.doInvoke(InvocableHandlerMethod.java:169)",
    "com.azure.messaging.servicebus.ServiceBusProcessorClient.lambda$receive$8(ServiceBusProcessorClient.java:530)",
    "reactor.core.publisher.FluxPublishOn$PublishOnSubscriber.runAsync(FluxPublishOn.java:440)",
    "java.base/java.util.concurrent.ThreadPoolExecutor.runWorker(ThreadPoolExecutor.java:1136)",
)
DOTNET: Final = (
    "Acme.{0}.Rules.<CheckAsync>d__4.MoveNext() in /src/Acme.{0}/Rules.cs:line 77",
    "System.Runtime.ExceptionServices.ExceptionDispatchInfo.Throw()",
    "System.Runtime.CompilerServices.TaskAwaiter.HandleNonSuccessAndDebuggerNotification(Task task)",
    "Acme.{0}.Handler.<>c__DisplayClass4_0.<<HandleAsync>b__0>d.MoveNext() in /src/Acme.{0}/Handler.cs:line 31",
    "Microsoft.EntityFrameworkCore.Storage.ExecutionStrategy.<>c__DisplayClass30_0`2.<<ExecuteAsync>b__0>d.MoveNext()",
    "Microsoft.EntityFrameworkCore.DbContext.SaveChangesAsync(Boolean acceptAllChangesOnSuccess)",
    "Azure.Messaging.ServiceBus.ReceiverManager.ProcessOneMessage(ServiceBusReceivedMessage message)",
)
PYTHON: Final = (
    """File "/usr/local/lib/python3.11/site-packages/azure/functions/worker/dispatcher.py", line 484, in handle
    call_result = await self._run_async_func(fi_context, fi.func, args)""",
    """File "/usr/local/lib/python3.11/site-packages/azure/functions/worker/extension.py", line 147, in get_result
    result = await function(**params)""",
    """File "/usr/local/lib/python3.11/site-packages/sqlalchemy/orm/session.py", line 2127, in execute
    return self._execute_internal(statement, params, execution_options=execution_options)""",
    """File "/home/site/wwwroot/{0}/handler.py", line 31, in handle
    check(order, rules=self.rules.of(order.carrier))""",
    """File "/home/site/wwwroot/{0}/rules.py", line 77, in check
    raise LookupError(f"no tail number: {order}")""",
)


def frames_as(begin: str, frames: Sequence[str]) -> str:
    """Return the frames of a trace."""
    return "".join(f"\n{begin}{frame}" for frame in frames)


TRACES: Final = (
    "org.springframework.messaging.MessageHandlingException: error in [com.acme.{0}.Handler@{hex}] of {guid}"
    + frames_as("\tat ", JAVA[4:])
    + "\nCaused by: java.lang.IllegalArgumentException: Unknown carrier '{carrier}' of flight {number} at {time}"
    + frames_as("\tat ", JAVA * 2)
    + "\n\t... 23 more",
    "System.InvalidOperationException: Order {number} is late at {time} ({guid})" + frames_as("   at ", DOTNET * 5),
    "Traceback (most recent call last):"
    + frames_as("  ", PYTHON * 3)
    + "\nLookupError: no tail number '{carrier}' in trace {hex}00f0{hex}",
    "com.acme.{0}.LateException: flight {number} of {time}, request {guid}" + frames_as("\tat ", JAVA * 3),
)


class Letters(NamedTuple):
    """Dead letters.

    Args:
        what: of their descriptions, in the name of the result.
        describe: makes the description of each from its number.
        most: by how many messages there are, seconds until all can be used.
    """

    what: str
    describe: Callable[[int], str]
    most: dict[int, float]


def one_line(number: int) -> str:
    """Return a description without a trace."""
    return f"Flight {number} has no tail number"


def stack_trace(number: int) -> str:
    """Return a description with the trace of one of 40 faults."""
    text = TRACES[number % len(TRACES)].replace("{0}", AREAS[number // len(TRACES) % len(AREAS)])
    values = {
        "{number}": str(number),
        "{guid}": str(UUID(int=number * 2**90 + 7**40)),
        "{carrier}": f"U{number % 97}",
        "{time}": f"2026-11-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:07.{number % 1000:03}Z",
        "{hex}": f"{number * 2654435761 % 2**32:08x}",
    }
    for name, value in values.items():
        text = text.replace(name, value)
    return text


LETTERS: Final = (
    Letters("messages", one_line, {10_000: 3.0, 100_000: 5.0}),
    Letters("messages with stack traces", stack_trace, {100_000: 10.0}),
)
REASONS: Final = ("Invalid", "Late", "Unknown carrier", "Expired")
CONNECT: Final = "%load_ext sbnotebook\n%sb_connect env:SBNOTEBOOK_CONNECTION"
WAIT: Final = """async (count) => {
    const started = performance.now();
    const book = window.jupyterapp.shell.currentWidget.content;
    book.activeCellIndex = 1;
    window.jupyterapp.commands.execute('notebook:run-cell');
    const until = async (test) => {
        while (!test()) await new Promise((resolve) => setTimeout(resolve, 5));
        return (performance.now() - started) / 1000;
    };
    const said = (text) => [...document.querySelectorAll('.sbn-text')].some((each) => each.textContent.includes(text));
    const first = await until(() => document.querySelector('.sbn-row .sbn-cell')?.textContent);
    const store = document.querySelector('.sbn-table').store;
    const all = `${count.toLocaleString('en-US')} messages, peeked at`;
    const every = await until(() => store.rowCount === count && said(all) && store.causes.size);
    return [first, every];
}"""


def measure() -> list[Result]:
    """Measure each kind of dead letters."""
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        emulator() as (connection_string, _),
        running_lab(Path(home)) as lab,
    ):
        for place, letters in enumerate(LETTERS):
            for count in letters.most:
                name = f"bench-{place}-{count}"
                _fill(connection_string, name, letters, count)
                results.append(_measured(lab, connection_string, name, letters, count))
    return results


def _fill(connection_string: str, name: str, letters: Letters, count: int) -> None:
    """Send messages with the properties of dead letters, which look the same to a reader."""

    def letter(number: int) -> Message:
        reason = REASONS[number % len(REASONS)]
        fault = {"DeadLetterReason": reason, "DeadLetterErrorDescription": letters.describe(number)}
        body = f'{{"flight": {number}, "carrier": "UA", "note": "{"x" * 200}"}}'.encode()
        return Message(body=body, message_id=f"m{number}", subject="flight", application_properties=fault)

    with Namespace(Target(Connection(connection_string), ""), archive=False) as namespace:
        namespace.create_queue(name)
        namespace.entity(name).send(map(letter, range(count)), show_progress=False).raise_for_failures()


def _measured(lab: Lab, connection_string: str, name: str, letters: Letters, count: int) -> Result:
    set_up = f"import os; os.environ['SBNOTEBOOK_CONNECTION'] = {connection_string!r}"
    with chromium() as browser:
        notebook = run_notebook(browser, lab, [f"{set_up}\n{CONNECT}", "pass"])
        notebook.page.evaluate(
            "(code) => window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.setSource(code)",
            f"%sb_triage {name}",
        )
        first, every = notebook.page.evaluate(WAIT, count)
        largest = notebook.largest / 1e6
        notebook.close()
    most = letters.most[count]
    return Result(
        f"%sb_triage of {count:,} {letters.what} in JupyterLab, until all of them and their causes are there",
        f"{every:.2f} s, the first rows after {first:.2f} s; the largest message {largest:.2f} MB",
        f"at most {most:.0f} s",
        every <= most,
    )


if __name__ == "__main__":
    show(measure())
