"""Holds: people keep tasks from starting, tasks from being made, or workflows from being submitted (F17).

- A hold is a row. Claims look at it only when they meet a task: that task then leaves the line for `held`, so that it is
  in nobody's way, wherever it came from (new, retried, loose). Claims of other jobs do not know of holds.
- What a worker has claimed ahead and not begun it hands back, as soon as it hears of the hold.
- A release takes effect with its first transaction. What it brings forward (tasks back into the line, tasks to be made)
  comes in lots after it; as long as that is not done the row stays, marked, and a sweeper goes on with it.
- On PostgreSQL who puts a task into `held`, or leaves tasks unmade, has the hold locked, so that a release comes before
  or after it.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from holdfast.errors import Conflict, NotFound, backticked
from holdfast.jobs import holds
from holdfast.jobs.holds import Hold, Level
from holdfast.stores.adding import Adding
from holdfast.stores.contract import News
from holdfast.stores.statements import RowDict

LOT = 10_000  # tasks that come back in one transaction
RUNS = 100  # runs whose tasks are made in one
IN_THE_WAY = 1000  # of the line that is looked at when a claim has met a task that is held


class Holding(Adding):
    """Adds the verbs about holds."""

    # Looking

    def holds(self) -> Sequence[Hold]:
        """What is held, the oldest first."""
        with self.lone():
            return [self._hold_of(row) for row in self.rows("holds")]

    def holds_of(self, workflow: str, run: int | None) -> tuple[Hold, ...]:
        """Those that one run, or (None) new ones of a workflow, are kept back by."""
        return tuple(self._hold_of(row) for row in self.rows("holds_of", {"workflow": workflow, "run": run}))

    def _hold_of(self, row: RowDict) -> Hold:
        workflow, trigger = row["workflow"] or None, row["trigger"] or None
        return Hold(Level(row["level"]), workflow, trigger, row["actor"], self._known(row["hold_time"]))

    # Acting

    def hold(self, level: Level, workflow: str | None, trigger: str | None, actor: str) -> Hold:
        """Hold something from now on; what is held already stays held by whoever did so first."""
        with self.work():
            scope = self._scope(level, workflow, trigger)
            if self.run("add_hold", {**scope, "actor": actor, "now": self.time(self.now())}):
                self._audit(actor, "hold", detail=f"{level}: {holds.scope_words(workflow, trigger)}")
                self.tell(News.ABORT)  # to workers that have claimed ahead
            return self._hold_of(self.rows("hold", scope)[0])

    def _scope(self, level: Level, workflow: str | None, trigger: str | None) -> dict[str, Any]:
        """As it is stored: an empty text for everything. `NotFound` for what nobody knows."""
        scope = {"level": level.value, "workflow": workflow or "", "trigger": trigger or "", "run": None}
        if trigger is not None:
            for row in self.rows("run_of", scope):
                return scope | {"run": row["id"]}
            raise NotFound(
                f"There is no run {backticked(trigger)} of workflow {backticked(workflow)} in instance `{self.instance}`."
            )
        if workflow is not None and not self.rows("knows_workflow", scope):
            raise NotFound(
                f"There is no workflow {backticked(workflow)} in instance `{self.instance}`: no code has declared it and it has no runs."
            )
        return scope

    def release(self, level: Level, workflow: str | None, trigger: str | None, actor: str) -> None:
        """Let go on what was held; what other holds still cover stays."""
        scope = {"level": level.value, "workflow": workflow or "", "trigger": trigger or ""}
        with self.work():
            if not self.run("release_hold", scope):
                raise NotFound(self._not_held(level, workflow, trigger))
            self._audit(actor, "release", detail=f"{level}: {holds.scope_words(workflow, trigger)}")
            if level is Level.SUBMIT:
                self.run("wake_schedules")
                self.tell(News.SCHEDULES)
        self.bring_forward()

    def _not_held(self, level: Level, workflow: str | None, trigger: str | None) -> str:
        others = [f"`{hold.level}` of {hold.scope}" for hold in map(self._hold_of, self.rows("holds"))]
        held = f"Held are: {', '.join(others)}." if others else "Nothing is held."
        return f"`{level}` of {holds.scope_words(workflow, trigger)} is not held. {held}"

    def refuse_submission(self, workflow: str) -> None:
        """`Conflict` while submitting the workflow is held."""
        for hold in self.holds_of(workflow, None):
            if hold.level is Level.SUBMIT:
                raise Conflict(
                    f"Submitting {hold.scope} is held by {hold.actor} since {hold.hold_time:%Y-%m-%d %H:%M:%S}Z. "
                    f"`{hold.release}` lets it go on."
                )

    # Bringing forward

    def bring_forward(self) -> int:
        """Do what releases have left to do; how many tasks came back, or runs went on."""
        count = 0
        while True:
            with self.work():
                releasing = self.rows("lock_releasing")
                if not releasing:
                    return count
                count += self._bring_lot(releasing[0])

    def _bring_lot(self, hold: RowDict) -> int:
        scope = {name: hold[name] for name in ("level", "workflow", "trigger")}
        if hold["level"] == Level.PICK:
            moved, last = self._take_back_held(hold), LOT
        elif hold["level"] == Level.CREATE:
            moved, last = self._make_again(hold), RUNS
        else:
            moved, last = 0, 1
        if moved < last:
            self.run("drop_hold", scope)
        return moved

    def _take_back_held(self, hold: RowDict) -> int:
        params = {"workflow": hold["workflow"], "run": hold["run"], "limit": LOT}
        self.run("place_back_held", {**params, "now": self.time(self.now())})
        moved = self.rows("take_back_held", {**params, "now": self.time(self.now())})
        if moved:
            self.announce([])
        return len(moved)

    def _make_again(self, hold: RowDict) -> int:
        """Runs whose steps wait for tasks to be made, in the order of their ids."""
        params = {"workflow": hold["workflow"], "run": hold["run"], "after": hold["releasing"], "limit": RUNS}
        runs = [row["id"] for row in self.rows("runs_to_fill", params)]
        for run in runs:
            self.fill_run(run)
        if runs:
            scope = {name: hold[name] for name in ("level", "workflow", "trigger")}
            self.run("note_releasing", {**scope, "releasing": runs[-1]})
        return len(runs)

    @abstractmethod
    def fill_run(self, run: int) -> None:
        """Make the tasks that a run waits for. Written where runs are known."""

    # Claiming

    def held_among(self, queue: str, ids: Sequence[int]) -> list[RowDict]:
        """The tasks among these jobs that may not start now."""
        found = {row["id"]: row for row in self.rows("held_tasks", {"ids": self.pack(sorted(ids))}, queue)}
        return list(found.values())  # several holds may cover one

    def put_held(self, queue: str, tasks: Sequence[RowDict]) -> None:
        """They are to be looked for among what is held. They have left the line before."""
        names = ("run", "id", "job_type")
        for row in tasks:
            params = {name: row[name] for name in names} | {"workflow": row["job_type"].partition(".")[0]}
            self.run("put_held", {**params, "queue": queue})

    def hold_back(self, queue: str, rows: Sequence[RowDict]) -> set[int]:
        """Tasks that may not start leave the line, or the lane in which they stand aside; their ids. Inside a claim."""
        standing = {row["id"]: row for row in rows if "." in row["job_type"]}  # as the types of tasks are written
        held = self.held_among(queue, list(standing)) if standing else []
        for row in held:
            place = standing[row["id"]]
            if "lane" in place:
                self.run("drop_aside", {"id": row["id"]})
            else:
                self.run("drop_ready", {"queue": queue, **{name: place[name] for name in ("major", "minor", "id")}})
        self.put_held(queue, held)
        return {row["id"] for row in held}

    def clear_line(self, queue: str) -> None:
        """A claim has met a task that is held: others of them leave the head of the line, too."""
        with self.work():
            self.hold_back(queue, self.rows("tasks_in_line", {"queue": queue, "limit": IN_THE_WAY}))
