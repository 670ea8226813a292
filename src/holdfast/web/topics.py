"""What can be watched: the whole instance, a job, a run, a build."""

import contextlib
import heapq
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, ClassVar

from msgspec import structs

from holdfast import views
from holdfast.builds.build import BuildStep
from holdfast.jobs.job import Move, State
from holdfast.stores.contract import AttemptRecord, AuditRow, RunStep, Store
from holdfast.web.live import Event
from holdfast.workflows.definition import StepDefinition
from holdfast.workflows.graph import in_order
from holdfast.workflows.plan import StepRow, as_step
from holdfast.workflows.states import Step, StepState, way

PAGE = 1000  # log lines or records read at once
KEPT = 10_000  # records or events that a watcher may be behind
LOADS_EVERY = 0.2  # seconds between two looks at how full the queues are
LONG_AGO = datetime.min.replace(tzinfo=UTC)
GAPS_CLOSE = timedelta(seconds=2)  # a number that is missing for so long was given back


class Instance:
    """Everything: how full the queues are, and each record of an attempt's end and of an operator's action.

    Numbers of records are given before their transactions end, so one may appear after a higher one: a record is told when
    all before it are, or when it is old enough that what is missing will never come.
    """

    over = False

    def __init__(self) -> None:
        self.audit, self.attempt = -1, -1  # the last ones told
        self.loads: Any = None
        self.looked: datetime | None = None
        self.replayed: tuple[Any, list[Event] | None] = None, None  # who was cut off together comes together

    def look(self, store: Store) -> list[Event]:
        if self.audit < 0:  # the last ones may have appeared before others; from some way back on it can be seen
            self.audit, self.attempt = (max(0, last - PAGE) for last in store.last_records())
        audits, attempts = store.records(self.audit, self.attempt, PAGE)
        now = store.now()
        audits, attempts = _unbroken(audits, self.audit, now), _unbroken(attempts, self.attempt, now)
        found = _in_order(audits, attempts, self.audit, self.attempt)
        self.audit = audits[-1].id if audits else self.audit
        self.attempt = attempts[-1].id if attempts else self.attempt
        return found + self._counters(store, now)

    def _counters(self, store: Store, now: datetime) -> list[Event]:
        """How full the queues are, if that is another than before."""
        if self.looked is not None and timedelta(0) <= now - self.looked < timedelta(seconds=LOADS_EVERY):
            return []
        self.looked = now
        loads = [views.queue_load(load) for load in store.glance().queues]
        if loads == self.loads:
            return []
        before = {load["name"]: load for load in self.loads or ()}
        changed = [load["name"] for load in loads if before.get(load["name"]) != load]
        self.loads = loads
        return [Event("counters", {"time": views.moment(now), "queues": loads}), Event("changed", {"queues": changed})]

    def since(self, last: str | None, store: Store) -> list[Event]:
        counters = [] if self.loads is None else [Event("counters", {"time": None, "queues": self.loads})]
        missed = None if last is None else self._replay(last, store)
        if missed is not None:
            return [*missed, *counters]
        reset = [] if last is None else [Event("reset", {"reason": "unknown"})]
        return [*reset, Event("here", {}, f"{self.audit}-{self.attempt}"), *counters]

    def _replay(self, last: str, store: Store) -> list[Event] | None:
        asked = last, self.audit, self.attempt
        if self.replayed[0] != asked:
            self.replayed = asked, self._missed(last, store)
        return self.replayed[1]

    def _missed(self, last: str, store: Store) -> list[Event] | None:
        """The records between that event and now, from the database, whoever told of it; None if they are too many."""
        audit, attempt = _numbers(last) or (-1, -1)
        if not (0 <= audit <= self.audit and 0 <= attempt <= self.attempt):
            return None
        audits, attempts = store.records(audit, attempt, KEPT + 1)
        audits = [row for row in audits if row.id <= self.audit]
        attempts = [row for row in attempts if row.id <= self.attempt]
        return _in_order(audits, attempts, audit, attempt) if len(audits) + len(attempts) <= KEPT else None


def _in_order(audits: Sequence[AuditRow], attempts: Sequence[AttemptRecord], audit: int, attempt: int) -> list[Event]:
    """Records as they are told behind these numbers."""
    found = []
    rows: Iterator[AuditRow | AttemptRecord] = heapq.merge(audits, attempts, key=lambda row: row.time)
    for row in rows:
        if isinstance(row, AuditRow):
            audit, name, content = row.id, "audit", views.audit(row)
        else:
            attempt, name, content = row.id, "attempt", views.attempt_record(row)
        found.append(Event(name, content, f"{audit}-{attempt}"))
    return found


