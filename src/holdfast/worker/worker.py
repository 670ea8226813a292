"""The worker: settle what is done and claim what fits, one transaction a turn.

Threads of a worker, and what each one owns:
- *pumps* (two on PostgreSQL, one on SQLite), each with a connection of its own, repeat the turn;
- the *runners'* threads call handlers;
- the *pulse* moves the heartbeat and hears of wishes to abort;
- the *sweeper* looks for what other workers left behind.
"""

import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from holdfast.clock import Clock, MovableClock, monotonic, sleep
from holdfast.errors import HoldfastError, Invalid, Unavailable
from holdfast.jobs.job import Job
from holdfast.jobs.states import HandedBack
from holdfast.stores.contract import Claimed, Done, Report, Store, Turn, TurnAnswer, Want, WorkerJoin
from holdfast.worker import attempt
from holdfast.worker.handler import Handler
from holdfast.worker.judge import Judge
from holdfast.worker.lockfile import LockFile
from holdfast.worker.runners import End, LoopRunner, ProcessRunner, Runner, ThreadRunner
from holdfast.worker.sweeper import Sweeper

logger = logging.getLogger("holdfast.worker")
BATCH = 500  # most jobs claimed in one turn
AHEAD = 0.1  # seconds of work to have in hand
MOST_AHEAD = 2000
LINGER = 0.006  # a second look after a wake-up: the enqueuer tells only once in 5 ms
LEAST_REST = 0.02  # seconds between two looks for aborts
LONG_IN_BACKLOG = 1.0  # seconds after which a job claimed ahead and not begun is handed back


class WorkerSettings(Struct, frozen=True):
    """How a worker is to behave."""

    queues: tuple[str, ...] = ()  # none: all queues of the instance
    concurrency: int = 100
    labels: tuple[str, ...] = ()
    name: str = ""
    heartbeat: float = 5.0
    lost_after: float = 30.0
    grace: float = 10.0
    poll: float = 5.0
    archive_after: float = 7 * 86400.0
    forgotten_after: float = 60.0
    pumps: int | None = None


