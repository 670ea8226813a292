"""Performs builds: what the handler of job type `build` calls.

- `await perform(order, folder, tell)` makes `<folder>` anew (it is the build's own: `<builds>/<job_id>`), clones, runs the
  steps, collects the outputs, writes `completed` and gives the `BuildResult`; failures are in it, not raised.
- `tell(change: StepChange)` is called for each move of a step, in order, on the thread of the build; what it raises is
  logged and changes nothing.
- When its job is aborted or its time is over, `perform` is cancelled: it ends every process, writes `completed` with that
  outcome and lets the cancellation pass on. When its worker stops, the job is handed back and nothing is completed.
- `conclude(result)` is what the handler returns, or raises `Failed` or `BuildError`.
"""

from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.builds.result import BuildResult
from holdfast.jobs.outcome import Failed
from holdfast.worker.building import folder as folders
from holdfast.worker.building.folder import read_completed

__all__ = ["BuildError", "conclude", "end_without_builder", "read_completed"]


class BuildError(Exception):
    """A build could not be performed, or its time was over: nothing was found out about the code."""


def conclude(result: BuildResult) -> dict[str, Any]:
    """The result of the build's job; raises `Failed` or `BuildError` where the build did not succeed."""
    if result.outcome == "failed":
        raise Failed(result.error or "failed")
    if result.outcome != "success":
        raise BuildError(result.error or result.outcome)
    return {"steps": dict(result.steps), "outputs": [output.name for output in result.outputs]}


def end_without_builder(folder: Path, outcome: str, why: str, now: datetime, commit: str | None = None) -> BuildResult:
    """The files of a build that ended while no builder had it: aborted in the queue, or lost with its builder (B3).

    `why` is a sentence for the log and for `completed`. A log that is there is kept.
    """
    result = BuildResult(outcome=outcome, error=why, commit=commit, end_time=now)
    folders.write_ended(folder, result, f"{why}\n")
    return result
