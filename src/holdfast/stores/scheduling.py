"""Schedules: what the code declares, what an operator set, and the firing of what is due (W6).

- A time is fired by whoever moves the schedule on from it, in the transaction that makes its job: once over all
  machines and restarts, whatever their clocks say.
- A schedule that cannot fire keeps its time, says why, and is looked at again a minute later; one whose workflow may
  not be submitted, when that is released. The times that it missed go by its misfire policy.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import structs

from holdfast.errors import Conflict, HoldfastError, NotFound, Unavailable
from holdfast.jobs import payload as payloads
from holdfast.jobs import schedules as rules
from holdfast.jobs.job import Job
from holdfast.jobs.schedules import Schedule
from holdfast.stores.building import Building
from holdfast.stores.contract import Fired, FiringRow, NewJob, News, ScheduleRow, TypeRow
from holdfast.stores.statements import RowDict
from holdfast.workflows.definition import SUBMITS

TOGETHER = 100  # most schedules in one look
PATIENCE = timedelta(seconds=60)  # until a schedule that could not fire is tried again
BY_ITSELF = "schedule"  # the actor of a firing that nobody asked for
MOST_BYTES = 1 << 30  # it was measured when the schedule was made
DECLARED_PARTS = ("declared_definition", "set_definition", "removed")

encode_definition = msgspec.json.Encoder(order="deterministic").encode
decode_definition = msgspec.json.Decoder(Schedule).decode


class Scheduling(Building):
    """Adds the verbs about schedules."""

    def declare_schedules(self, schedules: Sequence[Schedule]) -> None:
        """Store what the code declares, if it differs from what is stored; what an operator did stays (Q2)."""
        with self.work(write=False):
            known = {row["name"]: row["declared_definition"] for row in self.rows("schedules")}
        new = [schedule for schedule in schedules if known.get(schedule.name) != definition_text(schedule)]
        if not new:
            return
        with self.work():
            for schedule in sorted(new, key=lambda each: each.name):  # everybody locks them in the same order
                self.run("add_schedule", {"name": schedule.name, "now": self.time(self.now())})
                row = self._locked_schedule(schedule.name)
                self._change_schedule(row, declared_definition=definition_text(schedule))
            self.tell(News.SCHEDULES)

    def schedules(self) -> Sequence[ScheduleRow]:
        """Every schedule by name, also those that an operator removed and the code declares."""
        with self.lone():
            return [self._schedule_of(row) for row in self.rows("schedules")]

    def firings(self, name: str, limit: int) -> Sequence[FiringRow]:
        """What a schedule has fired, newest first."""
        with self.work(write=False):
            if not any(row["name"] == name for row in self.rows("schedules")):
                raise self._no_schedule(name)
            return [self._firing_of(row) for row in self.rows("firings", {"schedule": name, "limit": limit})]

    def set_schedule(self, schedule: Schedule, actor: str) -> ScheduleRow:
        """An operator's schedule; it wins over the declared one of that name until it is reset."""
        with self.work():
            self.run("add_schedule", {"name": schedule.name, "now": self.time(self.now())})
            row = self._locked_schedule(schedule.name)
            self._change_schedule(row, set_definition=definition_text(schedule), removed=False)
            return self._acted(schedule.name, "add_schedule", actor)

    def reset_schedule(self, name: str, actor: str) -> ScheduleRow:
        """Back to what the code declares."""
        with self.work():
            row = self._locked_schedule(name)
            if row["declared_definition"] is None:
                raise NotFound(
                    f"Schedule `{name}` of instance `{self.instance}` is an operator's; no code declares one of that name. Remove it instead."
                )
            self._change_schedule(row, set_definition=None, removed=False)
            return self._acted(name, "reset_schedule", actor)

    def remove_schedule(self, name: str, actor: str) -> None:
        """It fires no more. One that the code declares stays removed until somebody resets or adds it."""
        with self.work():
            row = self._present(name)
            if row["declared_definition"] is None:
                self.run("drop_schedule", {"name": name})
            else:
                self._change_schedule(row, set_definition=None, removed=True)
            self._audit(actor, "remove_schedule", detail=name)
            self.tell(News.SCHEDULES)

    def fire_schedule(self, name: str, actor: str) -> Job:
        """One firing now, apart from its times."""
        with self.work():
            row, now = self._present(name), self.now()
            job = self._fire_times(row, [now], actor)
            self.run("count_schedule", self._fired_params(row, [now], job))
            self._audit(actor, "fire_schedule", job=job.id, queue=job.queue, detail=name)
            return job

    def fire_due(self) -> Fired:
        """Fire what is due, a bounded number of times; seconds until there is more to do."""
        wake_in = self._schedule_wake()
        if wake_in is None or wake_in > 0:
            return Fired(wake_in)
        with self.work(write=False):
            params = {"now": self.time(self.now()), "limit": TOGETHER}
            names = [row["name"] for row in self.rows("due_schedules", params)]
        answers = [self._fire_one(name) for name in names]
        wake_in = self._schedule_wake()
        return Fired(
            None if wake_in is None else max(0.0, wake_in),
            sum(jobs for jobs, _ in answers),
            tuple(told for _, told in answers if told),
        )

    def _schedule_wake(self) -> float | None:
        with self.lone():
            found: float | None = self.rows("schedule_wake", {"now": self.time(self.given_now())})[0]["wake_in"]
            return found

    def _fire_one(self, name: str) -> tuple[int, str]:
        """How many times it fired, and what should be told. One that cannot fire does not keep others from it."""
        try:
            with self.work():
                for row in self.rows("take_due_schedule", {"name": name, "now": self.time(self.now())}):
                    return self._fire_row(row)
        except Unavailable:
            raise
        except msgspec.MsgspecError as error:
            return 0, f"Schedule `{name}` is left to newer workers: this one cannot read it ({error})."
        except HoldfastError as error:
            self._hold(name, str(error))
            return 0, f"Schedule `{name}` could not fire: {error}"
        return 0, ""

    def _fire_row(self, row: RowDict) -> tuple[int, str]:
        due, now = self._known(row["next_time"]), self.now()
        found = rules.firings(self._in_force(row), due, now)
        last = self._fire_times(row, found.times, BY_ITSELF) if found.times else None
        params = self._fired_params(row, found.times, last)
        moved = self.run("move_schedule", {**params, "next_time": self.time(found.next_time), "was": row["next_time"]})
        if not moved:
            raise Conflict(f"Schedule `{row['name']}` was moved on from {due} by somebody else; nothing was fired.")
        late = f"Schedule `{row['name']}` is late: of its times from {due} to {now}, {len(found.times)} fired."
        return len(found.times), late if found.passed_over else ""

    def _fire_times(self, row: RowDict, times: Sequence[datetime], actor: str) -> Job:
        """Make the jobs of these firings; the last of them."""
        schedule = self._in_force(row)
        declared = self._read_types().get(schedule.job_type)
        if declared is None:
            raise NotFound(
                f"Schedule `{schedule.name}` makes jobs of type `{schedule.job_type}`, which instance `{self.instance}` does not have. "
                "Start a worker that declares it, or remove the schedule."
            )
        self._refuse_held(schedule.job_type)
        numbered = list(enumerate(times, row["count"] + 1))
        jobs = self.insert([job_of(schedule, declared, count, time) for count, time in numbered])
        for (count, time), job in zip(numbered, jobs, strict=True):
            params = {"schedule": schedule.name, "count": count, "time": self.time(time), "job": job.id}
            self.run("add_firing", {**params, "duplicate": job.duplicate, "actor": actor, "now": self.time(self.now())})
        return jobs[-1]

    def _refuse_held(self, job_type: str) -> None:
        """`Conflict` while the workflow that its firings submit may not be submitted (F17)."""
        prefix, _, workflow = job_type.partition(".")
        if f"{prefix}." == SUBMITS and self.rows("knows_workflow", {"workflow": workflow}):
            self.refuse_submission(workflow)

    def _fired_params(self, row: RowDict, times: Sequence[datetime], last: Job | None) -> dict[str, Any]:
        # By hand it may fire at an earlier moment than before, if the clock was set back: what it has fired stays fired.
        before = [] if row["last_time"] is None else [self._known(row["last_time"])]
        return {
            "name": row["name"],
            "last_time": self.time(max([*times[-1:], *before], default=None)),
            "last_job": row["last_job"] if last is None else last.id,
            "count": row["count"] + len(times),
            "now": self.time(self.now()),
        }

    def _hold(self, name: str, problem: str) -> None:
        with self.work():
            now = self.now()
            for row in self.rows("take_due_schedule", {"name": name, "now": self.time(now)}):
                params = {"name": name, "problem": payloads.storable(problem), "was": row["next_time"]}
                self.run("hold_schedule", {**params, "wake_time": self.time(now + PATIENCE), "now": self.time(now)})

    def _locked_schedule(self, name: str) -> RowDict:
        for row in self.rows("lock_schedule", {"name": name}):
            return row
        raise self._no_schedule(name)

    def _present(self, name: str) -> RowDict:
        row = self._locked_schedule(name)
        if row["removed"]:
            raise NotFound(
                f"Schedule `{name}` of instance `{self.instance}` was removed by an operator. Take back what the code declares with "
                f"`holdfast schedules add {name} --declared`."
            )
        return row

    def _no_schedule(self, name: str) -> NotFound:
        return NotFound(
            f"There is no schedule `{name}` in instance `{self.instance}`. `holdfast schedules list` shows those there are."
        )

    def _change_schedule(self, row: RowDict, **changed: Any) -> None:
        """Another definition; its next time follows from the one that is in force then."""
        now, after = self.now(), {name: row[name] for name in DECLARED_PARTS} | changed
        text = None if after["removed"] else after["set_definition"] or after["declared_definition"]
        following = None
        if text is not None:
            times = self.moment(row["next_time"]), self.moment(row["last_time"])
            following = rules.changed_time(decode_definition(text), *times, now)
        params = {**after, "removed": bool(after["removed"]), "name": row["name"]}
        self.run("change_schedule", {**params, "next_time": self.time(following), "now": self.time(now)})

    def _acted(self, name: str, action: str, actor: str) -> ScheduleRow:
        self._audit(actor, action, detail=name)
        self.tell(News.SCHEDULES)
        return self._schedule_of(self._locked_schedule(name))

    def _in_force(self, row: RowDict) -> Schedule:
        return decode_definition(row["set_definition"] or row["declared_definition"])

    def _schedule_of(self, row: RowDict) -> ScheduleRow:
        return ScheduleRow(
            schedule=self._in_force(row),
            source="code" if row["set_definition"] is None else "operator",
            declared=row["declared_definition"] is not None,
            removed=bool(row["removed"]),
            next_time=self.moment(row["next_time"]),
            last_time=self.moment(row["last_time"]),
            last_job=row["last_job"],
            count=row["count"],
            problem=row["problem"],
            create_time=self._known(row["create_time"]),
            update_time=self._known(row["update_time"]),
        )

    def _firing_of(self, row: RowDict) -> FiringRow:
        time, fire_time = self._known(row["time"]), self._known(row["fire_time"])
        return FiringRow(
            row["schedule"], row["count"], time, fire_time, row["job"], bool(row["duplicate"]), row["actor"]
        )


def definition_text(schedule: Schedule) -> str:
    """The stored form; the same for the same schedule."""
    return encode_definition(schedule).decode()


def job_of(schedule: Schedule, declared: TypeRow, count: int, time: datetime) -> NewJob:
    """The job of one firing: the type's defaults as they are now, the schedule's options over them."""
    made = rules.made(schedule, count, time)
    new = NewJob(
        queue=declared.queue,
        job_type=declared.job_type,
        payload=payloads.dump(made.payload, what="payload", limit=MOST_BYTES),
        priority=declared.default_priority,
        timeout=declared.default_timeout,
        throttle_factor=declared.default_throttle_factor,
        retries=declared.default_retries,
        timeout_named="timeout" in made.options or declared.timeout_named,
        retries_named="retries" in made.options or declared.retries_named,
        time_windows=declared.default_time_windows,
        scheduled_run_time=time,
    )
    options = {name: tuple(value) if name == "time_windows" else value for name, value in made.options.items()}
    return structs.replace(new, **options)