class Worker:
    """One worker process's worth of work. `start`, then `stop`; or `run` until somebody calls `stop`."""

    def __init__(self, store: Store, handlers: Mapping[str, Handler], settings: WorkerSettings, clock: Clock, version: str) -> None:
        self.settings = settings
        self.clock = clock
        self.handlers = handlers
        self.types = tuple(sorted(handlers))
        self._store = store
        self._version = version
        self.id = 0
        self.finished: deque[End] = deque()
        self.in_hand = 0
        self.attempts = 0
        self.stale = 0
        self._lock = threading.Lock()
        self._leases: dict[int, int] = {}
        self._ended_leases: list[int] = []
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._hurry = threading.Event()
        self._began = False
        arguments = (handlers, settings.concurrency, self.finished, self._wake_pumps)
        self.loop, self.threads, self.processes = LoopRunner(*arguments), ThreadRunner(*arguments), ProcessRunner(*arguments)
        self.runners: tuple[Runner, ...] = (self.loop, self.threads, self.processes)
        self._runs_on = {name: handler.runs_on for name, handler in handlers.items()}
        self.pumps = [Pump(self, index) for index in range(settings.pumps or store.pumps)]
        self.judge = Judge(handlers, self._read, self._judged)
        self.pulse = Pulse(self)
        self.sweeper = Sweeper(settings, clock, lambda: self.id, lambda: self.attempts, self.judge.ask_about, self.types)
        self._lock_file: LockFile | None = None

    # Life

    def start(self) -> None:
        """Join the instance and begin to work."""
        for runner in self.runners:
            runner.start()
        if "process" in self._runs_on.values():
            self.processes.prepare()
        self.store = self._store.another(None)
        self.join()
        self._watch = self.store.watch(self._on_news)
        self.store.listeners.append(self._on_change)
        self.sweeper.open(self.store.another(None))
        for thread in (*self.pumps, self.pulse, self.sweeper):
            thread.start()
        if isinstance(self.clock, MovableClock):
            self.clock.moved.append(self._on_change)
        self._began = True

    def join(self) -> None:
        """Take a new identity. Also after having been called lost: what is in hand then is stale."""
        if self._lock_file:
            self._lock_file.release()
        path = self.store.lock_path()
        self._lock_file = LockFile(path) if path else None
        settings = self.settings
        host, pid = socket.gethostname(), os.getpid()
        name = settings.name or f"{host}:{pid}"
        queues = settings.queues or tuple(row.name for row in self.store.queues())
        lock_path = self._lock_file.path if self._lock_file else None
        joining = WorkerJoin(name, host, pid, self._version, queues, self.types, settings.labels, settings.concurrency, lock_path)
        self.id = self.store.join(joining)
        logger.info("Worker %s (%s) works on %s.", self.id, name, ", ".join(queues) or "no queue yet")

    def stop(self, hurry: bool = False) -> None:
        """No new claims; wait for the grace period (`hurry`: not); hand back the rest. Safe to call from anywhere, twice."""
        if hurry:
            self._hurry.set()
        if self._stopping.is_set():
            self._ended.wait()
            return
        self._stopping.set()
        if self._began:
            self._wind_down()
        self._ended.set()

    def _wind_down(self) -> None:
        for call in [call for runner in self.runners for call in runner.take_back()]:
            self.finished.append(attempt.handed_back(call))
        ends = monotonic() + self.settings.grace
        self._wake_pumps()
        while self.in_hand > 0 and not self._hurry.is_set() and monotonic() < ends:
            self._hurry.wait(0.02)
        for runner in self.runners:
            runner.stop()
        for pump in self.pumps:
            pump.close()
        self.pulse.close()
        self.sweeper.close()
        self._watch.close()
        self.store.listeners.remove(self._on_change)
        if isinstance(self.clock, MovableClock):
            self.clock.moved.remove(self._on_change)
        self._leave()
        self.store.close()

    def _leave(self) -> None:
        self.store.patience = 2.0
        try:
            self.store.leave(self.id)
            self.store.recover_strays()
        except Unavailable as error:
            logger.warning("Worker %s could not say good-bye: %s Its jobs are recovered when it is missed.", self.id, error)
        if self._lock_file:
            self._lock_file.release()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def wait_until_stopped(self) -> None:
        self._ended.wait()

    def stopped(self, timeout: float) -> bool:
        return self._ended.wait(timeout)

    def __enter__(self) -> "Worker":
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    # Between the threads

    def _wake_pumps(self) -> None:
        for pump in self.pumps:
            pump.wake.set()

    def _on_change(self) -> None:
        """Something in this process made jobs due, or moved the clock."""
        self.pumps[0].look(promote=True)
        self.pulse.wake.set()

    def _on_news(self, abort: bool) -> None:
        """The database was written to, perhaps by ourselves; `abort`: somebody may want a job to end."""
        self.pumps[0].hear()
        if abort:
            self.pulse.wake.set()

    def _read(self, job_id: int) -> Job:
        return self.store.get(job_id)

    def _judged(self, report: Report) -> None:
        self.finished.append(report)
        self.pumps[0].wake.set()

    def hand_out(self, calls: Sequence[Claimed]) -> None:
        """Each job to the runner of its type; one that was lost again and again runs alone."""
        now = monotonic()
        groups: dict[str, list[Claimed]] = {}
        for call in calls:
            call.claimed = now
            kind = "process" if call.losses >= attempt.ALONE_AFTER else self._runs_on[call.job_type]
            groups.setdefault(kind, []).append(call)
        with self._lock:
            for call in calls:
                self._leases[call.lease] = self._leases.get(call.lease, 0) + 1
        for kind, group in groups.items():
            {"loop": self.loop, "thread": self.threads, "process": self.processes}[kind].hand(group)

    def take_finished(self) -> tuple[list[Done], list[Report], list[int]]:
        """Everything that ended since the last turn, and the leases with nothing left in them."""
        done: list[Done] = []
        reports: list[Report] = []
        while self.finished:
            try:
                end = self.finished.popleft()
            except IndexError:
                break
            if isinstance(end, Done):
                done.append(end)
            elif self.judge.wants(end):
                self.judge.ask(end)
            else:
                reports.append(end)
        with self._lock:
            ended = self._count_down(done, reports)
        return done, reports, ended

    def _count_down(self, done: Sequence[Done], reports: Sequence[Report]) -> list[int]:
        leases = self._leases
        ended, self._ended_leases = self._ended_leases, []
        for lease in [item.call.lease for item in done] + [report.lease for report in reports if report.lease]:
            leases[lease] -= 1
            if not leases[lease]:
                del leases[lease]
                ended.append(lease)
        return ended

    def known_leases(self) -> list[int]:
        with self._lock:
            return list(self._leases)

    def cancel(self, job_id: int, attempt_number: int, actor: str) -> None:
        for runner in self.runners:
            runner.cancel(job_id, attempt_number, "aborted", actor)

    def reserve(self, most: int) -> int:
        """Room for jobs, taken before the claim so that two pumps do not fill it twice."""
        with self._lock:
            room = max(0, min(most, self._target() - self.in_hand))
            self.in_hand += room
            return room

    def release(self, count: int) -> None:
        with self._lock:
            self.in_hand -= count

    def _target(self) -> int:
        rate = sum(pump.rate for pump in self.pumps)
        return max(self.settings.concurrency, min(int(rate * AHEAD), MOST_AHEAD))


    # One job at a time

    def run_until_idle(self, max_jobs: int) -> int:
        """Promote, sweep, and run due jobs one by one in claim order until none is due (no threads but the runners')."""
        self.store = self._store
        for runner in self.runners:
            runner.start()
        self.sweeper.open(self.store)
        self.join()
        try:
            while True:
                self.sweeper.sweep(everything=True)
                call = self._claim_one()
                if call is None:
                    return self.attempts
                if self.attempts >= max_jobs:
                    self.store.exchange(Turn(self.id, reports=[attempt.handed_back(call)], ended_leases=[call.lease]))
                    raise Invalid(f"run_until_idle ran {max_jobs} jobs and more are due: do they enqueue each other for ever? Raise max_jobs if not.")
                self._run_one(call)
        finally:
            for runner in self.runners:
                runner.stop()
            self._leave()

    def _claim_one(self) -> Claimed | None:
        for queue in self.settings.queues or [row.name for row in self.store.queues()]:
            answer = self.store.exchange(Turn(self.id, wants=[Want(queue, 1)], types=self.types, promote=True))
            for call in answer.claimed:
                return call
        return None

    def _run_one(self, call: Claimed) -> None:
        self.attempts += 1
        woken = self.pumps[0].wake
        self.hand_out([call])
        while True:
            woken.wait(0.05)
            woken.clear()
            done, reports, ended = self.take_finished()
            if done or reports:
                self.store.exchange(Turn(self.id, done=done, reports=reports, ended_leases=ended))
                return


