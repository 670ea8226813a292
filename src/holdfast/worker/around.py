"""What an app wraps around every attempt: generator functions that yield once, while the handler runs."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any

from holdfast import tracing
from holdfast.errors import Invalid
from holdfast.jobs import damage
from holdfast.jobs.outcome import Snooze
from holdfast.stores.contract import Claimed
from holdfast.worker.handler import CALL, CurrentJob, Handler, decode_any

Around = Callable[[Any], Any]
MISUSED = "generator didn't "  # how contextlib begins to say so


class WrappedJob(CurrentJob):
    """The job of the attempt that is wrapped: what `current_job()` gives, and its payload."""

    def __init__(self, call: Claimed) -> None:
        super().__init__(call)
        found = damage.read(decode_any, call.payload)
        self._payload: dict[str, Any] = found if isinstance(found, dict) else {}  # a damaged one reaches no handler

    @property
    def payload(self) -> Mapping[str, Any]:
        """The handler's arguments as they are stored."""
        return self._payload


def traced(job: WrappedJob) -> Iterator[None]:
    """The around of a program that traces: a span for each attempt."""
    with tracing.attempt(job, job._call.trace, job._call.hidden.apply, (Snooze,)):
        yield


class WrappedHandler(Handler):
    """A handler of an app that wraps its attempts. The first one declared is the outermost."""

    arounds: tuple[Around, ...] = ()

    def begin(self, call: Claimed) -> Any:
        self.prepare(call)
        job = WrappedJob(call)
        function = self.function if call.answer is None else self.response_handler
        if inspect.iscoroutinefunction(function):
            return self._awaited(call, call.payload, job)
        with ExitStack() as stack:
            for around in self.arounds:
                stack.enter_context(Wrapping(around, job))
            return super().begin(call)

    async def _awaited(self, call: Claimed, payload: str, job: WrappedJob) -> Any:
        CALL.set(call)
        async with AsyncExitStack() as stack:
            for around in self.arounds:
                if inspect.isasyncgenfunction(around):
                    await stack.enter_async_context(AsyncWrapping(around, job))
                else:
                    stack.enter_context(Wrapping(around, job))
            call.payload = payload  # the runner has let it go since
            coroutine = super().begin(call)
            call.payload = ""
            return await coroutine


class Wrapping:
    """One around and one attempt."""

    def __init__(self, around: Around, job: WrappedJob) -> None:
        self._around = around
        self._manager = contextmanager(around)(job)

    def __enter__(self) -> None:
        try:
            self._manager.__enter__()
        except RuntimeError as error:
            refuse_misuse(self._around, error)
            raise

    def __exit__(self, *error: Any) -> bool | None:
        try:
            return self._manager.__exit__(*error)
        except RuntimeError as broken:
            refuse_misuse(self._around, broken)
            raise


class AsyncWrapping:
    """One `async def` around and one attempt."""

    def __init__(self, around: Around, job: WrappedJob) -> None:
        self._around = around
        self._manager = asynccontextmanager(around)(job)

    async def __aenter__(self) -> None:
        try:
            await self._manager.__aenter__()
        except RuntimeError as error:
            refuse_misuse(self._around, error)
            raise

    async def __aexit__(self, *error: Any) -> bool | None:
        try:
            return await self._manager.__aexit__(*error)
        except RuntimeError as broken:
            refuse_misuse(self._around, broken)
            raise


def refuse_misuse(around: Around, error: RuntimeError) -> None:
    """`Invalid` if that is what the error says: that there was not one yield, but none or two."""
    if str(error).startswith(MISUSED):
        how = "did not yield" if "yield" in str(error) else "yielded twice"
        raise Invalid(
            f"@app.around `{name_of(around)}` {how}. It must yield exactly once: that is when the handler runs."
        ) from None


def check_around(around: Any) -> None:
    """`Invalid` unless it is a generator function that can take the job."""
    if not inspect.isgeneratorfunction(around) and not inspect.isasyncgenfunction(around):
        raise Invalid(
            f"@app.around `{name_of(around)}` is no generator function. Write `yield` where the handler is to run, "
            "without @contextmanager."
        )
    try:
        inspect.signature(around).bind(None)
    except TypeError:
        raise Invalid(
            f"@app.around `{name_of(around)}` must take one argument, the job: `def {name_of(around)}(job): …`."
        ) from None


def wrapped(handler: Handler, arounds: Sequence[Around]) -> Handler:
    """The handler with these around its attempts; without any, the handler itself."""
    if not arounds:
        return handler
    for around in arounds:
        for function in (handler.function, handler.response_handler):
            plain = function is not None and not inspect.iscoroutinefunction(function)
            if plain and inspect.isasyncgenfunction(around):
                raise Invalid(
                    f"@app.around `{name_of(around)}` is `async def`, and `{handler.job_type}` has a plain handler, which nothing "
                    "can await. Write the around with `def`: that wraps both kinds."
                )
    fields = {name: getattr(handler, name) for name in Handler.__struct_fields__}
    return WrappedHandler(**fields, arounds=tuple(arounds))


def name_of(around: Any) -> str:
    return str(getattr(around, "__qualname__", type(around).__qualname__))
