"""Playing a fleet: from one event to the next on a movable clock, through the store, the claims and the sweeper of the product.

- What decides is the product's own: the store on `sqlite://:memory:`, `decide`, throttles, windows, breakers, the rotation
  of a worker's queues, the sweeper with its vigil, the ends of attempts. What is played is who calls it when.
- A handler takes the time that chance gives it and nothing else takes any: no turn, no network, no disk.
- A worker looks when it has a reason to: what is due at that moment, room under a limit, a time that was planned. The
  sweeper looks while there is a job under way or a worker missing; nothing else becomes lost or too late.
"""

import heapq
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct, structs

from holdfast.clock import MovableClock, microseconds, moment
from holdfast.errors import Invalid
from holdfast.jobs.job import Job, Outcome
from holdfast.jobs.placement import Colleague, Preference, asking
from holdfast.jobs.states import Change
from holdfast.simulation import chance
from holdfast.simulation.chance import SECOND, Arrival
from holdfast.simulation.fleet import LEAST, Ending, Fleet, Recorded, TypePlan, WorkerPlan
from holdfast.simulation.tally import COLUMNS, QueueTally, Result, TypeTally, WorkerTally, of_workers
from holdfast.simulation.virtual import VirtualWorker
from holdfast.stores.contract import NewJob
from holdfast.stores.open import open_store
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.sweeper import Sweeper

INSTANCE = "simulation"
SWEEP_EVERY = 300.0  # seconds while nobody is missing
SWEEP_EXPIRED_EVERY = 60.0  # seconds, where jobs expire
KEPT = 600.0  # seconds that ended jobs stay in memory
NEVER = 1e9
TELL_EVERY = 200  # moments and turns, of which a burst has many at once

Coming = tuple[NewJob, TypePlan, int, Recorded | None]
Told = Callable[[float, int], None]  # how much of the time is over, and the jobs so far


class Played(Struct):
    """A job on its way."""

    plan: TypePlan
    number: int
    arrived: int
    due: int
    queue: str
    factor: float
    recorded: Recorded | None = None
    tries: int = 0  # attempts that came to an end of their own
    attempt: int = 0
    started: bool = False
    held: bool = False
    in_line: bool = False


class Group:
    """Workers that are alike: what one of them did not find the others need not look for."""

    def __init__(self, plan: WorkerPlan, queues: tuple[str, ...], types: tuple[str, ...]) -> None:
        self.plan, self.queues, self.types = plan, queues, types
        self.places = [Place(self, index) for index in range(plan.count)]
        self.seen: dict[str, int] = {}  # queue → the news after which it had nothing for them
        self.asks = asking(types, {}, plan.labels, ())

    def hungry(self, news: dict[str, int]) -> list[str]:
        return [queue for queue in self.queues if news.get(queue, -1) > self.seen.get(queue, -1)]


class Place:
    """Where a worker is, or was, or will be."""

    def __init__(self, group: Group, index: int) -> None:
        self.group, self.name = group, f"{group.plan.name}-{index + 1}"
        self.worker: VirtualWorker | None = None
        self.wanted = True  # it is to be there
        self.tally = WorkerTally()


def play(fleet: Fleet, told: Told = lambda share, jobs: None) -> Result:
    """What becomes of the fleet; the same for the same fleet and seed."""
    with _undisturbed(fleet.seed):
        playing = Playing(fleet, told)
        try:
            return playing.played()
        finally:
            playing.store.close()


@contextmanager
def _undisturbed(seed: int) -> Iterator[None]:
    """The store draws the jitter of retries from the common source, and the sweeper tells of what is planned here."""
    state, logger = random.getstate(), logging.getLogger("holdfast")
    level = logger.level
    random.seed(seed)
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        random.setstate(state)
        logger.setLevel(level)


