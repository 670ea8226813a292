"""The worker: joins the instance, hands claimed jobs to runners, and ends gracefully.

Threads of a worker, and what each one owns:
- *pumps* (two on PostgreSQL, one on SQLite), each with a connection of its own, settle and claim;
- the *runners'* threads call handlers;
- the *pulse* moves the heartbeat and hears of wishes to abort;
- the *scribe* writes down what handlers say about their jobs;
- the *scheduler* fires schedules when they are due;
- the *sweeper* looks for what other workers left behind.
"""

import contextlib
import logging
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from msgspec import structs

from holdfast import tracing
from holdfast.clock import Clock, MovableClock, monotonic, sleep
from holdfast.errors import Invalid, Unavailable
from holdfast.jobs.holds import Hold, Level
from holdfast.jobs.job import Job
from holdfast.jobs.placement import Asks, Colleague, asking, duties_of
from holdfast.jobs.secrets import Redaction
from holdfast.jobs.states import ALONE_AFTER
from holdfast.stores.contract import Claimed, News, Report, StepOfRun, Store, Turn, Want, WorkerJoin
from holdfast.worker import attempt
from holdfast.worker.capture import Capture
from holdfast.worker.fitness import Fitness, Outages
from holdfast.worker.hand import Hand
from holdfast.worker.handler import Handler, decode_answer
from holdfast.worker.isolated import ProcessRunner
from holdfast.worker.judge import Judge
from holdfast.worker.lockfile import LockFile
from holdfast.worker.loop import LoopRunner
from holdfast.worker.messages import Messages
from holdfast.worker.pulse import LONGEST_REST, Pulse
from holdfast.worker.pump import BATCH, Pump
from holdfast.worker.runners import Runner
from holdfast.worker.runs import RunMemory
from holdfast.worker.scheduler import Scheduler, tell
from holdfast.worker.scribe import Scribe
from holdfast.worker.settings import FAREWELL, Chore, WorkerSettings
from holdfast.worker.sweeper import Sweeper
from holdfast.worker.threads import ThreadRunner

logger = logging.getLogger("holdfast.worker")
MOST_TIMEOUTS = 1000
NO_PUMP = -1  # claims what is offered to an enqueue: no pump may take that for its own, unheard
LOANS = -2  # and below, each with a number of its own: what was lent is claimed as by a pump that nobody else is
NOTHING_TOLD: Mapping[tuple[int, str, int], StepOfRun] = {}
LOCK_WITHIN = 1.0  # seconds to wait for a lock: whoever has it may stand still
LISTEN_EVERY = 1.0  # seconds between looks for response handlers that answers are left to
END_WITHIN = 10.0  # seconds that a worker which cannot work any more takes to end its handlers
LONG_IN_BACKLOG = 1.0  # seconds after which a job claimed ahead and not begun is handed back


