"""What people do to a run: retry it, abort it (F16)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import structs

from holdfast.errors import Conflict, Unavailable
from holdfast.stores.contract import NewJob, RunRow, RunStep
from holdfast.stores.running import RunHead, Running, keys_of
from holdfast.stores.runs import MOST
from holdfast.workflows import states
from holdfast.workflows.plan import STARTED, StepRow, as_step, overview, plan
from holdfast.workflows.states import STEP_STATES, StepState, WorkflowState


class Acting(Running):
    """Adds the verbs that interfere with runs."""

    def retry_run(self, run: int, actor: str) -> RunRow:
        """Undo what erred and run it again; what failed stays (F16)."""
        with self.work():
            head, row = self.locked_head(run), self._run_by_id(run)
            self.refuse_damaged(row)
            if row.state is not WorkflowState.ERROR:
                raise Conflict(f"{row.title} is `{row.state}`; only one that ended in `ERROR` is retried.")
            self.refuse_living(row, "retried")
            self._refuse_second(row.definition)
            self._audit(actor, "retry", detail=row.title)
            self.run("end_abort", {"id": run})
            # As if something was published: its tasks are told anew what the steps before them came to.
            head = structs.replace(head, aborted=False, publication=head.publication + 1)
            known = {step.counts.name: structs.replace(step, items_job=None) for step in row.steps}
            steps, jobs = self._undone_again(head, known)
            for name, step in known.items():
                self.run("put_items", {"run": run, "name": name, "items_job": None, "cursor": step.cursor})
            if jobs:
                self.insert(jobs)
            may_create = not self._creation_held(head, row.steps)
            planned = plan(row.definition, steps, row.ignore, may_create)
            self._carry_out(head, planned, known, ())
            return self._run_by_id(run)

    def _undone_again(self, head: RunHead, known: Mapping[str, RunStep]) -> tuple[list[StepRow], list[NewJob]]:
        """The steps as they are after a retry, and their erred tasks as new jobs; of later phases these come with their phase (F11)."""
        jobs: list[NewJob] = []
        steps: list[StepRow] = []
        retried = states.retry([as_step(head.shape.steps[name], each.counts) for name, each in known.items()])
        phase = min((step.phase for step in retried if not STEP_STATES[step.state].done), default=0)
        for step in retried:
            was = known[step.name].counts
            counts = structs.replace(was, state=step.state)
            if was.state is StepState.ERROR:
                erred = self.erred_again(head, step.name)
                jobs += erred if step.phase == phase else ()
                counts = structs.replace(counts, undone=len(erred), errors=0)
            steps.append(counts)
        return steps, jobs

    def abort_run(self, run: int, actor: str) -> RunRow:
        """End everything of it that is not done (F16). Its jobs are aborted afterwards, one by one; a sweeper goes on with
        that if we cannot.
        """
        with self.work():
            head, row = self.locked_head(run), self._run_by_id(run)
            self.refuse_damaged(row)
            if head.over:
                raise Conflict(f"{row.title} is `{row.state}` already: it cannot be aborted.")
            self._audit(actor, "abort", detail=row.title)
            known = {step.counts.name: step for step in row.steps}
            ended = states.abort([as_step(head.shape.steps[name], step.counts) for name, step in known.items()])
            counts = self._none_waits(head, {name: step.counts for name, step in known.items()})
            steps = [structs.replace(counts[end.name], state=end.state) for end in ended]
            self._put_run(structs.replace(head, aborted=True), overview(row.definition, steps), known, steps)
            self.run("begin_abort", {"id": run, "actor": actor})
        self.abort_tasks(run, actor)
        return self.run_by_id(run)

    def _none_waits(self, head: RunHead, counts: Mapping[str, StepRow]) -> dict[str, StepRow]:
        """What a retry left to a later phase has no jobs yet that could be aborted: it is erred again."""
        declared = head.shape.steps
        undone = [declared[name].phase for name, each in counts.items() if not STEP_STATES[each.state].done]
        return {
            name: structs.replace(each, undone=0, errors=each.errors + each.undone)
            if each.state in STARTED and declared[name].phase > min(undone)
            else each
            for name, each in counts.items()
        }

    def abort_tasks(self, run: int, actor: str) -> int:
        """Abort the living jobs of a run that was aborted; how many. Those that somebody has locked come last: they are waited for."""
        count, busy = 0, set[int]()
        while True:
            with self.work():
                unasked = self._tasks_of("unasked_tasks", self._run_by_id(run), but=self.pack(sorted(busy)))
                _, locked = self._lock_free(unasked)
            count += self._abort_all([job_id for job_id in unasked if job_id not in locked], actor)
            busy |= locked
            if len(unasked) < MOST:
                count += self._abort_all(sorted(busy), actor)
                with self.work():
                    self.run("end_abort", {"id": run})
                return count

    def _abort_all(self, ids: Sequence[int], actor: str) -> int:
        count = 0
        for job_id in ids:
            with suppress(Conflict):  # it ended meanwhile
                self.abort(job_id, actor)
                count += 1
        return count

    def first_undone(self, row: RunRow, step: str) -> int | None:
        """Of a step's jobs that are not final, the one made first."""
        return min(self._tasks_of("living_tasks", row, steps=[step]), default=None)

    def _tasks_of(
        self, name: str, row: RunRow, limit: int = MOST, steps: Sequence[str] | None = None, **more: object
    ) -> list[int]:
        wanted = [step.name for step in row.definition.steps] if steps is None else steps
        types = self.words([f"{row.workflow}.{step}" for step in wanted])
        params = {"types": types, "limit": limit, **keys_of(row.id, row.trigger), **more}
        return [each["id"] for each in self.rows(name, params)]

    def refuse_living(self, row: RunRow, what: str) -> None:
        """A run that was aborted is done before all its jobs are, and so may be one whose items were all made."""
        if self.has_living(row):
            raise Conflict(f"{row.title} is done, and jobs of it still run. It can be {what} when they have ended.")

    def has_living(self, row: RunRow) -> bool:
        return bool(self._tasks_of("living_tasks", row, 1))

    def go_on_aborting(self) -> int:
        """Abort the tasks of aborted runs that nobody has aborted yet; how many. A run that somebody keeps makes no other wait."""
        with self.lone():
            found = self.rows("aborting_runs", {"limit": MOST})
        count, kept = 0, None
        for row in found:
            try:
                count += self.abort_tasks(row["id"], row["aborting"])
            except Unavailable as error:
                if not error.locked:
                    raise
                kept = error
        if kept is not None:
            raise kept
        return count