class Playing:
    """One fleet, once."""

    def __init__(self, fleet: Fleet, told: Told) -> None:
        self.fleet, self._told = fleet, told
        self.clock = MovableClock(fleet.start)
        self.start = self.now = microseconds(fleet.start)
        self.end = self.start + round(fleet.seconds * SECOND)
        self.store: Any = open_store("sqlite://:memory:", INSTANCE, self.clock)
        self.store.set_up()
        rows = {name: plan.row for name, plan in fleet.types.items()}
        self.store.register(fleet.queues, tuple(rows.values()))
        self.store.listeners.append(self._hear)
        self.throttled = {row.name for row in self.store.queues() if row.throttled}
        self._preferences = {name: Preference(row.prefers, row.prefer_for) for name, row in rows.items() if row.prefers}
        names = tuple(queue.name for queue in fleet.queues)
        self.groups = [Group(plan, plan.queues or names, plan.handles(rows)) for plan in fleet.workers]
        self.types = {name: TypeTally(plan.row.queue) for name, plan in fleet.types.items()}
        self.queues = {queue.name: QueueTally(queue.throttle_limit, self.start) for queue in fleet.queues}
        self.news = dict.fromkeys(names, 0)
        self.waiting = dict.fromkeys(names, 0)  # jobs whose time has come and that do not run
        self.least = {name: self._least_factor(name) for name in names}
        self.full: set[str] = set()  # found so, and nothing has ended since
        self.jobs: dict[int, Played] = {}
        self.count = 0
        self.first_refusal: str | None = None
        self._luck = random.Random(f"{fleet.seed}:workers")
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = self._looks = 0
        self._heard = False
        self._promote_at = self.end
        self._missing: set[int] = set()  # workers that died and were not called lost yet
        self._sweep_at = self.end
        self._swept_at = self.start
        self._records = 0
        expires = fleet.recorded or any(plan.expires_after for plan in fleet.types.values())
        self._sweep_every = SWEEP_EXPIRED_EVERY if expires else SWEEP_EVERY
        self._telling: list[VirtualWorker] = []
        self.sweeper = self._sweeper()

    def _least_factor(self, queue: str) -> float:
        """What must be free for any job of the queue to start, where nothing but a limit holds them back; else 0."""
        declared = next(each for each in self.fleet.queues if each.name == queue)
        if declared.throttler is not None or self.fleet.recorded:
            return 0.0
        plans = self.fleet.types.values()
        return min((each.template.throttle_factor for each in plans if each.row.queue == queue), default=0.0)

    def _sweeper(self) -> Sweeper:
        """It is nobody's own: a vigil goes on when the worker that kept it dies, for the others keep it too."""
        settings = WorkerSettings(
            lost_after=self.fleet.lost_after, archive_after=KEPT, archive_keep=KEPT, forgotten_after=NEVER
        )
        return Sweeper(self.store, settings, self.clock, lambda: 0, lambda: 0, lambda _: None, lambda: None)

    # Time

    def played(self) -> Result:
        self._plan_workers()
        self._sweep_after(self._sweep_every)
        coming = self._coming()
        arrival = next(coming, None)
        while True:
            at = min(arrival[0] if arrival else self.end, self._events[0][0] if self._events else self.end)
            if at >= self.end:
                break
            self._pass(at)
            self._tell_how_far()
            batch = []
            while arrival and arrival[0] == at:
                batch.append(arrival[1:])
                arrival = next(coming, None)
            if batch:
                self._add(batch)
            while self._events and self._events[0][0] == at:
                heapq.heappop(self._events)[2]()
            self._take_turns()
        self._pass(self.end)
        return self._result()

    def _tell_how_far(self) -> None:
        self._looks += 1
        if self._looks % TELL_EVERY == 0:
            self._told((self.now - self.start) / (self.end - self.start), self.count)

    def _pass(self, at: int) -> None:
        self.clock.advance((at - self.now) / SECOND)
        self.now = at

    def plan(self, at: int, act: Callable[[], None]) -> None:
        """Have something happen then."""
        if at < self.end:
            self._numbers += 1
            heapq.heappush(self._events, (at, self._numbers, act))

    def _promote_by(self, at: int) -> None:
        """A job's time comes then."""
        if at < self._promote_at:
            self._promote_at = at
            self.plan(at, self._tell_all)

    def _tell_all(self) -> None:
        for queue in self.news:
            self.news[queue] += 1

    def _tell(self, queue: str) -> None:
        self.news[queue] += 1

    def _hear(self) -> None:
        self._heard = True

    # Jobs that come

    def _coming(self) -> Iterator[tuple[int, NewJob, TypePlan, int, Recorded | None]]:
        if self.fleet.recorded:
            for number, each in enumerate(self.fleet.recorded):
                plan = self.fleet.types[each.job_type]
                yield microseconds(each.time), structs.replace(plan.template, **each.options), plan, number, each
            return
        for arrival in chance.arrivals(self.fleet):
            plan = self.fleet.types[arrival.job_type]
            yield arrival.time, self._new(plan, arrival), plan, arrival.number, None

    def _new(self, plan: TypePlan, arrival: Arrival) -> NewJob:
        key, arguments = chance.details(self.fleet, plan, arrival.number)
        if key is None and not arguments and plan.expires_after is None:
            return plan.template
        expires = None
        if plan.expires_after is not None:
            expires = moment(arrival.time) + timedelta(seconds=plan.expires_after)
        text = msgspec.json.encode(arguments).decode()
        return structs.replace(plan.template, job_key=key, payload=text, expires_time=expires)

    def _add(self, batch: list[Coming]) -> None:
        for (new, plan, number, recorded), job in zip(batch, self._stored(batch), strict=True):
            counts = self.types[plan.row.job_type].counts
            counts["arrived"] += 1
            self.count += 1
            if job is None:
                counts["refused"] += 1
                continue
            if job.duplicate:
                counts["duplicates"] += 1
                continue
            if not self.jobs:
                self._sweep_again()
            self.jobs[job.id] = Played(plan, number, self.now, self.now, new.queue, new.throttle_factor, recorded)
            self._want(job.id, microseconds(job.scheduled_run_time))

    def _stored(self, batch: list[Coming]) -> Sequence[Job | None]:
        """None for those that the store refuses, as it would refuse an enqueue: the others come all the same."""
        try:
            found: Sequence[Job] = self.store.add([each[0] for each in batch])
            return found
        except Invalid as error:
            if len(batch) == 1:
                self.first_refusal = self.first_refusal or f"`{batch[0][0].job_type}`: {error}"
                return [None]
        return [job for each in batch for job in self._stored([each])]

    def _want(self, job_id: int, due: int) -> None:
        """A job is wanted from then on."""
        job = self.jobs[job_id]
        job.due = due
        row = job.plan.row
        self.queues[job.queue].wanted.append(due)
        if due <= self.now:
            self._stand_in_line(job_id, due)
        else:
            self._promote_by(due)
            self.plan(due, lambda: self._stand_in_line(job_id, due))
        if row.prefers:
            self.plan(max(due, self.now) + round(row.prefer_for * SECOND), lambda: self._tell(job.queue))

    def _stand_in_line(self, job_id: int, due: int) -> None:
        """Its time has come, if it lives and is not wanted at another by now."""
        job = self.jobs.get(job_id)
        if job is not None and job.due == due and not job.in_line and not job.held:
            job.in_line = True
            self.waiting[job.queue] += 1
            self._tell(job.queue)

    def _leave_line(self, job: Played) -> None:
        self.waiting[job.queue] -= job.in_line
        job.in_line = False

    # Turns

    def _take_turns(self) -> None:
        """Who has something to tell, and then, in the order of chance, who has room, as long as there is something to find."""
        while self._telling:
            self._turn(self._telling.pop())
        while news := self._worth_a_look():
            able = [
                place.worker
                for group in self.groups
                if group.hungry(news)
                for place in group.places
                if place.worker is not None and place.worker.room > 0
            ]
            if not able:
                return
            self._turn(able[0] if len(able) == 1 else self._luck.choice(able))

    def _worth_a_look(self) -> dict[str, int]:
        """The news of queues in which somebody might find something: jobs wait there, and the limit was not found used."""
        return {queue: self.news[queue] for queue, count in self.waiting.items() if count and queue not in self.full}

    def _turn(self, worker: VirtualWorker) -> None:
        self._tell_how_far()
        group = worker.group
        promote = self._promote_at <= self.now
        if promote:
            self._promote_at = self.end
        known = self._worth_a_look()
        self._heard = False
        answer, wants, told = worker.turn(group.asks, group.hungry(known), promote)
        for change in answer.changes:
            if change is not None:
                self._changed(change)
        for call in answer.claimed:
            self._began(worker, call.id, call.attempt)
        for want in wants:
            if sum(call.queue == want.queue for call in answer.claimed) < want.room:
                group.seen[want.queue] = known[want.queue]
        for queue, seconds in answer.full.items():
            if seconds is None and self.queues[queue].free < self.least[queue]:
                self.full.add(queue)
            elif seconds is not None:
                self.plan(self.now + max(1, round(seconds * SECOND)), lambda queue=queue: self._tell(queue))  # type: ignore[misc]
        if answer.wake_in is not None:
            self._promote_by(self.now + round(answer.wake_in * SECOND))
        if self._heard and (told or answer.claimed):
            self._tell_all()
        if worker.stopping and not worker.hand:
            self._leave(worker.place)

    def _began(self, worker: VirtualWorker, job_id: int, attempt: int) -> None:
        job = self.jobs[job_id]
        tally = self.types[job.plan.row.job_type]
        tally.counts["started"] += 1
        if not job.started:
            job.started = True
            tally.waits.append(self.now - job.due)
        self._leave_line(job)
        self.queues[job.queue].served.append(self.now)
        self.queues[job.queue].use(job.factor, self.now)
        worker.place.tally.attempts += 1
        job.held, job.attempt = True, attempt
        ending = self._ending(job)
        call = worker.hand[job_id]
        seconds = max(LEAST, ending.seconds if call.timeout is None else min(ending.seconds, call.timeout))
        self.plan(self.now + round(seconds * SECOND), lambda: self._ended(worker, job_id, attempt, ending))

    def _ending(self, job: Played) -> Ending:
        if job.recorded is not None:
            return job.recorded.endings[min(job.tries, len(job.recorded.endings) - 1)]
        return chance.ending(self.fleet, job.plan, job.number, job.attempt)

    def _ended(self, worker: VirtualWorker, job_id: int, attempt: int, ending: Ending) -> None:
        """An attempt comes to its end, unless its worker is gone or has handed it back."""
        call = worker.hand.get(job_id)
        if call is None or call.attempt != attempt:
            return
        job = self.jobs[job_id]
        job.tries += 1
        self._released(job)
        if call.timeout is not None and ending.seconds > call.timeout:
            self.types[job.plan.row.job_type].counts["timeouts"] += 1
        if worker.end(call, ending):
            self._final(job_id, job, "succeeded")
        if worker not in self._telling:
            self._telling.append(worker)

    def _released(self, job: Played) -> None:
        """What it used is free."""
        job.held = False
        queue = job.queue
        self.queues[queue].use(-job.factor, self.now)
        self.full.discard(queue)
        if queue in self.throttled:
            self._tell(queue)

    def _changed(self, change: Change) -> None:
        """What an end that was no plain success came to."""
        job_id = change.row.id
        job = self.jobs[job_id]
        outcome = change.steps[-1].outcome
        if outcome is not None:
            self._final(job_id, job, "succeeded" if outcome is Outcome.SUCCESS else "dead")
        elif change.place_time is not None:
            if change.failures > change.row.failures:
                self.types[job.plan.row.job_type].counts["retries"] += 1
            self._want(job_id, microseconds(change.place_time))

    def _final(self, job_id: int, job: Played, how: str) -> None:
        tally = self.types[job.plan.row.job_type]
        tally.counts[how] += 1
        tally.turnarounds.append(self.now - job.arrived)
        del self.jobs[job_id]

    # Workers that come and go

    def _plan_workers(self) -> None:
        for group in self.groups:
            plan = group.plan
            for index, place in enumerate(group.places):
                place.wanted = chance.is_there(self.fleet, plan)
                if place.wanted:
                    self._join(place)
                for at in chance.days(self.fleet, plan.start):
                    self.plan(at, lambda place=place: self._come(place))  # type: ignore[misc]
                for at in chance.days(self.fleet, plan.stop):
                    self.plan(at, lambda place=place: self._stop(place))  # type: ignore[misc]
                for at in chance.crashes(self.fleet, plan, index):
                    self.plan(at, lambda place=place: self._crash(place))  # type: ignore[misc]

    def _come(self, place: Place) -> None:
        place.wanted = True
        self._join(place)

    def _join(self, place: Place) -> None:
        if place.wanted and place.worker is None:
            place.worker = VirtualWorker(self.store, place, self.now, self.clock)
            place.group.seen.clear()
            self._meet()
            if self._missing:
                self._sweep_after(0.0)

    def _stop(self, place: Place) -> None:
        """No new jobs; what is in hand has the grace period to end."""
        place.wanted, worker = False, place.worker
        if worker is None or worker.stopping:
            return
        worker.stop()
        self._meet()
        if worker.hand:
            self.plan(self.now + round(place.group.plan.grace * SECOND), lambda: self._give_up(place, worker))
        else:
            self._leave(place)

    def _give_up(self, place: Place, worker: VirtualWorker) -> None:
        if place.worker is worker:
            for job_id in list(worker.hand):
                self._released(self.jobs[job_id])
            worker.hand_back()
            self._turn(worker)

    def _leave(self, place: Place) -> None:
        worker = place.worker
        if worker is not None:
            worker.leave(self.now)
            place.worker = None
            self._meet()
            self._tell_all()
            self._join(place)  # it was told to come while it was still leaving

    def _crash(self, place: Place) -> None:
        worker = place.worker
        if worker is None:
            return
        if worker in self._telling:  # what ended at this very moment was told just before
            self._telling.remove(worker)
            self._turn(worker)
        worker.die(self.now)
        place.worker = None
        place.tally.crashes += 1
        self._missing.add(worker.id)
        self._sweep_after(0.0)
        if place.group.plan.restart_after is not None:
            self.plan(self.now + round(place.group.plan.restart_after * SECOND), lambda: self._join(place))

    def _meet(self) -> None:
        """Who is preferred to whom, now that others are there."""
        if not self._preferences:
            return
        rows = self.store.workers()
        colleagues = [Colleague(row.types, row.labels, row.takes_jobs) for row in rows]
        for group in self.groups:
            group.asks = asking(group.types, self._preferences, group.plan.labels, colleagues)
        self._tell_all()

    # The sweeper

    def _living(self) -> list[VirtualWorker]:
        return [place.worker for group in self.groups for place in group.places if place.worker is not None]

    def _sweep_again(self) -> None:
        """At the moment when it would have come to it if it had never paused."""
        every = round(self._sweep_every * SECOND)
        self._sweep_after((self._swept_at - self.now) % every / SECOND)

    def _sweep_after(self, seconds: float) -> None:
        at = self.now + round(seconds * SECOND)
        if at < self._sweep_at or self._sweep_at < self.now:
            self._sweep_at = at
            self.plan(at, lambda: self._sweep(at))

    def _sweep(self, at: int) -> None:
        if at != self._sweep_at:
            return
        self._sweep_at, self._swept_at = self.end, at
        if not self.jobs and not self._missing:
            return
        rest = self._sweep_every
        if self._living():
            for worker in self._living():
                self.store.beat(worker.id, worker.stopping)
            again = self.sweeper.sweep()
            self._read_records()
            overdue_in = self.store.pulse().overdue_in
            if self._missing:
                self._missing &= {row.id for row in self.store.workers()}
                self._meet()
                rest = again
            elif overdue_in is not None:
                rest = min(rest, max(0.05, overdue_in))
            self._promote_by(self.now)
        self._sweep_after(rest)

    def _read_records(self) -> None:
        """What the sweeper did to jobs."""
        while True:
            _, records = self.store.records(NEVER, self._records, 1000)
            for record in records:
                self._records = record.id
                job = self.jobs.get(record.job)
                if job is not None and record.outcome in ("lost", "expired", "timeout"):
                    self._swept(record.job, job, record.outcome, record.state, record.attempt)
            if len(records) < 1000:
                return

    def _swept(self, job_id: int, job: Played, outcome: str, state: str, attempt: int) -> None:
        if outcome == "expired":
            self._leave_line(job)
            self.queues[job.queue].served.append(max(job.due, self.now))
        elif not job.held or job.attempt != attempt:
            return  # it was told by a worker, in its turn
        else:
            self._released(job)
        counts = self.types[job.plan.row.job_type].counts
        counts["timeouts" if outcome == "timeout" else outcome] += 1
        if state == "final":
            self._final(job_id, job, "dead")
            return
        counts["retries"] += outcome == "timeout"
        found: Job = self.store.get(job_id)
        self._want(job_id, max(self.now, microseconds(found.scheduled_run_time)))

    # What came of it

    def _result(self) -> Result:
        for worker in self._living():
            worker.spend(self.end)
            worker.place.tally.there += self.end - worker.came
        left = dict.fromkeys(self.types, 0)
        for job in self.jobs.values():
            left[job.plan.row.job_type] += 1
        return Result(
            start=self.fleet.start.isoformat().replace("+00:00", "Z"),
            seconds=self.fleet.seconds,
            stretch=self.fleet.seconds / COLUMNS,
            seed=self.fleet.seed,
            jobs=self.count,
            first_refusal=self.first_refusal,
            types={name: tally.result(left[name]) for name, tally in self.types.items()},
            queues={
                name: tally.result(
                    self.start, self.end, (each.waits for each in self.types.values() if each.queue == name)
                )
                for name, tally in self.queues.items()
            },
            workers={
                group.plan.name: of_workers([place.tally for place in group.places], group.plan.concurrency)
                for group in self.groups
            },
        )