class Worker:
    """One worker process's worth of work: `start`, then `stop`."""

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        settings: WorkerSettings,
        clock: Clock,
        version: str,
        chores: Sequence[Chore] = (),
    ) -> None:
        self.settings = settings
        self._chores = chores
        self.clock = clock
        handlers = {name: handler for name, handler in handlers.items() if set(handler.labels) <= set(settings.labels)}
        self.types = tuple(sorted(handlers))
        self.asks = Asks(self.types)
        self.deaf: tuple[str, ...] = ()  # types that have a response handler in other code, and none in ours
        self._listen_at = 0.0
        self.duties = settings.duties
        self._duties_told = True
        self._preferences = {name: each.preference for name, each in handlers.items() if each.preference is not None}
        self._handlers = handlers
        self.id = 0
        self._store = store
        self._version = version
        self._secrets = {name: handler.secrets for name, handler in handlers.items()}
        self._runs_on = {name: handler.runs_on() for name, handler in handlers.items()}
        self._pump_count = settings.pumps or store.pumps
        self.judge = Judge(handlers, self._read, self._judged)
        self.hand = Hand(settings.concurrency, self._pump_count, self.judge)
        self.scribe = Scribe(lambda: self.store.another(None), settings.log_limit, clock)
        self.capture = Capture(self.scribe, settings.log_level)
        arguments = (handlers, settings.concurrency, self.hand.finished, self._wake_pumps)
        self.loop, self.threads, self.processes = (
            LoopRunner(*arguments),
            ThreadRunner(*arguments),
            ProcessRunner(*arguments, self.scribe, settings.log_level),
        )
        self.runners: tuple[Runner, ...] = (self.loop, self.threads, self.processes)
        self.pumps: list[Pump] = []
        self._loans = count(LOANS, -1)
        self.unheard: deque[tuple[int, int]] = (
            deque()
        )  # as which worker and number claims were made whose answers were lost
        self.messages = Messages(self._end_offers, self._on_change, self._on_news)
        self.run_memory = RunMemory(
            lambda *asked: self.store.step_of_run(*asked), store.lot, alone=settings.concurrency == 1
        )
        self.outages = Outages()
        self.failure: str | None = None  # why it has ended without being asked to
        self._timeouts: dict[float | None, float | None] = {}  # one number for all jobs with the same
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._hurry = threading.Event()
        self._starting = threading.Lock()
        self._ending_offers = threading.Lock()
        self._began = False
        self._lock_file: LockFile | None = None
        self._lone_pulse: Pulse | None = None  # of `run_until_idle`
        self._pulse_at = 0.0

    # Life

    def start(self) -> None:
        """Join the instance and begin to work."""
        with self._starting:
            if not self.stopping:
                try:
                    self._start()
                except BaseException as error:
                    self._give_up_start()
                    if isinstance(error, Unavailable) and self._stopping.is_set():
                        return
                    raise
                self._began = True

    def _start(self) -> None:
        self.processes.start()
        if "process" in self._runs_on.values():
            self.processes.prepare()  # forks: best while there are few threads
        self.loop.start()
        self.threads.start()
        self.store = self._store.another(None)
        self.store.give_way(self.settings.lost_after, LOCK_WITHIN)
        self._join_at_last()
        self.pumps += [Pump(self, self.store.another(None), index) for index in range(self._pump_count)]
        self.pulse = Pulse(
            self.store.another(None),
            self.settings.heartbeat,
            self._beat,
            self._asked,
            self.cancel,
            self._hand_back,
            self.outages,
        )
        self._fitness = self._watched()
        self.sweeper = self._sweeper(self.store.another(None))
        self.scheduler = Scheduler(
            self.store.another(None), self.clock, self.settings.poll, lambda: "schedule" in self.duties
        )
        self._watch = self.store.watch(self.messages.news)
        self.messages.start()
        self.store.listeners.append(self.messages.changed)
        self.store.takers.append(self)
        if isinstance(self.clock, MovableClock):
            self.clock.moved.append(self._on_change)
        for thread in (*self.pumps, self.pulse, self.sweeper, self.scheduler, *self._fitness):
            thread.start()

    def _watched(self) -> tuple[Fitness, ...]:
        """By a thread that ends this worker if it cannot work any more. Not in memory, which no other process can use."""
        address = self.store.address()
        if address is None:
            return ()
        watch = partial(Fitness, address, lambda: self.id, self.outages)
        return (watch(self.settings.heartbeat, self.settings.lost_after, self._fail),)

    def _fail(self, reason: str) -> None:
        """It cannot work any more: end, and let others have its jobs. Whatever supervises it starts it again."""
        logger.critical("%s", reason)
        self.failure = reason
        stopping = threading.Thread(target=self.stop, args=(True,), name="holdfast-stop", daemon=True)
        stopping.start()
        stopping.join(END_WITHIN)  # its connections may keep it longer
        for watch in self._fitness:
            watch.hand_back()
        self._ended.set()

    def _give_up_start(self) -> None:
        for runner in self.runners:
            with contextlib.suppress(Exception):
                runner.stop()
        if self._lock_file:
            self._lock_file.release()
            self._lock_file = None

    def _join_at_last(self) -> None:
        """What can be read and not be written to, because its disk is full or it is a standby, is waited for (C7)."""
        pause = 0.05
        while True:
            try:
                return self.join()
            except Unavailable as error:
                if self.stopping:
                    raise
                logger.warning("The worker cannot join yet: %s", error)
                sleep(pause)
                pause = min(pause * 2, 1.0)

    def join(self) -> None:
        """Take a new identity. Also after having been called lost: what is in hand then is stale."""
        path = self.store.lock_path()
        before, self._lock_file = self._lock_file, LockFile(path) if path else None
        if before:
            before.release()
        settings = self.settings
        host, pid = socket.gethostname(), os.getpid()
        name = settings.name or f"{host}:{pid}"
        self.duties, self._duties_told = self._duties_now(self.store), True
        queues = settings.queues or tuple(row.name for row in self.store.queues())
        joining = WorkerJoin(
            name,
            host,
            pid,
            self._version,
            queues,
            self.types,
            settings.labels,
            settings.concurrency,
            path,
            not settings.queues,
            self.duties,
        )
        self.id = self.store.join(joining)
        self._look_at_colleagues(self.store)
        self._look_for_response_handlers(self.store)
        logger.info("Worker %s (%s) works on %s.", self.id, name, ", ".join(queues) or "no queue yet")

    def stop(self, hurry: bool = False) -> None:
        """No new claims; wait for the grace period (`hurry`: not); hand back the rest. Safe from anywhere, and twice."""
        if hurry:
            self._hurry.set()
        if self._stopping.is_set():
            self._ended.wait()
            return
        self._stopping.set()
        with self._starting:  # a worker that is just starting is let start, and then stopped
            if self._began:
                self._wind_down()
        self._ended.set()

    def _wind_down(self) -> None:
        self._take_all_back()
        self._wake_pumps()
        if self.hand.count > 0:
            self.pulse.beat_now()  # whoever looks at workers sees that it is stopping
        ends = monotonic() + self.settings.grace
        while self.hand.count > 0 and not self._hurry.is_set() and monotonic() < ends:
            self._hurry.wait(0.02)
        for runner in self.runners:
            runner.stop()
        self._take_all_back()  # what was claimed by a turn that was under way at the first time
        for pump in self.pumps:
            pump.close()
        self._end_notes()
        for watch in self._fitness:
            watch.close()
        self.pulse.close()
        self.sweeper.close()
        self.scheduler.close()
        self._watch.close()
        self.store.listeners.remove(self.messages.changed)
        self.store.takers.remove(self)
        self.messages.close()
        if isinstance(self.clock, MovableClock):
            self.clock.moved.remove(self._on_change)
        self.store.patience = FAREWELL
        self._leave()
        self.store.close()

    def _end_notes(self) -> None:
        self.scribe.close()
        self.capture.remove()

    def _leave(self) -> None:
        try:
            for index in (NO_PUMP, *range(self._pump_count)):
                self.store.disown(self.id, index, ())
            for worker, number in self.unheard:
                self.store.disown(worker, number, ())
            self.store.leave(self.id)
        except Unavailable as error:
            logger.warning(
                "Worker %s could not say good-bye: %s Its jobs are recovered when it is missed.", self.id, error
            )
        if self._lock_file:
            self._lock_file.release()
            self._lock_file = None

    @property
    def attempts(self) -> int:
        """How many jobs it has claimed so far."""
        return self.hand.attempts

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stopped(self, timeout: float | None = None) -> bool:
        """Wait until it has stopped."""
        return self._ended.wait(timeout)

    def __enter__(self) -> "Worker":
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    # Between the threads

    def hand_out(self, calls: Sequence[Claimed]) -> None:
        """Each job to the runner of its type; one that was lost again and again runs alone."""
        self.hand.take(calls)
        self.capture.install()
        if len(self._timeouts) > MOST_TIMEOUTS:
            self._timeouts.clear()
        if tracing.loaded():
            self._trace(calls)
        now = monotonic()
        groups: dict[str, list[Claimed]] = {"loop": [], "thread": [], "process": []}
        for call in calls:
            call.began = now
            call.job_type = sys.intern(call.job_type)  # one text for all jobs of a type
            call.timeout = self._timeouts.setdefault(call.timeout, call.timeout)
            if (call.run is not None or call.answer is not None) and not self._looked_up(call):
                continue
            way = self._runs_on[call.job_type] if call.answer is None else self._way_of_answer(call)
            way = "process" if call.losses >= ALONE_AFTER else way
            if self._secrets[call.job_type]:
                call.hidden = Redaction.of_json(call.payload, self._secrets[call.job_type])
            call.notes = None if way == "process" else self.scribe
            groups[way].append(call)
        for runner, group in zip(self.runners, groups.values(), strict=True):
            if group:
                runner.hand(group)

    def _trace(self, calls: Sequence[Claimed]) -> None:
        """What the spans of these attempts belong to. Whoever cannot be asked costs a link, not a job."""
        with contextlib.suppress(Unavailable):
            found = self.store.traces([call.id for call in calls])
            for call in calls:
                call.trace = found.get(call.id)

    def _looked_up(self, call: Claimed) -> bool:
        """What its handler has to be told beyond the claim; a job for which it cannot be had has ended, or goes back."""
        try:
            if call.run is not None:
                call.payload = self.run_memory.payload_of(call)
            answer = None if call.answer is None else decode_answer(call.answer)
            if answer is None or not answer.due:
                call.answer = None  # it came early, and is for later
                return True
            if self._handlers[call.job_type].response_handler is not None:
                call.job = self.store.get(call.id)
                return True
            self.hand.finished.append(attempt.unheard(call, answer))
            if monotonic() >= self._listen_at:  # it was registered after we had looked
                self._listen_at = monotonic() + LISTEN_EVERY
                self._look_for_response_handlers(self.store)
        except Unavailable:
            self.hand.finished.append(attempt.handed_back(call))
        except Exception as error:
            self.hand.finished.append(attempt.raised(call, error, 0.0))
        self._wake_pumps()
        return False

    def _way_of_answer(self, call: Claimed) -> str:
        """To the response handler."""
        way = self._handlers[call.job_type].runs_on(True)
        if way == "process" or call.losses >= ALONE_AFTER:
            assert call.job is not None
            call.job = structs.replace(call.job, source=None)
        return way

    @property
    def offering(self) -> threading.Lock:
        return self.hand.offering

    def may_offer(self, queue: str) -> bool:
        wanted = self.settings.queues
        return not (self.hand.count or self.hand.unsure) and self.takes_jobs and (not wanted or queue in wanted)

    def offer(self, queue: str) -> Turn | None:
        """To an enqueue of this process: with nothing in hand, claim in its transaction."""
        if self.hand.unsure or not (self.hand.can_offer() and self.takes_jobs):
            return None
        self.hand.unsure = True
        asks, wants = self.asks, [Want(queue, 1)]
        return Turn(self.id, NO_PUMP, wants=wants, types=asks.types, late=asks.late, deaf=self.deaf)

    def give(self, claimed: Sequence[Claimed]) -> None:
        """What came of an offer."""
        if claimed:
            self.hand.given.append(claimed)
        self.hand.unsure = False

    def let_go(self) -> None:
        """The slot of an offer was used, or is free again."""
        self.messages.offer_ended()

    def lend(self, queue: str, job_type: str, most: int, worker: int | None, ending: int) -> Turn | None:
        """To whoever makes jobs in this process: as many of them as we have room for begin as they are made."""
        wanted = self.settings.queues
        if (
            self.messages.may_be_interrupted()
            or worker not in (None, self.id)
            or (wanted and queue not in wanted)
            or job_type not in self.asks.types
            or not self.takes_jobs
        ):
            return None
        room = self.hand.reserve(min(most, BATCH), 0 if self.hand.throttled else ending)
        return self._lent(queue, room) if room else None

    def _lent(self, queue: str, room: int) -> Turn | None:
        """A claim with that much room, which was reserved."""
        turn = None
        try:
            if self.takes_jobs:
                asks, number = self.asks, next(self._loans)
                wants = [Want(queue, room)]
                turn = Turn(self.id, number, wants=wants, types=asks.types, late=asks.late, deaf=self.deaf)
        finally:
            if turn is None:
                self.hand.answered(room)
        return turn

    def take(
        self,
        turn: Turn,
        claimed: Sequence[Claimed] | None,
        told: Mapping[tuple[int, str, int], StepOfRun] = NOTHING_TOLD,
    ) -> None:
        """What came of room that was lent."""
        if claimed is None:
            self.unheard.append((turn.worker, turn.pump))
            self.pumps[0].wake.set()
        claimed, room = claimed or (), turn.wants[0].room
        self.hand.answered(room, len(claimed))
        self.hand.attempts += len(claimed)
        if claimed:
            self.run_memory.learn(told)
            self.hand_out(claimed)
        if len(claimed) < room:
            for pump in self.pumps:
                if pump.hungry:  # it wanted the slots that were kept in vain
                    pump.wake.set()

    def _end_offers(self) -> None:
        """Run what was given. Who was interrupted may have claimed a job for us and not told of it: that one is handed back."""
        with self._ending_offers:
            while calls := self.hand.take_given():
                self.hand.attempts += len(calls)
                self.hand_out(calls)
            if self.hand.unsure and not self.hand.offering.locked():
                with contextlib.suppress(Unavailable):  # until the next look
                    self._disown_offered()
        for pump in self.pumps:
            if pump.hungry:  # it wanted the slot that was kept, perhaps in vain
                pump.wake.set()

    def _disown_offered(self) -> None:
        with self.hand.offering:  # so that nobody is about to give more
            given = [call.lease for calls in tuple(self.hand.given) for call in calls]
            count = self.store.disown(self.id, NO_PUMP, [*self.hand.known_leases(), *given])
            self.hand.unsure = False
        if count:
            logger.warning("A job that an interrupted enqueue had claimed for this worker is handed back.")

    def cancel(self, job_id: int, attempt_number: int, actor: str) -> None:
        for runner in self.runners:
            runner.cancel(job_id, attempt_number, "aborted", actor)

    def _wake_pumps(self) -> None:
        """For what has ended. One that is not at it takes all of it: two would only stand in each other's way."""
        self._woken.set()
        for pump in [pump for pump in self.pumps if not pump.exchanging][:1] or self.pumps:
            pump.wake.set()

    def _on_change(self) -> None:
        """Something in this process made jobs due, or moved the clock."""
        self.pumps[0].look(promote=True)
        self.pulse.wake.set()
        self.scheduler.hear()

    def _on_news(self, news: News | str) -> None:
        """The database was written to, perhaps by ourselves."""
        if isinstance(news, str):
            self.pumps[0].look_in([news], promote=True)
            return
        self.pumps[0].hear(queues=news in (News.ANYTHING, News.QUEUES))
        if news in (News.ANYTHING, News.ABORT):
            self.pulse.wake.set()
        if news in (News.ANYTHING, News.SCHEDULES):
            self.scheduler.hear()

    def _read(self, job_id: int) -> Job:
        return self.store.get(job_id)

    def _judged(self, report: Report) -> None:
        self.hand.finished.append(report)
        self._wake_pumps()

    def _beat(self, store: Store) -> None:
        self._move_counter(store)
        self._heed_rules(store)
        self._look_at_colleagues(store)
        if self.deaf:
            self._look_for_response_handlers(store)

    def _move_counter(self, store: Store) -> None:
        if not store.beat(self.id, self.stopping):
            lost = self.id
            try:
                self.join()
            finally:
                if self.id != lost:
                    told = "Worker %s was called lost; its jobs were given to others. It goes on as worker %s."
                    logger.warning(told, lost, self.id)

    @property
    def takes_jobs(self) -> bool:
        return "run" in self.duties and not self.stopping

    def _duties_now(self, store: Store) -> tuple[str, ...]:
        return duties_of(
            self.settings.duties, store.duty_rules(), self._version, socket.gethostname(), self.settings.labels
        )

    def _heed_rules(self, store: Store) -> None:
        """Operators switch duties; the row of the worker tells what it does. It leaves off before anybody is told, and
        takes up when that is known.
        """
        duties = self._duties_now(store)
        if duties == self.duties and self._duties_told:
            return
        self._duties_told, self.duties = False, tuple(duty for duty in self.duties if duty in duties)
        if "run" not in duties and not self._asks_nothing():
            return  # until the next beat
        store.set_duties(self.id, duties)
        self._duties_told, self.duties = True, duties
        logger.warning("Worker %s was given other duties: %s.", self.id, ", ".join(duties) or "none")
        self._on_change()

    def _asks_nothing(self) -> bool:
        """Wait for claims under way; False if one takes longer than a beat may be late."""
        deadline = monotonic() + self.settings.heartbeat
        while self.hand.asked:
            if monotonic() >= deadline:
                return False
            sleep(0.001)
        return True

    def _look_at_colleagues(self, store: Store) -> None:
        """Whether there are workers with labels that jobs prefer to ours."""
        if self._preferences:
            others = [row for row in store.workers() if row.id != self.id]
            colleagues = [Colleague(row.types, row.labels, row.takes_jobs) for row in others]
            before, self.asks = self.asks, asking(self.types, self._preferences, self.settings.labels, colleagues)
            if self.asks != before and self.pumps:
                self.pumps[0].look()  # what was left to one that is gone has nobody else

    def _look_for_response_handlers(self, store: Store) -> None:
        """Answers of these types are left to workers whose code has the response handler, as the registration says (R3)."""
        ours = [name for name in self.types if self._handlers[name].response_handler is None]
        registered = store.types()
        before = self.deaf
        self.deaf = tuple(name for name in ours if name in registered and registered[name].has_response_handler)
        if not set(before) <= set(self.deaf) and self.pumps:
            self.pumps[0].look()  # what was left to others is for anybody now

    def _missed(self) -> None:
        if self._began:
            self.pulse.beat_now()

    def _asked(self, store: Store) -> Sequence[tuple[int, int, str]]:
        return store.aborts(self.id)

    def _hand_back(self, store: Store) -> None:
        """Quick jobs were expected and slow ones came: others may run what we did not get to."""
        self._take_back(self._held_in_backlog(store))
        self._take_back([call for runner in (self.loop, self.threads) for call in runner.take_back(LONG_IN_BACKLOG)])

    def _held_in_backlog(self, store: Store) -> list[Claimed]:
        """Tasks that were claimed ahead and not begun, and that somebody holds (F17)."""
        if not any(call.run is not None for runner in self.runners for call in list(runner.backlog)):
            return []
        holds = [hold for hold in store.holds() if hold.level is Level.PICK]
        if not holds:
            return []
        return [call for runner in self.runners for call in runner.take_back_if(lambda call: is_held(call, holds))]

    def _take_all_back(self) -> None:
        self._take_back([call for runner in self.runners for call in runner.take_back()])

    def _take_back(self, calls: Sequence[Claimed]) -> None:
        self.hand.finished.extend(map(attempt.handed_back, calls))
        if calls:
            self._wake_pumps()

    def _sweeper(self, store: Store) -> Sweeper:
        return Sweeper(
            store,
            self.settings,
            self.clock,
            lambda: self.id,
            lambda: self.hand.attempts,
            self.judge.ask_about_undecided,
            self._missed,
            lambda: "sweep" in self.duties,
            self._chores,
        )

    # One job at a time

    def run_until_idle(self, max_jobs: int) -> int:
        """Fire, promote, sweep, and run due jobs one by one in claim order until none is due; the number of attempts."""
        self.store = self._store
        for runner in self.runners:
            runner.start()
        sweeper = self._sweeper(self.store)
        self.join()
        self._ask_for_everything()
        self._pulse_at = monotonic() + LONGEST_REST
        try:
            self._sweep_all(sweeper)
            behind, swept = (
                self._fire_due(),
                True,
            )  # behind: there are more times to fire, but first what was fired is run
            while True:
                call = self.claim_one()
                if call is None:
                    if swept and not behind:
                        return self.hand.attempts
                    self._sweep_all(sweeper)
                    behind, swept = self._fire_due(), True
                    continue
                swept = False
                if self.hand.attempts >= max_jobs:
                    self.store.exchange(Turn(self.id, reports=[attempt.handed_back(call)], ended_leases=[call.lease]))
                    raise Invalid(
                        f"run_until_idle ran {max_jobs} jobs and more are due: do they enqueue each other for ever? Raise max_jobs if not."
                    )
                self._run_one(call)
        finally:
            for runner in self.runners:
                runner.stop()
            self._end_notes()
            if self._lone_pulse is not None:
                self._lone_pulse.close()
            self._leave()

    def _ask_for_everything(self) -> None:
        """Whoever calls `run_until_idle` wants everything done here, also what others are preferred for."""
        self.asks = Asks(self.types)

    def _sweep_all(self, sweeper: Sweeper) -> None:
        """Sweep until nothing is left to end or to move: a sweep takes so many at a time."""
        more = True
        while more:
            # What comes due only now may have expired meanwhile, or its window may have closed.
            answer = self.store.exchange(Turn(self.id, types=self.types, promote=True))
            sweeper.sweep(everything=True)
            self._await_judge()
            pulse = self.store.pulse()
            overdue = sweeper.overdue_in is not None and sweeper.overdue_in <= 0
            more = pulse.shut or overdue or (answer.wake_in == 0 and not pulse.tripped)

    def _await_judge(self) -> None:
        """Wait for retry handlers that were asked about what a sweep found."""
        busy = True
        while busy:
            busy = self.judge.busy
            _, reports, _ = self.hand.take_finished()
            if reports:
                self.store.exchange(Turn(self.id, reports=reports))
                self.hand.settled((), reports, ())
            elif busy:
                self._woken.wait(0.05)
                self._woken.clear()

    def _fire_due(self) -> bool:
        """Fire schedules; True if some have so many times behind them that they are not done."""
        fired = self.store.fire_due()
        tell(fired)
        return fired.count > 0 and fired.wake_in == 0

    def claim_one(self) -> Claimed | None:
        for queue in self.settings.queues or [row.name for row in self.store.queues()]:
            asks = self.asks
            wants = [Want(queue, 1)]
            turn = Turn(self.id, wants=wants, types=asks.types, promote=True, late=asks.late, deaf=self.deaf)
            answer = self.store.exchange(turn)
            for call in answer.claimed:
                return call
        return None

    def _run_one(self, call: Claimed) -> None:
        self.hand.attempts += 1
        self.hand_out([call])
        while True:
            self._woken.wait(0.05)
            self._woken.clear()
            if self._lone_pulse is None and monotonic() >= self._pulse_at:
                self._lone_pulse = self._start_lone_pulse()
            done, reports, ended = self.hand.take_finished()
            if done or reports:
                notes = self.scribe.take(done, reports) if self.scribe.busy else ()
                self.store.exchange(Turn(self.id, done=done, reports=reports, ended_leases=ended, notes=notes))
                self.hand.settled(done, reports, ended)
            if call.lease in ended:
                return

    def _start_lone_pulse(self) -> Pulse:
        """What takes its time is not to be called lost, and can be aborted. What is quick has no use for the thread.

        Nobody wakes it for aborts: it looks for them with each beat.
        """
        rest = min(self.settings.heartbeat, LONGEST_REST)
        pulse = Pulse(
            self.store.another(None), rest, self._beat_alone, self._asked, self.cancel, lambda _: None, self.outages
        )
        pulse.start()
        return pulse

    def _beat_alone(self, store: Store) -> None:
        self._move_counter(store)
        self._ask_for_everything()


def is_held(call: Claimed, holds: Sequence[Hold]) -> bool:
    """Whether it is a task that one of these is about."""
    workflow, trigger = call.job_type.partition(".")[0], (call.job_key or "").rpartition(":")[0]
    return call.run is not None and any(hold.covers(workflow, trigger) for hold in holds)
