"""What the function of a routine is called with: its turn (F19)."""

import inspect
from collections.abc import Callable
from typing import Any

from holdfast.jobs.outcome import Snooze, Wait
from holdfast.jobs.payload import called
from holdfast.jobs.routines import Turned
from holdfast.worker.handler import CurrentJob, current_job


class RoutineTurn:
    """The only argument of a routine's function: one turn of one of its parts."""

    def __init__(self, routine: str, index: int, scale: int, number: int, job: CurrentJob) -> None:
        self.routine = routine
        self.index = index  # which part it is, from 0
        self.scale = scale  # how many parts there are
        self.number = number  # of this turn among those of its part, from 1
        self._job = job

    @property
    def job(self) -> CurrentJob:
        """The job of this turn: its id, attempt, log and progress."""
        return self._job

    @property
    def checkpoint(self) -> Any:
        """What this turn or one before it of the same part saved last, or None. Assigning a value that JSON can hold saves it.

        It is stored when the assignment returns, and stays when the turn fails or its worker dies. Once another worker has
        taken the turn over, assigning changes nothing.
        """
        return self._job.checkpoint

    @checkpoint.setter
    def checkpoint(self, value: Any) -> None:
        self._job.checkpoint = value

    @property
    def cancelled(self) -> bool:
        """Its time is over, it was aborted, or its worker stops: whatever it returns from now on is ignored."""
        return self._job.cancelled

    def __repr__(self) -> str:
        return f"RoutineTurn(routine={self.routine!r}, index={self.index}, scale={self.scale}, number={self.number})"


def called_with_turn(function: Callable[..., Any]) -> Callable[..., Any]:
    """The handler of a routine's job type."""
    function = called(function)
    if inspect.iscoroutinefunction(function):

        async def turn(routine: str, index: int, scale: int, number: int) -> Any:
            try:
                return _ended(await function(RoutineTurn(routine, index, scale, number, current_job())))
            except Snooze as snooze:
                return Turned(None, snooze.delay)

        return turn

    def turn_in_thread(routine: str, index: int, scale: int, number: int) -> Any:
        try:
            return _ended(function(RoutineTurn(routine, index, scale, number, current_job())))
        except Snooze as snooze:
            return Turned(None, snooze.delay)

    return turn_in_thread


def _ended(value: Any) -> Any:
    """One that returned `WAIT` has not ended: its answer ends it."""
    return value if isinstance(value, Wait) else Turned(value)
