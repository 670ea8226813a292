"""What only some processes need, loaded when it is first asked for: whoever only enqueues starts in half the time.

Imports stand inside the functions here, and only here and where a database's driver is chosen.
"""

import contextlib
import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from holdfast.clock import Clock
from holdfast.jobs.facts import Facts
from holdfast.jobs.reasons import Explanation
from holdfast.stores.contract import RunRow, Store
from holdfast.worker.handler import Handler
from holdfast.worker.settings import Chore, WorkerSettings
from holdfast.workflows.definition import Definition
from holdfast.workflows.reasons import StepExplanation

Answer = TypeVar("Answer")
Question = TypeVar("Question")
Asked = TypeVar("Asked", contravariant=True)
Told = TypeVar("Told", covariant=True)


class Gathered(Protocol[Asked, Told]):
    """Asks for tasks of event loops; `holdfast.gathering` has it."""

    async def ask(self, question: Asked, /) -> Told: ...


class Worker(Protocol):
    """A worker, as its users know it; `holdfast.worker.worker` has it."""

    id: int
    failure: str | None  # why it has ended without being asked to

    @property
    def attempts(self) -> int:
        """How many jobs it has claimed so far."""
        ...

    @property
    def stopping(self) -> bool: ...

    def start(self) -> None:
        """Join the instance and begin to work."""
        ...

    def stop(self, hurry: bool = False) -> None:
        """No new claims; wait for the grace period (`hurry`: not); hand back the rest."""
        ...

    def stopped(self, timeout: float | None = None) -> bool:
        """Wait until it has stopped."""
        ...

    def run_until_idle(self, max_jobs: int) -> int: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: Any) -> None: ...


def new_worker(
    store: Store,
    handlers: Mapping[str, Handler],
    settings: WorkerSettings,
    clock: Clock,
    version: str,
    chores: Sequence[Chore] = (),
) -> Worker:
    from holdfast.worker.worker import Worker as RealWorker

    return RealWorker(store, handlers, settings, clock, version, chores)


def run_until_signal(worker: Worker) -> None:
    from holdfast.worker import signals

    signals.run_until_signal(worker)


def explain(facts: Facts) -> Explanation:
    from holdfast.jobs import explain as explaining

    return explaining.explain(facts)


def explain_step(row: RunRow, step: str, now: datetime, task: Facts | None = None) -> StepExplanation:
    """Why a step of a run is not done; `task`: its first task that is not."""
    from holdfast.workflows import explain as explaining

    stored = {each.counts.name: each for each in row.steps}
    return explaining.explain(
        explaining.StepFacts(
            definition=row.definition,
            rows={name: each.counts for name, each in stored.items()},
            step=step,
            now=now,
            holds=row.holds,
            items_job=stored[step].items_job,
            aborted=row.aborted,
            task="" if task is None else explain(task).text,
        )
    )


def read_definition(path: str | Path) -> Definition:
    """A workflow's definition from a JSON, TOML or YAML file."""
    from holdfast import workflow_files

    return workflow_files.read_definition(path)


def gathering(
    ask_all: Callable[[Sequence[Question], float], Sequence[Answer | Exception]], patience: float
) -> Gathered[Question, Answer]:
    """What tasks of an event loop ask at the same time is asked at once, until the moment at which their patience ends."""
    from holdfast.gathering import Gathering

    return Gathering(ask_all, patience)


async def rest(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


async def in_thread(action: Callable[..., Answer], *values: Any) -> Answer:
    """Call what blocks without blocking the event loop."""
    import asyncio

    return await asyncio.to_thread(action, *values)


async def apart(action: Callable[..., Answer], *values: Any) -> Answer:
    """The same in a thread that nobody waits for when the process ends: what it calls may never come back."""
    import asyncio

    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Answer] = loop.create_future()

    def tell(kept: Callable[[Any], None], value: object) -> None:
        if not ended.done():  # else it was cancelled
            kept(value)

    def call() -> None:
        found: tuple[Callable[[Any], None], object]
        try:
            found = ended.set_result, action(*values)
        except StopIteration as error:  # which a future does not take
            found = ended.set_exception, RuntimeError(repr(error))
        except BaseException as error:
            found = ended.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, *found)

    threading.Thread(target=contextvars.copy_context().run, args=(call,), name="holdfast-apart", daemon=True).start()
    return await ended