class Pump(threading.Thread):
    """Repeats the turn on a connection of its own."""

    def __init__(self, worker: Worker, index: int) -> None:
        super().__init__(name=f"holdfast-pump-{index}", daemon=True)
        self.worker = worker
        self.index = index
        self.wake = threading.Event()
        self.rate = 0.0  # jobs finished per second, smoothed
        self._asked_at = 0.0
        self._look = True  # there may be due jobs
        self._heard = False  # there may be, if it was somebody else who wrote
        self._look_again: float | None = None
        self._closing = False
        self._queues: deque[str] = deque()
        self._promote_at = 0.0
        self._generation = 0
        self._measured = 0.0
        self._pending: tuple[list[Done], list[Report], list[int]] = ([], [], [])

    def look(self, promote: bool = False) -> None:
        """There may be something to claim, or (`promote`) a job whose time comes sooner than we know."""
        self._look = True
        if promote:
            self._promote_at = 0.0
        self.wake.set()

    def hear(self) -> None:
        """Somebody wrote to the database."""
        self._heard = True
        self.wake.set()

    def close(self) -> None:
        self._closing = True
        self.wake.set()
        self.join(5.0)
        self.store.close()

    def start(self) -> None:
        self.store = self.worker.store.another(None)
        self._generation = self.store.generation
        super().start()

    def run(self) -> None:
        pause = 0.05
        while not (self._closing and not self.worker.finished and not any(self._pending)):
            try:
                if not self._turn():
                    self._rest()
                pause = 0.05
            except Unavailable as error:
                logger.warning("The database cannot be used: %s", error)
                if self._closing:
                    return
                self.wake.wait(pause)
                pause = min(pause * 2, 1.0)
            except Exception:
                logger.exception("A turn failed; its reports are tried one by one.")
                self._one_by_one()

    def _turn(self) -> bool:
        """One exchange; False if there was nothing to tell and nothing to ask."""
        worker = self.worker
        self.wake.clear()
        self._collect()
        done, reports, ended = self._pending
        wants, room = self._wants()
        if not (done or reports or ended or wants):
            return False
        promote = self.index == 0 and (worker.clock.movable or monotonic() >= self._promote_at)
        turn = Turn(worker.id, self.index, done, reports, ended, wants, worker.types, promote)
        try:
            if self.store.generation != self._generation:
                self._reconnected()
            answer = self.store.exchange(turn)
        except BaseException:
            worker.release(room)
            raise
        self._pending = ([], [], [])
        self._learn(turn, answer, room)
        return True

    def _collect(self) -> None:
        done, reports, ended = self.worker.take_finished()
        self._pending[0].extend(done)
        self._pending[1].extend(reports)
        self._pending[2].extend(ended)

    def _wants(self) -> tuple[list[Want], int]:
        """What to ask for: nothing while stopping, or when the last look found nothing and nobody called since."""
        worker = self.worker
        now = monotonic()
        if self._heard:
            self._heard = False
            if self.store.changed():
                self.look(promote=True)
        if self._look_again is not None and now >= self._look_again:
            self._look, self._look_again = True, None
        if now - self._asked_at >= worker.settings.poll and self.index == 0:
            self._look = True
        if worker.stopping or not self._look:
            return [], 0
        if not self._queues or now - self._asked_at >= worker.settings.poll:
            self._queues = deque(worker.settings.queues or [row.name for row in self.store.queues()])
        room = worker.reserve(BATCH)
        if not room or not self._queues:
            worker.release(room)
            return [], 0
        count = min(len(self._queues), room)
        share = room // count
        wants = [Want(self._queues[index], share) for index in range(count)]
        self._queues.rotate(-count)
        self._asked_at = now
        return wants, room

    def _learn(self, turn: Turn, answer: TurnAnswer, room: int) -> None:
        worker = self.worker
        claimed, finished = len(answer.claimed), in_hand_of(turn)
        worker.release(room - claimed + finished)
        worker.attempts += claimed
        worker.stale += answer.stale
        if answer.claimed:
            worker.hand_out(answer.claimed)
        self._measure(len(turn.done) + sum(not isinstance(report.happening, HandedBack) for report in turn.reports))
        now = monotonic()
        if turn.promote:
            self._promote_at = now + min(worker.settings.poll, 3600.0 if answer.wake_in is None else answer.wake_in)
        if turn.wants:
            self._plan_next_look(turn, claimed, now)
        if any(change is not None and change.place_time is not None for change in answer.changes):
            worker.pumps[0].look(promote=True)

    def _plan_next_look(self, turn: Turn, claimed: int, now: float) -> None:
        asked = sum(want.room for want in turn.wants)
        if claimed >= asked or (claimed and len(turn.wants) > 1) or len(turn.wants) < len(self._queues):
            self._look = claimed > 0 or len(turn.wants) < len(self._queues)
            for pump in self.worker.pumps:
                if pump is not self and claimed >= asked and asked > 1:
                    pump.look()
            return
        self._look = False
        if claimed and self.index == 0:
            self._look_again = now + LINGER

    def _measure(self, finished: int) -> None:
        now = monotonic()
        elapsed = now - self._measured
        if finished and elapsed > 0:
            self.rate += (finished / elapsed - self.rate) * min(1.0, elapsed / 0.05 + 0.1)
        elif elapsed > 0.5:
            self.rate = 0.0
        else:
            return
        self._measured = now

    def _rest(self) -> None:
        """Until somebody wakes us, a job's time comes, or it is time to look without being told."""
        now = monotonic()
        until = [self._asked_at + self.worker.settings.poll]
        if self.index == 0:
            until.append(self._promote_at)
            if self._look_again is not None:
                until.append(self._look_again)
        else:
            until = [now + 1.0]
        timeout = 0.05 if self._closing or self.worker.stopping else max(0.0005, min(until) - now)
        self.wake.wait(timeout)
        if self.index == 0 and monotonic() >= self._promote_at:
            self._look = True

    def _reconnected(self) -> None:
        """Jobs may have been claimed for us in a turn whose answer was lost: they are handed back."""
        count = self.store.disown(self.worker.id, self.index, self.worker.known_leases())
        if count:
            logger.warning("After a lost connection %s jobs that were claimed unheard are handed back.", count)
        self._generation = self.store.generation

    def _one_by_one(self) -> None:
        done, reports, ended = self._pending
        self._pending = ([], [], [])
        turns = [Turn(self.worker.id, self.index, done=[item]) for item in done]
        turns += [Turn(self.worker.id, self.index, reports=[report]) for report in reports]
        turns.append(Turn(self.worker.id, self.index, ended_leases=ended))
        for turn in turns:
            self.worker.release(in_hand_of(turn))
            try:
                self.store.exchange(turn)
            except HoldfastError:
                logger.exception("What a job's attempt ended with could not be stored: %r", turn)


