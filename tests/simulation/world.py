"""A world in which stories are played: a movable clock, a real store, and workers and clients that only pretend to be processes.

- Everything that decides and stores is the product's own: `decide`, the stores' verbs, the sweeper, the vigil over heartbeats,
  the ends of attempts. What is played here is who calls it when, and who dies in between.
- After every few actions, and at the end, the invariants are checked. At the end everything is healed, and then every job
  must become final and every run be done.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from holdfast.errors import Unavailable
from holdfast.jobs import windows
from holdfast.jobs.explain import explain
from holdfast.jobs.facts import Facts
from holdfast.jobs.facts import Place as Beside
from holdfast.jobs.holds import Hold, Level
from holdfast.jobs.job import Answer, JobError, Outcome, Situation
from holdfast.jobs.outcome import WAIT, Failed, Retry, Snooze
from holdfast.jobs.reasons import Reason
from holdfast.jobs.retry import Fixed, encode
from holdfast.jobs.states import ABORT_PATIENCE
from holdfast.jobs.throttlers import encode as encode_throttler
from holdfast.jobs.throttlers import per_key
from holdfast.stores.contract import (
    Claimed,
    Done,
    NewJob,
    QueueDeclared,
    Report,
    StepOfRun,
    Store,
    Submission,
    Turn,
    TypeRow,
    Want,
    WorkerJoin,
)
from holdfast.worker import attempt
from holdfast.worker.runs import RunMemory
from holdfast.worker.sweeper import Sweeper
from holdfast.workflows.definition import Definition, StepDefinition
from holdfast.workflows.partition import Items, Shards
from tests.invariants import Invariants, Row, is_free
from tests.simulation.breakers import FRAGILE, Breakers
from tests.simulation.publications import TASK_TYPES, Publications, publishes
from tests.simulation.scene import SETTINGS, STEP, Broken, Killed
from tests.simulation.schedules import TICK, Schedules
from tests.simulation.stages import INSTANCE, Setting, Stage, in_memory
from tests.simulation.story import Action

LIMIT = 3
QUEUES = ("mail", "narrow", "lanes", "workflows")
FLOW = Definition(
    name="flow",
    steps=(
        StepDefinition(name="first"),
        StepDefinition(name="many", after=("first",), partition=Shards(5), max_undone=2),
        StepDefinition(name="last", after=("many",)),
        StepDefinition(name="finally", phase=1),
    ),
)
LINE = Definition(
    name="line",
    steps=tuple(
        StepDefinition(name=name, after=after)
        for name, after in (("a", ()), ("b", ("a",)), ("c", ("b",)), ("d", ("c",)))
    ),
)
BULK = Definition(
    name="bulk",
    steps=(StepDefinition(name="each", partition=Items(), max_undone=3), StepDefinition(name="sum", after=("each",))),
)
ITEMS = 7
FLOWS = (FLOW, LINE, BULK)
TYPES = (
    TypeRow("send", "mail", has_handler=True, retry=encode(Fixed(7)), max_crashes=2),
    TypeRow("scan", "mail", has_handler=True, on_crash="timeout", default_timeout=20, timeout_named=True),
    TypeRow("ask", "mail", has_handler=True),
    TypeRow("hear", "mail", has_handler=True, has_response_handler=True),
    TypeRow("heavy", "narrow", has_handler=True),
    TypeRow("call", "lanes", has_handler=True),
    *(TypeRow(f"{flow.name}.{step.name}", "workflows", has_handler=True) for flow in FLOWS for step in flow.steps),
    *TASK_TYPES,
    TICK,
)
EVERY_TYPE = tuple(row.job_type for row in (*TYPES, FRAGILE))
ACTS = (
    "enqueue",
    "enqueue_keyed",
    "enqueue_later",
    "enqueue_in_lane",
    "submit",
    "abort",
    "retry",
    "answer",
    "abort_run",
    "retry_run",
    "hold",
    "release",
    "pause",
    "limit",
    "archive",
    "archive_runs",
    "archive_run",
    "submit_tally",
)
THESE = {
    False: "(select value from json_each(:ids))",
    True: "(select value::bigint from json_array_elements_text(:ids::json))",
}
Place = tuple[str, float, float, int]  # in line: of which type, and what decides
Word = tuple[Facts, Reason]  # what an explanation was made from, and what it said
CLOSED = frozenset(  # reasons that no claim makes go away
    {
        Reason.NOT_DUE,
        Reason.WINDOW,
        Reason.EXPIRED,
        Reason.RETRY_DELAY,
        Reason.SNOOZED,
        Reason.PAUSED,
        Reason.ON_HOLD,
        Reason.NO_WORKER,
    }
)
CHECK_EVERY = 12  # actions
ROUNDS = 250  # of healing
MUCH = 50  # jobs
LONG = 120.0  # seconds that a job may take whose worker is called lost before
SET_BACK = 86400.0  # seconds: more than all jumps of the clock in a story together


def setting() -> Setting:
    """What every story finds declared."""
    limits, throttlers = {"narrow": LIMIT}, {"lanes": encode_throttler(per_key("who", 1))}
    return [
        QueueDeclared(name, f"{INSTANCE}_{name}", "priority", limits.get(name, 0), throttlers.get(name))
        for name in QUEUES
    ], TYPES


def makes_items(call: Claimed) -> bool:
    return call.job_type == "bulk.each" and (call.job_key or "").endswith(".items")


class VirtualWorker:
    """What a worker process does, one piece at a time."""

    def __init__(self, world: "World", number: int, types: Sequence[str]) -> None:
        self.world, self.number, self.types = world, number, tuple(types)
        self.store = world.stage.process()
        self.memory = RunMemory(self.store.step_of_run, self.store.lot)
        self.store.takers = [self]
        self.lent = 0  # how often it was asked for room
        self.line: set[Place] = set()  # when it was asked last
        self.unheard: list[tuple[int, int]] = []  # room that it lent, and did not hear what came of it
        self.unsure = False  # whether a turn whose answer it did not get has happened
        self.hand: list[Claimed] = []
        self.done: list[Done] = []
        self.reports: list[Report] = []
        self.frozen_since: float | None = None
        self.was_frozen = False
        self.left: dict[int, int] = {}  # lease → jobs of it still in hand
        self.to_make: dict[int, tuple[int, int]] = {}  # by maker: how many items there were, and room for more
        self.steps = number  # that it has lived through
        self.id = 0
        self.join()
        self.sweeper = Sweeper(
            self.store, SETTINGS, world.clock, lambda: self.id, lambda: 0, self.see_undecided, lambda: None
        )

    def __str__(self) -> str:
        return f"worker {self.number}"

    def see_undecided(self, store: Store) -> None:
        store.undecided(self.types)

    def join(self) -> None:
        name = f"worker-{self.number}"
        self.id = self.store.join(WorkerJoin(name, "here", 1, "0", QUEUES, self.types, (), 4, None, True))
        self.world.say(f"{self} joins as {self.id}")

    def turn(
        self,
        room: int,
        strike: AbstractContextManager[None] | None = None,
        before_it: Callable[[], None] | None = None,
    ) -> None:
        """Settle what ended, claim what fits. `strike` happens in it, `before_it` when all is said and not yet done."""
        # As a pump does it: the end of a task asks for what follows from it.
        queues = ("workflows",) if any(item.call.run is not None for item in self.done) else QUEUES
        wants = [Want(queue, room, room) for queue in queues] if room else []
        breaker: Row | None = None
        line: set[Place] = set()
        word: Word | None = None
        try:
            self.obey()
            if self.unsure:
                self.store.disown(self.id, 0, list(self.left))
            while self.unheard:
                self.store.disown(*self.unheard[0], ())
                self.unheard.pop(0)
            ended = self._ended()
            turn = Turn(self.id, 0, tuple(self.done), tuple(self.reports), ended, wants, self.types, promote=True)
            if before_it is not None:
                before_it()
            before, breaker, line = self.world.stale_rows(turn), self.world.breaker_row(), self.world.line()
            word = self.world.explanation()
            with strike or nullcontext():
                answer = self.store.exchange(turn)
        except Unavailable as error:
            self.world.say(f"{self} cannot settle: {error}")
            self.unsure = True
            self.world.check_probes(None, Turn(self.id), ())
            return
        self.unsure = False
        for lease in ended:
            del self.left[lease]
        self.done, self.reports = [], []
        self._got(answer.claimed, answer.told)
        self.world.check_probes(breaker, turn, answer.claimed)
        self.world.settled(before, {call.id for call in answer.claimed})
        self.world.claimed(answer.claimed)
        self.world.check_order(line, answer.claimed)
        self.world.check_word(word, turn, answer.claimed)

    def _got(self, calls: Sequence[Claimed], told: Mapping[tuple[int, str, int], StepOfRun]) -> None:
        self.memory.learn(told)
        for call in calls:
            call.began = self.world.clock.monotonic()
            self.left[call.lease] = self.left.get(call.lease, 0) + 1
            self.hand.append(call)
            self.world.started(self, call)
            if makes_items(call):
                self.to_make[call.id] = self.world.made_of(call)
            if publishes(call):
                self.world.tell_task(call, self.memory.payload_of(call))

    def offer(self, queue: str) -> None:
        """Whoever enqueues is another process."""

    def lend(self, queue: str, job_type: str, most: int, worker: int | None, ending: int) -> Turn | None:
        """Room for tasks that it makes."""
        self.lent += 1
        self.line = self.world.line("workflows")
        return (
            Turn(self.id, -self.lent, wants=[Want(queue, most)], types=self.types) if job_type in self.types else None
        )

    def take(
        self, turn: Turn, claimed: Sequence[Claimed] | None, told: Mapping[tuple[int, str, int], StepOfRun]
    ) -> None:
        if claimed is None:
            self.unheard.append((turn.worker, turn.pump))
            return
        self._got(claimed, told)
        self.world.claimed(claimed)
        self.world.check_passed(self, self.line, claimed)

    def _ended(self) -> list[int]:
        held = {call.lease for call in self.hand}
        return [lease for lease in self.left if lease not in held]

    def obey(self) -> None:
        """End what somebody wants to end, and what has taken too long."""
        wishes = {(job, number): actor for job, number, actor in self.store.aborts(self.id)}
        for call in list(self.hand):
            spent = self.world.clock.monotonic() - call.began
            if (call.id, call.attempt) in wishes:
                call.why, call.actor = "aborted", wishes[call.id, call.attempt]
            elif call.timeout is not None and spent > call.timeout:
                call.why = "timeout"
            if call.why:
                self._end(call, attempt.ended(call, spent))

    def finish(self, call: Claimed, how: float) -> None:
        """Its handler comes to an end."""
        world, spent, how = self.world, self.world.clock.monotonic() - call.began, self.world.ends_as(call, how)
        answered = call.answer is not None and b'"due":true' in call.answer.encode()
        world.say(f"{self} ends job {call.id} attempt {call.attempt} ({call.job_type}) with {how:.3f}")
        end: Done | Report
        if makes_items(call):
            self._make(call)
        if how < 0.55 or (answered and how < 0.8):
            end = attempt.returned(call, world.result_of(call, how), spent)
            world.succeeded.add((call.id, call.attempt))
        elif how < 0.65 and call.job_type in ("ask", "hear", "heavy", "call"):
            end = attempt.returned(call, WAIT(timeout=40), spent)
        elif how < 0.75:
            end = attempt.raised(call, ValueError("it broke"), spent)
        elif how < 0.82:
            end = attempt.raised(call, Failed("expected"), spent)
        elif how < 0.9:
            end = attempt.raised(call, Retry("again", delay=30 if call.job_type == "fragile" else 3), spent)
        else:
            end = attempt.raised(call, Snooze(4), spent)
        self._end(call, end)

    def _make(self, call: Claimed) -> None:
        """Two items at a time, from what was known when it began."""
        made, room = self.to_make[call.id]
        while room > 0:
            lot = list(range(made, min(made + min(room, 2), ITEMS)))
            last = made + len(lot) == ITEMS
            left = self.store.add_items(call.run or 0, "each", made, lot, None, last)
            self.world.say(f"{self} makes items {lot}" if left is not None else f"{self} is overtaken")
            if left is None or last:
                break
            made, room = made + len(lot), left

    def _end(self, call: Claimed, end: Done | Report) -> None:
        self.hand.remove(call)
        if isinstance(end, Done):
            self.done.append(end)
        else:
            self.reports.append(end)

    def live_on(self) -> None:
        """Move the heartbeat and sweep, as its threads do all the time."""
        if self.frozen_since is not None:
            return
        if not self.store.beat(self.id):
            if not self.was_frozen:
                raise Broken(f"C2: {self} lives and was called lost")
            self.world.say(f"{self} was called lost")
            self.was_frozen = False
            self.join()
        self.steps += 1
        self.world.look_at_schedules(self)
        if self.steps % 2:  # each sees the others often enough, and they do not all look at the same moment
            try:
                self.sweeper.sweep()
            except Unavailable as error:
                if not error.locked:
                    raise
                self.world.say(f"{self} leaves what somebody keeps")
            self.world.check_wishes()

    def do_what_there_is(self) -> bool:
        """Take everything, and let all of it succeed; the next turn tells. Whether there was something."""
        self.turn(MUCH)
        found = bool(self.hand)
        for call in list(self.hand):
            self.finish(call, 0.0)
        return found

    def leave(self) -> None:
        """In good order: what is in hand is handed back, and no room is lent any more."""
        self.store.takers = []
        for call in list(self.hand):
            call.why = "stopping"
            self._end(call, attempt.ended(call, 0.0))
        self.store.exchange(Turn(self.id, done=self.done, reports=self.reports, ended_leases=self._ended()))
        self.store.disown(self.id, 0, ())
        for worker, number in self.unheard:
            self.store.disown(worker, number, ())
        self.store.leave(self.id)


class World(Schedules, Breakers, Publications):
    """Plays one story."""

    def __init__(self, seed: int, stage: Stage | None = None) -> None:
        super().__init__(seed, stage or in_memory(setting))
        self.finals: dict[int, dict[str, Any]] = {}
        self.succeeded: set[tuple[int, int]] = set()
        self.answered: set[int] = set()
        self.owners: dict[int, tuple[VirtualWorker, int, Claimed]] = {}
        self.paused: set[str] = set()
        self.to_end: set[int] = set()  # what somebody wanted to end
        self.asked = 0  # turns
        self.healing = False
        self.kept = 0  # the job that somebody has locked
        self.start(0.0, 0.0)
        self.start(0.9, 0.0)

    def play(self, story: Sequence[Action]) -> None:
        """Raises if a promise is broken on the way or at the end."""
        for index, action in enumerate(story):
            self.say(str(action))
            getattr(self, action.name)(action.a, action.b)
            if index % CHECK_EVERY == 0:
                self.check()
        self.heal()
        self.check()
        self.check_ends()
        self.check_leaving()
        self.check()
        self.check_forgetting()

    def close(self) -> None:
        self.stage.clear()

    # Clients

    def enqueue(self, a: float, b: float, **options: Any) -> None:
        job_type = options.pop("job_type", None) or ("send", "scan")[int(a * 2)]
        new = NewJob("mail", job_type, "{}", priority=int(b * 3), timeout=20, retries=1, retries_named=True, **options)
        self.accept(new)

    def enqueue_keyed(self, a: float, b: float) -> None:
        self.enqueue(a, b, job_key=f"k{int(b * 3)}", on_duplicate=("return", "replace")[int(a * 20) % 2])

    def enqueue_later(self, a: float, b: float) -> None:
        self.enqueue(a, b, delay=b * 100)

    def enqueue_windowed(self, a: float, b: float) -> None:
        opens = self.clock.now() + timedelta(seconds=b * 120)
        closes = opens + timedelta(seconds=5 + a * 60)
        self.enqueue(a, b, time_windows=(f"{opens:%H:%M:%S}-{closes:%H:%M:%S}",))

    def enqueue_expiring(self, a: float, b: float) -> None:
        self.enqueue(a, b, expires_time=self.clock.now() + timedelta(seconds=1 + b * 60))

    def enqueue_limited(self, a: float, b: float) -> None:
        self.accept(
            NewJob("narrow", "heavy", "{}", throttle_factor=(0.5, 1, 2)[int(a * 3)], priority=int(b * 2), retries=1)
        )

    def enqueue_in_lane(self, a: float, b: float) -> None:
        self.accept(NewJob("lanes", "call", json.dumps({"who": "xyz"[int(a * 3)]}), priority=int(b * 2), retries=1))

    def enqueue_asking(self, a: float, b: float) -> None:
        self.enqueue(a, b, job_type=("ask", "hear")[int(a * 2)], job_key=f"q{next(self.numbers)}")

    def submit(self, a: float, b: float) -> None:
        wanted = Submission(definition=FLOWS[int(a * len(FLOWS))], trigger=f"t{next(self.numbers)}")
        self.attempt_to(lambda: self.submitted(wanted))

    def abort(self, a: float, b: float) -> None:
        living = [row["id"] for row in self.unarchived() if row["state"] != "final"]
        if living:
            job_id = living[int(a * len(living))]
            self.attempt_to(lambda: self.to_end.add(self.store.abort(job_id, "ann").id))

    def retry(self, a: float, b: float) -> None:
        def again(job_id: int) -> None:
            job = self.store.get(job_id)
            if job.final and job.job_key is None:
                again = {"retry_of": job.id, "retries": 1, "throttle_factor": job.throttle_factor}
                new = NewJob(job.queue, job.job_type, json.dumps(job.payload), **again)
                self.accepted.append(self.store.retry(new, "ann").id)

        self.at_a_job(a, again)

    def answer(self, a: float, b: float) -> None:
        jobs = self.unarchived()
        waiting = [row["id"] for row in jobs if row["situation"] == "waiting"]
        asked = waiting or [row["id"] for row in jobs if row["job_type"] == "ask"]
        if asked:
            job = asked[int(a * len(asked))]
            error = JobError("Refused", "no", "failed") if b > 0.7 else None
            self.attempt_to(lambda: self.store.answer(job, Answer(None if error else "[1]", error, b > 0.85), "ann"))
            self.answered.add(job)

    def at_a_job(self, share: float, act: Callable[[int], Any]) -> None:
        if self.accepted:
            job = self.accepted[int(share * len(self.accepted))]
            self.attempt_to(lambda: act(job))

    def pause(self, a: float, b: float) -> None:
        queue = QUEUES[int(a * len(QUEUES))]
        self.store.pause(queue, True, "ann")
        self.paused.add(queue)

    def resume(self, a: float, b: float) -> None:
        queue = QUEUES[int(a * len(QUEUES))]
        self.store.pause(queue, False, "ann")
        self.paused.discard(queue)

    def limit(self, a: float, b: float) -> None:
        self.store.limit("narrow", (2, 4, None)[int(a * 3)], "ann")

    def abort_run(self, a: float, b: float) -> None:
        self.at_a_run(a, "UNDONE", lambda run: self.store.abort_run(run, "ann"))

    def retry_run(self, a: float, b: float) -> None:
        self.at_a_run(a, "ERROR", lambda run: self.store.retry_run(run, "ann"))

    def hold(self, a: float, b: float) -> None:
        scope = list(Level)[int(a * 3)], (None, *(flow.name for flow in FLOWS))[int(b * 4)]
        self.attempt_to(lambda: self.store.hold(*scope, None, "ann"))

    def release(self, a: float, b: float) -> None:
        held = self.store.holds()
        if held:
            self.let_go(held[int(a * len(held))])

    def let_go(self, hold: Hold) -> None:
        self.store.release(hold.level, hold.workflow, hold.trigger, "ann")

    # Workers

    def start(self, a: float, b: float) -> None:
        if len(self.workers) < 4:
            types = EVERY_TYPE if a < 0.7 else ("send", "hear", "heavy", "call", "flow.many")
            self.workers.append(VirtualWorker(self, next(self.numbers), types))

    def turn(self, a: float, b: float) -> None:
        worker = self.awake(a)
        if worker is not None:
            worker.turn(1 + int(b * 4))

    def finish(self, a: float, b: float) -> None:
        worker = self.awake(a)
        if worker is not None and worker.hand:
            worker.finish(worker.hand[int(a * 97) % len(worker.hand)], b)

    def work_off(self, a: float, b: float) -> None:
        """One does all there is, and all of it succeeds."""
        worker = self.awake(a)
        if worker is not None:
            for _ in range(4):
                worker.do_what_there_is()

    def result_of(self, call: Claimed, how: float) -> Any:
        """What a handler that succeeds returns."""
        return self.success_of(call, how) if publishes(call) else {"by": call.attempt}

    def kill(self, a: float, b: float) -> None:
        if self.workers:
            self.bury(self.workers[int(a * len(self.workers))])

    def kill_inside(self, a: float, b: float) -> None:
        """In the middle of a turn, before one of its statements."""
        worker = self.awake(a)
        if worker is not None:
            try:
                worker.turn(3, self.stage.struck(worker.store, int(b * 30), Killed))
            except Killed:
                self.bury(worker)

    def fail_inside(self, a: float, b: float) -> None:
        """The disk is full, at one of the statements of a turn."""
        worker = self.awake(a)
        if worker is not None:
            worker.turn(3, self.stage.struck(worker.store, int(b * 30), self.stage.full))

    def sweep_inside(self, a: float, b: float) -> None:
        """A sweeper meets a full disk, or dies, at one of its statements."""
        worker = self.awake(a)
        if worker is not None:
            self.clock.advance(STEP)
            error = Killed if a < 0.5 else self.stage.full
            try:
                with self.stage.struck(worker.store, int(b * 60), error):
                    worker.sweeper.sweep()
            except Unavailable as problem:
                self.say(f"{worker} cannot sweep: {problem}")
            except Killed:
                self.bury(worker)

    def act_inside(self, a: float, b: float) -> None:
        """A client meets a full disk, or dies, at one of its statements."""
        self.struck(ACTS, a, b)

    def lose_answer(self, a: float, b: float) -> None:
        """A turn is made, and its worker does not hear what came of it."""
        worker = self.awake(a)
        if worker is not None:
            worker.turn(3, self.stage.answer_lost(worker.store))
            worker.turn(1)

    def slow_turn(self, a: float, b: float) -> None:
        """A turn waits so long for the database that its worker is called lost meanwhile."""
        worker = self.awake(a)
        if worker is not None:
            self.start(0.0, b)
            worker.turn(3, before_it=lambda: self._wait_for_database(worker))

    def _wait_for_database(self, worker: VirtualWorker) -> None:
        worker.frozen_since = self.clock.monotonic()
        self.pass_time(SETTINGS.lost_after + 4 * STEP)
        self.turn(0.99, 0.9)
        self._thaw(worker)

    def freeze(self, a: float, b: float) -> None:
        worker = self.awake(a)
        if worker is not None:
            worker.frozen_since = self.clock.monotonic()

    def thaw(self, a: float, b: float) -> None:
        frozen = [worker for worker in self.workers if worker.frozen_since is not None]
        if frozen:
            self._thaw(frozen[int(a * len(frozen))])

    def _thaw(self, worker: VirtualWorker) -> None:
        assert worker.frozen_since is not None
        worker.was_frozen = (
            worker.was_frozen or self.clock.monotonic() - worker.frozen_since > SETTINGS.lost_after - STEP
        )
        worker.frozen_since = None

    def nap(self, a: float, b: float) -> None:
        """One stands still for so long that another is given its jobs, and then goes on as if nothing had been."""
        busy = [worker for worker in self.workers if worker.frozen_since is None and worker.hand]
        if busy:
            sleeper = busy[int(a * len(busy))]
            sleeper.frozen_since = self.clock.monotonic()
            self.start(0.0, b)
            self.pass_time(SETTINGS.lost_after + 4 * STEP)
            others = [worker for worker in self.workers if worker.frozen_since is None]
            if others:
                other = others[int(b * len(others))]
                other.turn(4)
                if a < 0.5:
                    for call in list(other.hand):
                        other.finish(call, 0.0)
                    other.turn(4)
            self._thaw(sleeper)
            sleeper.finish(next((call for call in sleeper.hand if makes_items(call)), sleeper.hand[0]), b)
            sleeper.turn(1)

    def lose_kept(self, a: float, b: float) -> None:
        """One is called lost while somebody keeps the row of a job that it has, and perhaps it lives."""
        busy = [worker for worker in self.workers if worker.frozen_since is None and worker.hand]
        if busy:
            sleeper = busy[int(a * len(busy))]
            call = sleeper.hand[int(b * len(sleeper.hand))]
            self.say(f"somebody keeps job {call.id} of {sleeper}")
            self.start(0.0, b)
            sleeper.frozen_since = self.clock.monotonic()
            self.kept = call.id
            with self.stage.kept(call.id):
                self.pass_time(SETTINGS.lost_after + 4 * STEP)
            self.kept = 0
            if a < 0.5:
                self.bury(sleeper)
            else:
                self._thaw(sleeper)
            self.pass_time(2 * STEP)  # somebody sweeps

    def outlive(self, a: float, b: float) -> None:
        """One is called lost while its job has time left, and tells its end after all; another attempt outlives that time."""
        worker = self.awake(a)
        if worker is None:
            return
        self.accept(NewJob("mail", "scan", "{}", timeout=LONG))
        worker.turn(4)
        calls = [call for call in worker.hand if call.timeout == LONG]
        if calls:
            worker.frozen_since = self.clock.monotonic()
            self.start(0.0, b)
            self.pass_time(SETTINGS.lost_after + 4 * STEP)
            self._thaw(worker)
            worker.finish(calls[0], 0.95)
            worker.turn(0)
            self.pass_time(2 * STEP)
            self.turn(b, 0.9)
            self.pass_time(LONG - SETTINGS.lost_after)
            self.check_times()

    def meddle(self, a: float, b: float) -> None:
        """Somebody reaches for a run when a task of it has ended and its worker has not told so."""
        able = [worker for worker in self.workers if worker.frozen_since is None]
        tasks = [(worker, call) for worker in able for call in worker.hand if call.run is not None]
        if tasks:
            worker, call = tasks[int(a * len(tasks))]
            worker.finish(call, 0.0)
            if b < 0.5:
                self.attempt_to(lambda: self.store.abort_run(call.run, "ann"))
            else:
                self.hold(0.5, a)
            worker.turn(2)

    def make_inside(self, a: float, b: float) -> None:
        """A maker of items meets a full disk, or dies, at one of its statements."""
        able = [worker for worker in self.workers if worker.frozen_since is None]
        makers = [(worker, call) for worker in able for call in worker.hand if makes_items(call)]
        if makers:
            worker, call = makers[int(a * len(makers))]
            error = Killed if int(b * 1000) % 2 else self.stage.full
            try:
                with self.stage.struck(worker.store, int(b * 15), error):
                    worker.finish(call, 0.0)
            except Unavailable:
                worker._end(call, attempt.raised(call, ValueError("no room"), 1.0))
            except Killed:
                self.bury(worker)

    def made_of(self, call: Claimed) -> tuple[int, int]:
        """How many items its step has, and how many more may be made."""
        rows = self.sql("select created, undone from {step} where run = :run and name = 'each'", run=call.run)
        return rows[0]["created"], 3 - rows[0]["undone"]

    def leave(self, a: float, b: float) -> None:
        worker = self.awake(a)
        if worker is not None and len(self.workers) > 1:
            worker.leave()
            self.stage.gone(worker.store)
            self.workers.remove(worker)

    # Time and accidents

    def wait_a_little(self, a: float, b: float) -> None:
        self.pass_time(a * 10)

    def wait_long(self, a: float, b: float) -> None:
        self.pass_time(20 + a * 80)

    def pass_time(self, seconds: float) -> None:
        while seconds > 0:
            self.clock.advance(min(STEP, seconds))
            seconds -= STEP
            for worker in list(self.workers):
                worker.live_on()

    def set_clock(self, a: float, b: float) -> None:
        """By hand, an hour forwards or backwards; durations do not notice."""
        self.clock.set(self.clock.now() + timedelta(hours=1 if a < 0.5 else -1))

    def lose_hint(self, a: float, b: float) -> None:
        table = ("ready", "waiting", "aside")[int(b * 3)]
        hints = self.sql(f"select id from {{{table}}} order by id")
        if hints:
            self.sql(f"delete from {{{table}}} where id = :id", id=hints[int(a * len(hints))]["id"])

    # What must hold

    def started(self, worker: VirtualWorker, call: Claimed) -> None:
        row = self.sql.row(call.id)
        self.say(f"{worker} starts job {call.id} attempt {call.attempt} ({call.job_type})")
        if (row["state"], row["attempt"], row["situation"]) != ("running", call.attempt, Situation.HELD):
            raise Broken(
                f"J2: {worker} got job {call.id} attempt {call.attempt}, but its row says {row['state']}, {row['attempt']}"
            )
        now = self.clock.now()
        if row["scheduled_run_time"] > self.store.time(now):
            raise Broken(f"I6: job {call.id} starts before its time")
        hours = row["time_windows"] or []
        hours = json.loads(hours) if isinstance(hours, str) else hours
        if hours and not windows.is_open(windows.parse_all(hours), now):
            raise Broken(f"I6: job {call.id} starts outside of its windows {hours}")
        expires = row["expires_time"]
        if expires is not None and expires <= self.store.time(now):
            raise Broken(f"W1: job {call.id} starts after it has expired")
        if call.id in self.to_end:
            raise Broken(f"J10: job {call.id} starts although somebody wanted to end it")
        if call.queue in self.paused:
            raise Broken(f"Q2: job {call.id} starts although its queue is paused")
        if call.job_type not in worker.types:
            raise Broken(f"Q4: {worker} does not handle {call.job_type}")
        workflow, is_task, _ = call.job_type.partition(".")
        if is_task and any(
            hold.level is Level.PICK and hold.workflow in (None, workflow) for hold in self.store.holds()
        ):
            raise Broken(f"F17: job {call.id} starts although it is held")
        before, self.owners[call.id] = self.owners.get(call.id), (worker, worker.id, call)
        if before is not None:
            other, known_as, had = before
            if had in other.hand and known_as in self.living():
                raise Broken(f"I2: job {call.id} starts for {worker} while {other} has it")

    def check_wishes(self) -> None:
        """After a sweep nobody waits longer for the end of a job than its worker may take for it."""
        before = self.store.time(self.clock.now() - timedelta(seconds=ABORT_PATIENCE))
        late = "select job from {abort} where request_time <= :before and job <> :kept"
        for row in self.sql(late, before=before, kept=self.kept):
            raise Broken(f"J10: job {row['job']} was to be ended, and is not")

    def stale_rows(self, turn: Turn) -> dict[int, dict[str, Any]]:
        """The rows of jobs about which a turn tells something although they have gone on to another attempt."""
        told = [(item.call.id, item.call.attempt) for item in turn.done]
        told += [(report.job_id, report.attempt or 0) for report in turn.reports]
        if not told:
            return {}
        ids = json.dumps([job for job, _ in told])
        found = self.sql(f"select * from {{job}} where id in {THESE[self.sql.postgres]}", ids=ids)
        rows = {row["id"]: row for row in found}
        return {job: rows[job] for job, number in told if job in rows and rows[job]["attempt"] != number}

    def settled(self, before: dict[int, dict[str, Any]], claimed: set[int]) -> None:
        for job, row in before.items():
            if job not in claimed and self.sql.row(job) != row:
                raise Broken(f"J5: what an older attempt told changed job {job}")

    def line(self, queue: str = "mail") -> set[Place]:
        """What may be claimed from a queue without a limit, and no window closes for it. The clock may have been set back."""
        found = self.sql(
            "select job_type, major, minor, id from {ready} where queue = :queue and closes_time is null and ready_time <= :now",
            queue=queue,
            now=self.store.time(self.clock.now()),
        )
        return {(row["job_type"], row["major"], row["minor"], row["id"]) for row in found}

    def check_order(self, before: set[Place], calls: Sequence[Claimed]) -> None:
        """Nothing that stood before what was claimed, and is of its type, stands there still."""
        claimed = {call.id for call in calls}
        taken = [place for place in before if place[3] in claimed]
        left = before & self.line() if taken else ()
        for job_type, *place in taken:
            if any(other[0] == job_type and [*other[1:]] < place for other in left):
                raise Broken(f"W2: job {place[-1]} was claimed before others of its type that were to come first")

    def check_passed(self, worker: VirtualWorker, before: set[Place], calls: Sequence[Claimed]) -> None:
        """Nothing that its worker could run stands in line where tasks begin that have never stood there."""
        if not (calls and before):
            return
        passed = [place for place in before & self.line("workflows") if place[0] in worker.types]
        if passed:
            raise Broken(f"W2: job {calls[0].id} began before {passed[0][0]} {passed[0][3]}, which stood in line")

    def explanation(self) -> Word | None:
        """What is said of one of the jobs that nobody has, before every other turn; each time of another."""
        self.asked += 1
        if self.asked % 2 or self.healing:
            return None
        free = [row for row in self.unarchived() if is_free(row)]
        if not free:
            return None
        facts = self.store.facts(free[self.asked // 2 % len(free)]["id"])
        return facts, explain(facts).reason

    def check_word(self, word: Word | None, turn: Turn, calls: Sequence[Claimed]) -> None:
        """What was said to stand in its way did, and where nothing was, nothing did."""
        if word is None:
            return
        (facts, reason), claimed = word, {call.id for call in calls}
        job = facts.job
        if job.id in claimed and reason in CLOSED:
            raise Broken(f"I7: job {job.id} was claimed, and was said not to run: {reason}")
        waits = reason is Reason.IN_LINE and facts.place is Beside.READY and not facts.before and job.id != self.kept
        served = any(want.queue == job.queue for want in turn.wants) and job.job_type in turn.types
        stood = facts.ready_time is not None and facts.ready_time <= facts.now  # a clock may have been set back
        if (
            waits
            and served
            and stood
            and not calls
            and not turn.done
            and not turn.reports
            and turn.worker in self.living()
        ):
            raise Broken(f"I7: job {job.id} was not claimed, and nothing was said to stand in its way")

    def unarchived(self) -> list[dict[str, Any]]:
        """What the database says of each job, asked in the same words every time: to plan this is more than to run it."""
        return self.sql("select id, job_type, state, situation, attempt from {job} order by id")

    def living(self) -> set[int]:
        return {row["id"] for row in self.sql("select id from {worker} where gone is null")}

    def claimed(self, calls: Sequence[Claimed]) -> None:
        if any(call.queue == "narrow" for call in calls):
            used = self.sql.value(
                "select coalesce(sum(throttle_factor), 0) as used from {queue:narrow} where situation in ('held', 'waiting')"
            )
            limit = next(row for row in self.store.queues() if row.name == "narrow").throttle_limit
            if used > limit:
                raise Broken(f"I5: {used} of {limit} are in use after a claim")
        if any(call.queue == "lanes" for call in calls):
            rows = self.sql("select payload from {queue:lanes} where situation in ('held', 'waiting')")
            lanes = Counter(row["payload"] for row in rows)
            if any(count > 1 for count in lanes.values()):
                raise Broken(f"I5: {lanes} are in use after a claim, one of each may be")

    def check(self) -> None:
        invariants = Invariants(self.sql, SET_BACK)
        free = invariants.unowned()
        invariants.explained(self.store, free[self.asked % len(free) :][:1] if free else ())
        invariants.hints["waiting"] += self.missing(invariants)
        invariants.check(self.accepted, self.undeleted(self.finals, invariants))
        self.finals.update(invariants.finals)
        self.check_owners(invariants)
        self.check_schedules(invariants)
        self.check_breaker()
        self.check_archive(invariants)
        self.check_publications(invariants)
        for worker in self.workers:
            if worker.frozen_since is None and not worker.unsure and not worker.unheard:
                self.check_hand(worker, invariants)
        self.check_times()

    def check_owners(self, invariants: Invariants) -> None:
        """Nobody would look for the jobs of a worker that is gone."""
        living = self.living()
        for lease in invariants.leases:
            if lease["worker"] is not None and lease["worker"] not in living:
                raise Broken(f"C3: {lease['ids']} are leased to worker {lease['worker']}, which is gone")

    def check_hand(self, worker: VirtualWorker, invariants: Invariants) -> None:
        """Nobody else would ever end what a worker has and does not know of."""
        known = {(call.id, call.attempt) for call in (*worker.hand, *(item.call for item in worker.done))}
        known |= {(report.job_id, report.attempt) for report in worker.reports}
        for job_id, row in invariants.jobs.items():
            if row["situation"] == "held" and row["worker"] == worker.id and (job_id, row["attempt"]) not in known:
                raise Broken(f"R1: {worker} has job {job_id} and does not know of it")

    def check_times(self) -> None:
        """Who has a job and is not missed measures its time itself."""
        rows = self.sql("select job, attempt, worker from {attempt} where outcome = 'timeout'")
        ended = {(row["job"], row["attempt"], row["worker"]) for row in rows}
        for worker in self.workers:
            lives = worker.frozen_since is None and not worker.was_frozen
            for call in worker.hand if lives else ():
                if (call.id, call.attempt, str(worker.id)) in ended:
                    raise Broken(f"R4: {worker} has job {call.id} and lives, and somebody else found its time over")

    def missing(self, invariants: Invariants) -> list[dict[str, Any]]:
        """Hints that an accident took: found again by a sweeper, if it is let live long enough."""
        known = {hint["id"] for hints in invariants.hints.values() for hint in hints}
        return [
            {"id": job_id, "wake_time": row["scheduled_run_time"]}
            for job_id, row in invariants.jobs.items()
            if job_id not in known and row["state"] != "final" and row["situation"] in (None, "loose")
        ]

    def heal(self) -> None:
        """Nothing bad happens any more: then everything comes to its end."""
        self.say("from here on nothing bad happens")
        self.healing = True
        for worker in list(self.workers):
            if worker.frozen_since is not None:
                self._thaw(worker)
        for queue in QUEUES:
            self.store.pause(queue, False, "ann")
        self.paused.clear()
        for hold in self.store.holds():
            self.let_go(hold)
        self.store.limit("narrow", None, "ann")
        self.pass_time(STEP)  # who was called lost notices
        for worker in list(self.workers):
            worker.leave()
            self.stage.gone(worker.store)
        self.workers = [VirtualWorker(self, next(self.numbers), EVERY_TYPE)]
        self.out = False
        self.end_schedules(self.workers[0])
        rests, busy = itertools.count(), False
        for _ in range(ROUNDS):
            if not self.unfinished():
                return
            if not busy:
                self.pass_time(3 * STEP) if next(
                    rests
                ) % 4 < 3 else self.leap()  # long enough for the dead to be missed
            for row in [row for row in self.unarchived() if row["situation"] == "waiting"]:
                self.attempt_to(lambda job=row["id"]: self.store.answer(job, Answer("[1]"), "ann"))
                self.answered.add(row["id"])
            busy = sum(worker.do_what_there_is() for worker in self.workers) > 0
        raise Broken(f"R1: these never come to their end: {self.unfinished()[:5]}")

    def leap(self) -> None:
        """To the next time at which something is wanted, or on for a while."""
        now = self.store.time(self.clock.now())
        wanted = (
            "select min(time) as time from (select scheduled_run_time as time from {job} where state <> 'final' "
            "union all select ready_time from {ready}) as wanted where time > :now"  # in line since before the clock was set back
        )
        time = self.sql.value(wanted, now=now)
        self.clock.advance(20.0 if time is None else (self.store.moment(time) - self.store.moment(now)).total_seconds())
        for worker in self.workers:
            worker.live_on()

    def unfinished(self) -> list[dict[str, Any]]:
        jobs = [row for row in self.unarchived() if row["state"] != "final"]
        return jobs + self.sql("select id, state from {run} where state not in ('SUCCESS', 'FAILED', 'ERROR')")

    def check_ends(self) -> None:
        """A success is one that some attempt came to, the last one, or that somebody answered."""
        for job_id, row in self.finals.items():
            proven = (job_id, row["attempt"]) in self.succeeded or job_id in self.answered
            if row["outcome"] == Outcome.SUCCESS and not proven:
                raise Broken(f"J5: job {job_id} ended in success by an attempt that did not")