def _unbroken(rows: Sequence[Any], last: int, now: datetime) -> list[Any]:
    """The rows that nothing can come before any more."""
    found = []
    for row in rows:
        if row.id != last + 1 and row.time > now - GAPS_CLOSE:
            break
        last = row.id
        found.append(row)
    return found


def _numbers(text: str) -> tuple[int, int] | None:
    with contextlib.suppress(ValueError):
        first, second = text.split("-")
        return int(first), int(second)
    return None


class JobTopic:
    """One job: its moves, its log lines, its progress. An id says how many moves and which line are known."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        self.over = False
        self.events: list[Event] = []
        self.moves = self.line = 0
        self.progress: Any = None

    def look(self, store: Store) -> list[Event]:
        """The job is read before its log: once it is final, everything it said is there."""
        job = store.get(self.job_id)
        found: list[Event] = []
        for move in store.history(self.job_id)[self.moves :]:
            self.moves += 1
            found.append(Event("move", views.move(move), self._id()))
        while lines := store.log(self.job_id, self.line, PAGE):
            for line in lines:
                self.line = line.id
                found.append(Event("log", views.log_line(line), self._id()))
        if job.progress is not None and job.progress != self.progress:
            self.progress = job.progress
            found.append(Event("progress", {"fraction": job.progress.fraction, "text": job.progress.text}, self._id()))
        if job.final:
            found.append(Event("end", views.job(job), self._id()))
            self.over = True
        self.events += found
        return found

    def _id(self) -> str:
        return f"{self.moves}-{self.line}"

    def since(self, last: str | None, store: Store) -> list[Event]:
        known = None if last is None else _numbers(last)
        if last is not None and known is None:
            return [Event("reset", {"reason": "unknown"}), *self.events]
        if known is None:
            return list(self.events)
        return [event for event in self.events if _unknown(event, known)]


def _unknown(event: Event, known: tuple[int, int]) -> bool:
    """Whether a watcher who knows so many moves and lines has not heard this."""
    moves, line = _numbers(event.id or "") or (0, 0)
    return {"move": moves > known[0], "log": line > known[1]}.get(event.name, True)


class Following(ABC):
    """What a run and a build have in common: their steps' moves so far and how they stand, then each change.

    An id says which topic has told how much. What one has told another cannot know: one that is made when everybody had
    left, or by another server, tells everything again.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self.over = False
        self.mark = secrets.randbits(48)
        self.count = 0  # what was told
        self.forgotten = 0  # so much of it is kept no more
        self.kept: list[tuple[int, Event]] = []
        self.shape: Any = None  # how it stands
        self.past: list[Event] | None = None  # its history, once somebody was told of it and until it changes

    @abstractmethod
    def look(self, store: Store) -> list[Event]: ...

    @abstractmethod
    def history(self) -> list[Event]:
        """What has happened, as far as it is stored."""

    def stands(self, shape: Any, over: bool, happened: Sequence[Event]) -> list[Event]:
        """It stands like this now. What has happened before the first look is told by `since`."""
        first, self.shape, self.over, self.past = self.shape is None, shape, over, None
        if first:
            return []
        found = [self._numbered(number, event) for number, event in enumerate(happened, self.count + 1)]
        self.count += len(found) + 1
        self.kept += found
        if len(self.kept) > KEPT:
            self.forgotten = self.kept[-KEPT - 1][0]
            self.kept = self.kept[-KEPT:]
        return [event for _, event in (*found, *self._present())]

    def _present(self) -> list[tuple[int, Event]]:
        names = (self.name, "end") if self.over else (self.name,)
        return [self._numbered(number, Event(name, self.shape)) for number, name in enumerate(names, self.count)]

    def _numbered(self, number: int, event: Event) -> tuple[int, Event]:
        return number, structs.replace(event, id=f"{self.mark}-{number}")

    def since(self, last: str | None, store: Store) -> list[Event]:
        """The history has no ids: who did not hear all of it begins again."""
        mark, known = _numbers(last or "") or (None, 0)
        if mark == self.mark and self.forgotten <= known <= self.count + self.over:
            return [event for number, event in (*self.kept, *self._present()) if number > known]
        reset = [] if last is None else [Event("reset", {"reason": "unknown"})]
        self.past = self.history() if self.past is None else self.past
        return [*reset, *self.past, *(event for _, event in self._present())]