class Pulse(threading.Thread):
    """Moves the heartbeat, and hears of jobs that somebody wants to end."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(name="holdfast-pulse", daemon=True)
        self.worker = worker
        self.wake = threading.Event()
        self._closing = False

    def start(self) -> None:
        self.store = self.worker.store.another(None)
        super().start()

    def close(self) -> None:
        self._closing = True
        self.wake.set()
        self.join(5.0)
        self.store.close()

    def run(self) -> None:
        worker, beat_at = self.worker, 0.0
        while not self._closing:
            now = monotonic()
            woken = self.wake.is_set()
            self.wake.clear()
            try:
                if now >= beat_at:
                    beat_at = now + worker.settings.heartbeat
                    self._beat()
                    woken = True
                if woken:
                    self._hear_aborts()
                self._hand_back_unbegun()
            except Unavailable as error:
                logger.warning("The heartbeat of worker %s does not get through: %s", worker.id, error)
            sleep(LEAST_REST)  # wake-ups come in storms
            self.wake.wait(max(0.0, min(beat_at - monotonic(), LONG_IN_BACKLOG / 2)))

    def _hear_aborts(self) -> None:
        for job_id, attempt_number, actor in self.store.aborts(self.worker.id):
            self.worker.cancel(job_id, attempt_number, actor)

    def _beat(self) -> None:
        worker = self.worker
        if not self.store.beat(worker.id, worker.stopping):
            logger.warning("Worker %s was called lost; its jobs were given to others. It goes on under a new identity.", worker.id)
            worker.join()

    def _hand_back_unbegun(self) -> None:
        """Quick jobs were expected and slow ones came: others may run what we did not get to."""
        for runner in (self.worker.loop, self.worker.threads):
            for call in runner.take_back(LONG_IN_BACKLOG):
                self.worker.finished.append(attempt.handed_back(call))
                self.worker.pumps[0].wake.set()


def in_hand_of(turn: Turn) -> int:
    """How many jobs leave the worker's hand with this turn."""
    return len(turn.done) + sum(report.lease > 0 for report in turn.reports)
