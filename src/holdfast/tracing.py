"""OpenTelemetry spans from enqueue to end, where the program has loaded its SDK; without it nothing here costs anything.

- An enqueue is a producer's span. Its context is stored beside the job, in the enqueue's own transaction.
- Each attempt is a consumer's span below it, in whatever process it runs, with the outcome of the attempt.
- OpenTelemetry is imported inside functions: it is an extra.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

NAME = "holdfast"
SDK = "opentelemetry.sdk.trace"


def loaded() -> bool:
    """Whether this program traces: somebody has imported the SDK, without which spans go nowhere."""
    return SDK in sys.modules


@contextmanager
def enqueueing(job_types: list[str]) -> Iterator[str | None]:
    """A span around an enqueue; gives its context as text, or None where nothing is traced."""
    if not loaded():
        yield None
        return
    from opentelemetry import propagate, trace

    kinds = sorted(set(job_types))
    title = f"enqueue {kinds[0]}" if len(kinds) == 1 else "enqueue"
    attributes: dict[str, str | int] = {"messaging.system": NAME, "messaging.operation.type": "send"}
    attributes["holdfast.jobs"] = len(job_types)
    with trace.get_tracer(NAME).start_as_current_span(title, kind=trace.SpanKind.PRODUCER, attributes=attributes):
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        yield msgspec.json.encode(carrier).decode() if carrier else None


@contextmanager
def attempt(
    job: Any, context: str | None, clean: Callable[[str], str], harmless: tuple[type[BaseException], ...]
) -> Iterator[None]:
    """A span around an attempt. Texts of exceptions are cleaned of secrets; `harmless` ones are no errors."""
    from opentelemetry import propagate, trace

    parent = propagate.extract(msgspec.json.decode(context)) if context else None
    attributes = {
        "messaging.system": NAME,
        "messaging.operation.type": "process",
        "messaging.destination.name": job.queue,
        "holdfast.job.id": job.id,
        "holdfast.job.type": job.job_type,
        "holdfast.job.attempt": job.attempt,
    }
    with trace.get_tracer(NAME).start_as_current_span(
        job.job_type,
        context=parent,
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except harmless:
            raise
        except BaseException as error:
            text = clean(str(error))
            span.add_event("exception", {"exception.type": clean(type(error).__qualname__), "exception.message": text})
            span.set_status(trace.Status(trace.StatusCode.ERROR, text))
            raise
