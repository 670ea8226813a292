"""Schedules: what the code declares, what an operator set, and the firing of what is due (W6).

- A time is fired by whoever moves the schedule on from it, in the transaction that makes its job: once over all
  machines and restarts, whatever their clocks say. What is due together is fired in one transaction.
- A schedule that cannot fire keeps its time, says why, and is looked at again a minute later; one whose workflow may
  not be submitted, when that is released. The times that it missed go by its misfire policy.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import structs

from holdfast.errors import Conflict, HoldfastError, NotFound, Unavailable, backticked
from holdfast.jobs import damage
from holdfast.jobs import payload as payloads
from holdfast.jobs import schedules as rules
from holdfast.jobs.damage import UNREADABLE, Damaged
from holdfast.jobs.job import Job
from holdfast.jobs.numbers import as_stored
from holdfast.jobs.schedules import Firings, Schedule
from holdfast.jobs.secrets import SHOWN
from holdfast.stores.building import Building
from holdfast.stores.contract import Fired, FiringRow, NewJob, News, ScheduleRow, TypeRow
from holdfast.stores.statements import RowDict
from holdfast.workflows.definition import SUBMITS

TOGETHER = 500  # most schedules in one look
MOST_JOBS = 1000  # that are made in one transaction, if each schedule makes one
PATIENCE = timedelta(seconds=60)  # until a schedule that could not fire is tried again
BY_ITSELF = "schedule"  # the actor of a firing that nobody asked for
MOST_BYTES = 1 << 30  # it was measured when the schedule was made
DECLARED_PARTS = ("declared_definition", "set_definition", "removed")

FORMS: Mapping[str, Callable[[Any], Any]] = {"time_windows": tuple, "priority": as_stored, "throttle_factor": as_stored}

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
            job = self._fire_times([(row, self._in_force(row), [now])], actor, now)[name]
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
            due = self.rows("due_schedules", params)
        answers = self._fire(due)
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

    def _fire(self, due: Sequence[RowDict]) -> list[tuple[int, str]]:
        """How many times schedules fired, and what should be told of them. One that cannot fire keeps no others from it."""
        sound = [row["name"] for row in due if row["problem"] is None]
        others = [row["name"] for row in due if row["problem"] is not None]
        try:
            answers = self._fire_together(sound) if sound else []
        except HoldfastError as error:
            if isinstance(error, Unavailable) and not error.locked:
                raise
            answers, others = [], [*sound, *others]  # one of them cannot, and so none has
        return answers + [self._fire_one(name) for name in others]

    def _fire_one(self, name: str) -> tuple[int, str]:
        try:
            return next(iter(self._fire_together([name])), (0, ""))
        except Unavailable as error:
            if not error.locked:
                raise
            return 0, f"Schedule `{name}` is left for later: {error}"
        except HoldfastError as error:
            self._hold(name, str(error))
            return 0, f"Schedule `{name}` could not fire: {error}"

    def _fire_together(self, names: Sequence[str]) -> list[tuple[int, str]]:
        """In one transaction, but for those that somebody else is just firing, or has fired."""
        with self.work():
            now = self.now()
            rows = self.rows("take_due_schedules", {"names": self.words(names), "now": self.time(now)})
            most = max(1, MOST_JOBS // max(1, len(rows)))
            told: list[tuple[int, str]] = []
            fired: list[tuple[RowDict, Schedule, Firings]] = []
            for row in sorted(rows, key=lambda row: (row["next_time"], row["name"])):
                try:
                    schedule, due = read_definition(definition_in_force(row)), self._known(row["next_time"])
                    fired.append((row, schedule, rules.firings(schedule, due, now, min(most, rules.BATCH))))
                except UNREADABLE:
                    told.append((0, _unreadable(row)))
            if fired:
                self._move_on(fired, now)
            return told + [(len(found.times), self._late(row, found, now)) for row, _, found in fired]

    def _late(self, row: RowDict, found: Firings, now: datetime) -> str:
        if not found.passed_over:
            return ""
        due = self._known(row["next_time"])
        return f"Schedule `{row['name']}` is late: of its times from {due} to {now}, {len(found.times)} fired."

    def _move_on(self, fired: Sequence[tuple[RowDict, Schedule, Firings]], now: datetime) -> None:
        """Make the jobs, and give each schedule its next time. Nobody else may have done so."""
        last = self._fire_times([(row, schedule, found.times) for row, schedule, found in fired], BY_ITSELF, now)
        moved = sorted(fired, key=lambda each: each[0]["name"])
        each = [self._fired_params(row, found.times, last.get(row["name"])) for row, _, found in moved]
        columns: dict[str, list[Any]] = {
            "names": [row["name"] for row, _, _ in moved],
            "next_times": [self.time(found.next_time) for _, _, found in moved],
            "last_times": [params["last_time"] for params in each],
            "last_jobs": [params["last_job"] for params in each],
            "counts": [params["count"] for params in each],
            "moments": [row["next_time"] for row, _, _ in moved],
        }
        if self.run("move_schedules", {**self.columns(columns), "now": self.time(now)}) != len(moved):
            raise Conflict(
                f"Of {len(moved)} schedules from `{columns['names'][0]}` on one was moved on by somebody else; nothing was fired."
            )

    def _fire_times(
        self, fired: Sequence[tuple[RowDict, Schedule, Sequence[datetime]]], actor: str, now: datetime
    ) -> dict[str, Job]:
        """Make the jobs of these firings; by schedule the last of them."""
        types, known = self._read_types(), set[str]()
        firings, jobs = [], []
        for row, schedule, times in fired:
            if times and schedule.job_type not in known:
                self._refuse(schedule, types)
                known.add(schedule.job_type)
            for count, time in enumerate(times, row["count"] + 1):
                firings.append((row["name"], count, self.time(time)))
                jobs.append(job_of(schedule, types[schedule.job_type], count, time))
        if not jobs:
            return {}
        added = self.insert(jobs)
        names, counts, moments = zip(*firings, strict=True)
        columns: dict[str, Sequence[Any]] = {"schedules": names, "counts": counts, "times": moments}
        columns |= {"jobs": [job.id for job in added], "duplicates": [job.duplicate for job in added]}
        self.run("add_firings", {**self.columns(columns), "actor": actor, "now": self.time(now)})
        return dict(zip(names, added, strict=True))

    def _refuse(self, schedule: Schedule, types: Mapping[str, TypeRow]) -> None:
        """`NotFound` or `Conflict` if jobs of its type cannot be made now."""
        if schedule.job_type not in types:
            raise NotFound(
                f"Schedule `{schedule.name}` makes jobs of type `{schedule.job_type}`, which instance `{self.instance}` does not have. "
                "Start a worker that declares it, or remove the schedule."
            )
        self._refuse_held(schedule.job_type)

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
            for row in self.rows("take_due_schedules", {"names": self.words([name]), "now": self.time(now)}):
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
            f"There is no schedule {backticked(name)} in instance `{self.instance}`. `holdfast schedules list` shows those there are."
        )

    def _change_schedule(self, row: RowDict, **changed: Any) -> None:
        """Another definition; its next time follows from the one that is in force then."""
        now, after = self.now(), {name: row[name] for name in DECLARED_PARTS} | changed
        text = None if after["removed"] else after["set_definition"] or after["declared_definition"]
        following = None
        if text is not None:
            times = self.moment(row["next_time"]), self.moment(row["last_time"])
            with suppress(*UNREADABLE):  # a damaged one has no times
                following = rules.changed_time(read_definition(text), *times, now)
        params = {**after, "removed": bool(after["removed"]), "name": row["name"]}
        self.run("change_schedule", {**params, "next_time": self.time(following), "now": self.time(now)})

    def _acted(self, name: str, action: str, actor: str) -> ScheduleRow:
        self._audit(actor, action, detail=name)
        self.tell(News.SCHEDULES)
        return self._schedule_of(self._locked_schedule(name))

    def _in_force(self, row: RowDict) -> Schedule:
        """`Conflict` if its definition is damaged."""
        found = damage.read(read_definition, definition_in_force(row))
        if isinstance(found, Damaged):
            raise Conflict(
                f"Schedule `{row['name']}` of instance `{self.instance}` cannot be read. {schedule_cure(row)}"
            )
        return found

    def _schedule_of(self, row: RowDict) -> ScheduleRow:
        schedule = damage.read(read_definition, definition_in_force(row))
        return ScheduleRow(
            schedule=damaged_schedule(row["name"], schedule) if isinstance(schedule, Damaged) else schedule,
            source="code" if row["set_definition"] is None else "operator",
            declared=row["declared_definition"] is not None,
            removed=bool(row["removed"]),
            next_time=self.moment(row["next_time"]),
            last_time=self.moment(row["last_time"]),
            last_job=row["last_job"],
            count=row["count"],
            problem=f"It cannot be read. {schedule_cure(row)}" if isinstance(schedule, Damaged) else row["problem"],
            create_time=self._known(row["create_time"]),
            update_time=self._known(row["update_time"]),
        )

    def _firing_of(self, row: RowDict) -> FiringRow:
        time, fire_time = self._known(row["time"]), self._known(row["fire_time"])
        return FiringRow(
            row["schedule"], row["count"], time, fire_time, row["job"], bool(row["duplicate"]), row["actor"]
        )


def read_definition(text: str) -> Schedule:
    """What a stored definition says; one of `UNREADABLE` if that is no schedule."""
    found = decode_definition(text)
    if found.every is not None and not found.every >= rules.SHORTEST:
        raise ValueError(f"every={found.every} is no period")
    return found


def definition_in_force(row: RowDict) -> str:
    found: str = row["declared_definition"] if row["set_definition"] is None else row["set_definition"]
    return found


def damaged_schedule(name: str, damaged: Damaged) -> Schedule:
    """What is shown of a schedule that cannot be read: not its text, in which there may be secret arguments."""
    return Schedule(name=name, job_type="", payload=damage.shown(structs.replace(damaged, text=SHOWN)))


def _unreadable(row: RowDict) -> str:
    return f"Schedule `{row['name']}` is left to newer workers: this one cannot read it. If no newer one fires it: {schedule_cure(row)}"


def schedule_cure(row: RowDict) -> str:
    if row["set_definition"] is None:
        return "Its definition is damaged. Start a worker whose code declares it: that stores it again."
    return (
        f"The definition that an operator set is damaged. Set it again with `holdfast schedules add {row['name']}`, or go back to what the "
        f"code declares with `holdfast schedules add {row['name']} --declared`."
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
    options = {name: FORMS[name](value) if name in FORMS else value for name, value in made.options.items()}
    return structs.replace(new, **options)