class RunTopic(Following):
    """One run: the moves of its steps, and itself."""

    name = "run"

    def __init__(self, run: int) -> None:
        super().__init__()
        self.run = run
        self.steps: dict[str, RunStep] = {}
        self.order: list[StepDefinition] = []  # each behind what it comes after

    def look(self, store: Store) -> list[Event]:
        row = store.run_by_id(self.run)
        shape = views.run(row)
        if shape == self.shape:
            return []
        if not self.order:
            declared = {step.name: step for step in row.definition.steps}
            after = {name: step.after for name, step in declared.items()}
            order = in_order(after, {name: step.phase for name, step in declared.items()})
            self.order = [declared[name] for name in order]
        before, self.steps = self.steps, {step.counts.name: step for step in row.steps}
        happened = self._happened(before) if before else []
        return self.stands(shape, row.end_time is not None, happened)

    def history(self) -> list[Event]:
        begun = (step.counts for step in self.steps.values() if step.counts.state is not StepState.DORMANT)
        return self._happened(self.steps | {row.name: RunStep(StepRow(row.name, row.partition)) for row in begun})

    def _happened(self, before: Mapping[str, RunStep]) -> list[Event]:
        """What happened to the steps since they were like that, in the order of the times that are stored."""
        found: list[tuple[datetime, Event]] = []
        for declared in self.order:
            was, step = before[declared.name], self.steps[declared.name]
            shape = views.run_step(step)
            if shape != views.run_step(was):
                ends = (self.steps[name].end_time for name in declared.after)
                earliest = max((end for end in ends if end is not None), default=LONG_AGO)
                counts = as_step(declared, was.counts), as_step(declared, step.counts)
                found += _moves(*counts, (step.start_time, step.end_time), earliest, shape)
        return [event for _, event in sorted(found, key=lambda pair: pair[0])]


class BuildTopic(Following):
    """One build: the moves of its current job and of its steps, and itself."""

    name = "build"

    def __init__(self, build: int, cache: int) -> None:
        super().__init__()
        self.build, self.cache = build, cache
        self.job = 0
        self.moves: Sequence[Move] = ()
        self.steps: dict[str, BuildStep] = {}

    def look(self, store: Store) -> list[Event]:
        """The build is read before its job's history: once it is over, that is whole."""
        build = store.build(self.build, self.cache)
        moves, shape = store.history(build.job_id), views.build(build)
        if build.job_id != self.job:  # it is built again
            self.job, self.moves, self.steps = build.job_id, (), {}
        if shape == self.shape and moves == self.moves:
            return []
        known, before = len(self.moves), self.steps
        self.moves, self.steps = moves, {step.name: step for step in build.steps}
        return self.stands(shape, not build.active, self._happened(known, before))

    def history(self) -> list[Event]:
        return self._happened(0, {})

    def _happened(self, known: int, before: Mapping[str, BuildStep]) -> list[Event]:
        """What happened since so many moves of the job, and steps like that, were known.

        Steps are those of the last attempt, and their times are by its builder's clock: they come behind its beginning.
        """
        steps: list[tuple[datetime, Event]] = []
        for name, step in self.steps.items():
            was, now = before.get(name), _of_build(step)
            if was != step:
                seen = Step(name) if was is None else _of_build(was)
                began = was is None or was.start_time in (None, step.start_time)
                if not began or not (way(seen, now) or seen.state is now.state):  # another attempt does it again
                    seen = Step(name)
                steps += _moves(seen, now, (step.start_time, step.end_time), LONG_AGO, views.build_step(step))
        steps.sort(key=lambda pair: pair[0])
        new = self.moves[known:]
        begun = max((number for number, move in enumerate(new, 1) if move.to_state is State.RUNNING), default=0)
        job = [Event("move", views.move(move)) for move in new]
        return [*job[:begun], *(event for _, event in steps), *job[begun:]]


def _of_build(step: BuildStep) -> Step:
    """With one task, which is there as soon as the step has begun."""
    return Step(step.name, StepState(step.state), all_created=True, succeeded=int(step.start_time is not None))


def _moves(
    was: Step, step: Step, times: tuple[datetime | None, datetime | None], earliest: datetime, shape: Mapping[str, Any]
) -> Iterator[tuple[datetime, Event]]:
    """A step's moves, each with the time it is put in order by: of those in between, and after a retry, none is stored.

    The last one has everything about the step; if it did not move its numbers have changed.
    """
    start_time, end_time = times
    states = [was.state, *(way(was, step) or (step.state,))]
    at = LONG_AGO  # a retry comes before everything that follows from it
    for number, (from_state, state) in enumerate(pairwise(states), 2):
        at = max(at, earliest) if from_state is StepState.DORMANT else at
        last = number == len(states)
        begins = number == 2 and from_state is StepState.DORMANT
        time = end_time if last and step.done else start_time if begins else None
        time = None if time is None or time < at else time
        at = time or at
        content = {"step": step.name, "from_state": from_state, "state": state, "time": time and views.moment(time)}
        yield at, Event("step", {**content, **shape} if last else content)
