"""The pump: settle what is done and claim what fits, one transaction a turn.

How much to claim ahead is measured, not configured: what the worker is expected to finish in a tenth of a second, and
never less than its free slots. While nothing is due a pump rests until it is told, or for `poll` seconds.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import structs

from holdfast.clock import Clock, monotonic, sleep
from holdfast.errors import Unavailable
from holdfast.jobs.job import JobError
from holdfast.jobs.placement import Asks
from holdfast.jobs.states import HandedBack, Raised
from holdfast.stores.contract import Claimed, Done, Note, QueueRow, Report, Store, Turn, TurnAnswer, Want
from holdfast.worker.fitness import Outages
from holdfast.worker.hand import Hand, leases_of
from holdfast.worker.resting import Rests
from holdfast.worker.rotation import Rotation, shares
from holdfast.worker.runs import RunMemory
from holdfast.worker.scribe import Scribe
from holdfast.worker.settings import FAREWELL, WorkerSettings

logger = logging.getLogger("holdfast.worker")
BATCH = 500  # most jobs claimed in one turn
STRETCH = 100  # quick jobs to be claimed at a time from each of many queues that have so many
REREAD_EVERY = 6  # polls, in case that news of a queue did not come through
ECHO = 0.001  # seconds after our own write in which news of one is most likely of that
MOST_ASIDE = 1000  # ends that are stored by themselves, because somebody keeps a lock that one of them needs
ASIDE_FOR, LONGEST_ASIDE = 0.1, 10.0  # seconds until one that is locked is tried again
UNSURE = -1  # the generation after a turn that failed: it may have been committed
NO_COMPLAINT = "", 0.0
REMIND_EVERY = 60.0  # seconds between two lines that say the same of the database
LINGER = 0.006  # a last look after a claim: who stores soon after another tells of it only where that took 5 ms


class Owner(Protocol):
    """The worker, as far as its pumps know it."""

    id: int
    hand: Hand
    scribe: Scribe
    asks: Asks
    deaf: tuple[str, ...]
    unheard: deque[tuple[int, int]]
    run_memory: RunMemory
    clock: Clock
    settings: WorkerSettings
    outages: Outages
    pumps: "list[Pump]"

    @property
    def stopping(self) -> bool: ...

    @property
    def takes_jobs(self) -> bool: ...

    def hand_out(self, calls: Sequence[Claimed]) -> None: ...


class Pump(threading.Thread):
    """Repeats the turn on a connection of its own."""

    def __init__(self, worker: Owner, store: Store, index: int) -> None:
        super().__init__(name=f"holdfast-pump-{index}", daemon=True)
        self.worker = worker
        self.hand = worker.hand
        self.store = store
        self.index = index
        self.wake = threading.Event()
        self.exchanging = False
        self._called = True  # there may be due jobs; set by any thread, cleared before a look
        self._called_for: deque[str] = deque()  # the same in these queues
        self._rotation = Rotation()
        self._heard = False  # there may be due jobs, if it was somebody else who wrote
        self._heard_of_queues = False  # perhaps about a queue
        self._reread = True  # a queue may have been added, paused or given a limit
        self._look_again: float | None = None
        self._moments: deque[float] = deque()  # when to look again; told by any thread
        self._looks: dict[str, float] = {}  # by queue: when to look at it again
        self._complaint = NO_COMPLAINT  # what was last said of the database, and when
        self._wrote_at = 0.0
        self._poll_at = 0.0
        self._polls = 0
        self._promote_at = 0.0
        self._promotes = True  # in the next turn, whatever the time; set by any thread, cleared before that
        self._closing = False
        self._rows: list[QueueRow] = []
        self._rests = Rests()
        self._generation = 0
        self._pending: tuple[list[Done], list[Report], list[int]] = ([], [], [])
        self._notes: list[Note] = []  # what the attempts that ended said last
        self._aside: deque[Turn] = deque()  # ends to be stored by themselves
        self._aside_for = ASIDE_FOR
        self._aside_at = 0.0

    def look(self, promote: bool = False) -> None:
        """There may be something to claim, or (`promote`) a job whose time comes sooner than we know."""
        if promote:
            self._promotes = True
        self._called = True
        self.wake.set()

    def look_in(self, queues: Iterable[str], promote: bool = False) -> None:
        """The same, in these queues."""
        if promote:
            self._promotes = True
        self._called_for.extend(queues)
        self.wake.set()

    def look_by(self, moment: float) -> None:
        """At everything, at this moment at the latest."""
        if self._look_again is None or moment < self._look_again:
            self._moments.append(moment)
            self.wake.set()

    def hear(self, queues: bool) -> None:
        """Somebody wrote to the database, perhaps (`queues`) about a queue."""
        if queues:
            self._heard_of_queues = True
        self._heard = True
        self.wake.set()

    @property
    def hungry(self) -> bool:
        """It wanted to ask for jobs and there was no room."""
        return self._rotation.hungry

    def close(self) -> None:
        self._closing = True
        self.store.patience = FAREWELL
        self.wake.set()
        self.join(5.0)
        self.store.close()

    def run(self) -> None:
        pause = 0.05
        while not (self._closing and not self.hand.finished and not any(self._pending) and not self._aside):
            try:
                self._try_aside()
                if self._turn():
                    self.worker.outages.worked(self.name)
                    pause, self._complaint = 0.05, NO_COMPLAINT
                    if self._closing or self._is_more():
                        continue
                self._rest()
            except Unavailable as error:
                self._complain(str(error))
                if not error.locked:
                    self.worker.outages.failed(self.name, error)
                self._called = self._reread = True  # what was asked was not answered, and news may have been missed
                if error.locked and self._put_aside():
                    continue
                if self._closing:
                    return
                sleep(pause)  # not for the wake-up: a write that fails, ours included, may look like news
                pause = min(pause * 2, 1.0)
            except Exception:
                logger.exception("A turn failed; its reports are tried one by one.")
                self._recover()

    def _complain(self, told: str) -> None:
        """Once, and again after a while if it stays so."""
        if told != self._complaint[0] or monotonic() >= self._complaint[1] + REMIND_EVERY:
            logger.warning("The database cannot be used: %s", told)
            self._complaint = told, monotonic()

    def _is_more(self) -> bool:
        """There may be something to tell or to ask already, after a turn. For what comes later we are woken."""
        called = self._called or self._called_for or self._heard
        return bool(called or self.hungry or self.hand.has_finished)

    def _recover(self) -> None:
        try:
            self._one_by_one()
        except Exception as error:
            logger.warning("The reports of a failed turn wait for the database: %s", error)
            sleep(0.2)

    def _turn(self) -> bool:
        """One exchange; False if there was nothing to tell and nothing to ask."""
        worker = self.worker
        self.wake.clear()
        if worker.unheard and self.index == 0:
            self._disown_unheard()
        self._collect()
        done, reports, ended = self._pending
        wants, room = self._wants()
        if not (done or reports or ended or wants):
            self.hand.measure(self.index, 0, monotonic())  # nothing has ended here, perhaps for a while
            return False
        promote = self.index == 0 and (worker.clock.movable or self._promotes or monotonic() >= self._promote_at)
        if promote:
            self._promotes = False  # what is told from now on this turn may not see
        asks = worker.asks
        told = done, reports, ended, wants, asks.types, promote, self._notes
        turn = Turn(worker.id, self.index, *told, late=asks.late, deaf=worker.deaf)
        news = self._take_news() if self.store.hears_itself else (False, False)
        self.store.hush()
        try:
            answer = self._exchange(turn, room, news)
            self._wrote_at = monotonic()
            self._pending, self._notes = ([], [], []), []
            self._learn(turn, answer, room)
        finally:
            self.store.listen()  # first come the jobs
        self._heed(*news, waited=True)
        return True

    def _exchange(self, turn: Turn, room: int, news: tuple[bool, bool]) -> TurnAnswer:
        try:
            if self.store.generation != self._generation:
                self._disown()
            self.exchanging = True
            return self.store.exchange(turn)
        except BaseException:
            self.hand.answered(room)
            self._generation = UNSURE
            if turn.promote:
                self._promotes = True
            if news[0]:
                self.hear(news[1])
            raise
        finally:
            self.exchanging = False

    def _collect(self) -> None:
        done, reports, ended = self.hand.take_finished(self.index)
        self._pending[0].extend(done)
        self._pending[1].extend(reports)
        self._pending[2].extend(ended)
        if self.worker.scribe.busy:
            self._notes += self.worker.scribe.take(done, reports)
        if self.hand.throttled and ended:  # that makes room under a limit
            queues = {item.call.queue for item in done}.union(report.queue for report in reports)
            known = queues if queues and "" not in queues else None
            self._called_for.extend(row.name for row in self._rows if known is None or row.name in known)
            self._rests.end(known)

    def _queues_of_tasks(self) -> list[str]:
        """Queues with a limit of tasks that end in this turn: what follows from them is made in it, and can be claimed there.

        Elsewhere it begins as it is made.
        """
        if not self.hand.throttled:
            return []
        throttled = {row.name for row in self._rows if row.throttled}
        found = {item.call.queue: None for item in self._pending[0] if item.call.run is not None}
        return [queue for queue in found if queue in throttled]

    def _wants(self) -> tuple[list[Want], int]:
        """What to ask for: nothing while it takes no jobs, or when every queue was asked since somebody called."""
        self._take_calls(monotonic())
        following = self._queues_of_tasks()
        if not self.worker.takes_jobs or not (self.hungry or following):
            return [], 0
        room = self.hand.reserve(BATCH, self._ending() if self.hand.throttled else 0)
        try:
            if room and (self._reread or not self._rotation.queues):
                self._read_queues()
        except BaseException:
            self.hand.answered(room)
            raise
        queues = self._next_queues(room, following) if room else []
        if not (queues and self.worker.takes_jobs):  # who tells that it has left off looks whether anything is asked
            self.hand.answered(room)
            return [], 0
        return shares(queues, self._rotation.rich, room, self.hand.free(room) + self._ending()), room

    def _next_queues(self, room: int, following: Sequence[str]) -> list[str]:
        """Those that were not asked since somebody called, but for full ones that rest; they are looked at after it.

        Also those in which something may follow from what has just ended.
        """
        most_rich = max(1, room // STRETCH) if self.hand.quick else None  # or many would be claimed from one for long
        awake, resting = self._rotation.next(room, lambda queues: self._rests.awake(queues, monotonic()), most_rich)
        self._looks |= self._rests.ends(resting)
        others = [each for each in following if each in self._rotation.queues and each not in {*awake, *resting}]
        return [*awake, *self._rests.awake(others, monotonic())][:room]

    def _take_calls(self, now: float) -> None:
        """Reasons to look: somebody called, wrote, or it is time."""
        if self._heard and not self._hears_later(now) and not self._all_rest(now):
            self._heed(*self._take_news())
        if self.index == 0 and now >= self._poll_at:
            self._poll_at = now + min(self.worker.settings.poll, self.worker.asks.look_every or math.inf)
            self._promote_at = 0.0  # in the same turn, or it would take one more
            self._called = True
            self._polls += 1
            self._reread = self._reread or self._polls % REREAD_EVERY == 0
        if self.index == 0 and now >= self._promote_at:
            self._called = True
        while self._moments:
            self._look_at(self._moments.popleft())
        if self._look_again is not None and now >= self._look_again:
            self._called, self._look_again = True, None
        due = [queue for queue, at in self._looks.items() if now >= at]
        for queue in due:
            del self._looks[queue]
        self._called_for.extend([*due, *self._rests.due(now)])
        if self._called:
            self._called = False
            self._rotation.call()
        while self._called_for:
            queue = self._called_for.popleft()
            self._rotation.call([queue])
            if self._is_new(queue):
                self._reread = True
                self._rotation.call()

    def _is_new(self, queue: str) -> bool:
        wanted = self.worker.settings.queues
        return queue not in self._rotation.queues and (not wanted or queue in wanted)

    def _hears_later(self, now: float) -> bool:
        """Where our own writes are heard as well, it is asked after the next one who else wrote: that is cheaper."""
        return self.store.hears_itself and (any(self._pending) or now < self._wrote_at + ECHO)

    def _take_news(self) -> tuple[bool, bool]:
        """Whether somebody wrote, and whether perhaps about a queue. What comes from now on is news again."""
        heard, queues = self._heard, self._heard_of_queues
        if heard:
            self._heard = False
        if queues:
            self._heard_of_queues = False
        return heard, queues

    def _heed(self, heard: bool, queues: bool, waited: bool = False) -> None:
        if heard and self.store.changed(waited):
            self._reread = self._reread or queues
            self.look(promote=True)

    def _all_rest(self, now: float) -> bool:
        """Every queue was found full: what was heard is looked into after that, or writers would wait for idle readers."""
        queues = self._rotation.queues
        if not queues or self._rests.awake(queues, now):
            return False
        self._look_at(min(self._rests.ends(queues).values()))
        return True

    def _look_at(self, moment: float | None) -> None:
        if moment is not None:
            self._look_again = moment if self._look_again is None else min(moment, self._look_again)

    def _read_queues(self) -> None:
        wanted = self.worker.settings.queues
        rows = [row for row in self.store.queues() if not wanted or row.name in wanted]
        self._reread = False
        self.hand.throttled = any(row.throttled for row in rows)
        if rows != self._rows:
            self._rows = rows
            self._rests.end()
        self._rotation.know([row.name for row in rows])

    def _ending(self) -> int:
        """Jobs that leave the hand with this turn."""
        done, reports, _ = self._pending
        return len(done) + sum(report.lease > 0 for report in reports)

    def _learn(self, turn: Turn, answer: TurnAnswer, room: int) -> None:
        worker, now = self.worker, monotonic()
        claimed, finished = len(answer.claimed), in_hand_of(turn)
        self.hand.answered(room, claimed)
        self.hand.release(finished)
        self.hand.settled(turn.done, turn.reports, turn.ended_leases, self.index)
        self.hand.attempts += claimed
        self.hand.stale += answer.stale
        if answer.claimed:
            worker.run_memory.learn(answer.told)
            worker.hand_out(answer.claimed)
        self._called_for.extend(answer.left)
        ended = len(turn.done) + sum(not isinstance(report.happening, HandedBack) for report in turn.reports)
        self.hand.measure(self.index, ended, now)
        if turn.promote:
            if answer.promoted:
                self._called = True
            self._promote_at = now + min(worker.settings.poll, 3600.0 if answer.wake_in is None else answer.wake_in)
        elif answer.wake_in is not None:  # a breaker wants to be probed
            worker.pumps[0].look_by(now + answer.wake_in)
        if turn.wants:
            asked = [want.queue for want in turn.wants]
            self._rests.found(
                asked, answer.full, {call.queue for call in answer.claimed} if answer.full else set(), now
            )
            self._rests.locked(answer.locked, now)
            self._plan_next_look(turn, answer.claimed, now)
            self._look_at(None if answer.look_in is None else now + answer.look_in)
        if finished or room > claimed:
            self._tell_of_room()
        if any(change is not None and change.place_time is not None for change in answer.changes):
            worker.pumps[0].look(promote=True)

    def _plan_next_look(self, turn: Turn, claimed: Sequence[Claimed], now: float) -> None:
        queues = [call.queue for call in claimed]
        more = self._rotation.learn(turn.wants, queues)
        self._rotation.call(more)
        if more and len(claimed) > 1:
            for pump in self.worker.pumps:
                if pump is not self:
                    pump.look_in(more)
        self._looks |= dict.fromkeys(queues, now + LINGER)

    def _tell_of_room(self) -> None:
        """What ended, or was reserved in vain, made room, perhaps after another pump had looked for it."""
        for pump in self.worker.pumps:
            if pump is not self and pump.hungry:
                pump.wake.set()

    def _rest(self) -> None:
        """Until somebody wakes us, a job's time comes, or it is time to look without being told."""
        now = monotonic()
        until = [now + 1.0] if self.index else [self._poll_at]
        heeds = self._heard and self.store.hears_itself and not self._all_rest(now)
        heed_at = self._wrote_at + ECHO if heeds else None
        tried_at = self._aside_at if self._aside else None
        looks_at = min(self._looks.values(), default=None)
        for planned in (self._look_again, looks_at, self._rests.next_look(), heed_at, tried_at):
            if planned is not None:
                until.append(planned)
        if self.index == 0 and not self.hungry:
            until.append(self._promote_at)
        timeout = 0.05 if self._closing or self.worker.stopping else max(0.0005, min(until) - now)
        self.wake.wait(timeout)
        if self.index == 0 and monotonic() >= self._promote_at:
            self._called = True

    def _disown(self) -> None:
        """Jobs may have been claimed for us in a turn whose answer was lost: they are handed back."""
        tell_of_unheard(self.store.disown(self.worker.id, self.index, self.hand.known_leases()))
        self._generation = self.store.generation

    def _disown_unheard(self) -> None:
        """The same where somebody else has claimed for us."""
        while self.worker.unheard:
            tell_of_unheard(self.store.disown(*self.worker.unheard[0], ()))
            self.worker.unheard.popleft()

    def _put_aside(self) -> bool:
        """Somebody keeps a lock, perhaps one that an end needs: no other end may wait for it, nor a claim. Whether there were ends."""
        (done, reports, ended), notes = self._pending, self._notes
        turns = [Turn(self.worker.id, self.index, done=[item]) for item in done]
        turns += [Turn(self.worker.id, self.index, reports=[report]) for report in reports]
        if not turns or len(self._aside) + len(turns) > MOST_ASIDE:
            return False
        for turn in turns:
            said = [note for note in notes if note.job_id == told_of(turn)[0]]
            self._aside.append(structs.replace(turn, notes=said))
            self.hand.release(in_hand_of(turn))
        kept = leases_of(done, reports)  # by them the jobs are found when we are gone; the hand ends them afterwards
        self._pending, self._notes = ([], [], [lease for lease in ended if lease not in kept]), []
        self._aside_for, self._aside_at = ASIDE_FOR, 0.0
        return True

    def _try_aside(self) -> None:
        """Store what stands aside, until one of them is locked: that is tried again after a while, when it is its turn."""
        locked = 0
        while self._aside and (self._closing or monotonic() >= self._aside_at):
            turn = self._aside[0]
            try:
                self._store_one(turn)
            except Unavailable as error:
                locked += 1
                if not error.locked or (self._closing and locked >= len(self._aside)):
                    raise
                self._aside.rotate(-1)
                self._aside_at = monotonic() + self._aside_for
                self._aside_for = min(2 * self._aside_for, LONGEST_ASIDE)
                continue
            self._aside.popleft()
            self._aside_for = ASIDE_FOR
            self.worker.pumps[0].look(promote=True)  # there may be room, and what follows

    def _one_by_one(self) -> None:
        """One of the reports cannot be stored: the others must not suffer, and it must not be forgotten."""
        done, reports, ended = self._pending
        self._note_apart()
        while done:
            self._store_last(Turn(self.worker.id, self.index, done=[done[-1]]))
            done.pop()
        while reports:
            self._store_last(Turn(self.worker.id, self.index, reports=[reports[-1]]))
            reports.pop()
        self.store.exchange(Turn(self.worker.id, self.index, ended_leases=ended))
        self.hand.settled((), (), ended, self.index)
        ended.clear()

    def _note_apart(self) -> None:
        notes, self._notes = self._notes, []
        for note in notes:
            try:
                self.store.note([note])
            except Unavailable:
                self._notes = notes
                raise
            except Exception:
                logger.exception("What job %s said at its end could not be stored and is lost.", note.job_id)

    def _store_last(self, turn: Turn) -> None:
        """Of what is pending."""
        stored = self._store_one(turn)
        self.hand.release(in_hand_of(turn))
        _, lease = told_of(turn)
        if not stored and lease in self._pending[2]:
            self._pending[2].remove(lease)  # by it the job is found when we are gone

    def _store_one(self, turn: Turn) -> bool:
        """What one attempt ended with; whether at least something of it could be stored."""
        stored = True
        try:
            self.hand.stale += self.store.exchange(turn).stale
        except Unavailable:
            raise
        except Exception as error:
            job_id, _ = told_of(turn)
            logger.exception(
                "What an attempt of job %s ended with could not be stored; it ends in an error instead.", job_id
            )
            stored = self._store_failure(turn, error)
        if stored:
            self.hand.settled(turn.done, turn.reports, (), self.index)
        return stored

    def _store_failure(self, turn: Turn, error: Exception) -> bool:
        """Whether at least that could be stored."""
        told = JobError(
            type(error).__qualname__, f"what the attempt ended with could not be stored: {error!r:.500}", "result"
        )
        calls = [(item.call.id, item.call.attempt) for item in turn.done] + [
            (report.job_id, report.attempt) for report in turn.reports
        ]
        try:
            self.store.exchange(
                Turn(turn.worker, turn.pump, reports=[Report(job_id, Raised(told), number) for job_id, number in calls])
            )
            return True
        except Unavailable:
            raise
        except Exception:
            logger.exception("Nor could that; the job is recovered when this worker ends.")
            return False


def tell_of_unheard(count: int) -> None:
    if count:
        logger.warning("After a turn whose answer was lost %s jobs that were claimed unheard are handed back.", count)


def told_of(turn: Turn) -> tuple[int, int]:
    """The job of a turn that tells of one end, and its lease."""
    for item in turn.done:
        return item.call.id, item.call.lease
    return turn.reports[0].job_id, turn.reports[0].lease


def in_hand_of(turn: Turn) -> int:
    """How many jobs leave the worker's hand with this turn."""
    return len(turn.done) + sum(report.lease > 0 for report in turn.reports)
