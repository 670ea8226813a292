"""What can be watched: the whole instance, a job, a run."""

import contextlib
import heapq
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast import views
from holdfast.stores.contract import AttemptRecord, AuditRow, Store
from holdfast.web.live import Event

PAGE = 1000  # log lines or records read at once
KEPT = 10_000  # records or events that a watcher may be behind
LOADS_EVERY = 0.2  # seconds between two looks at how full the queues are
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
        missed = None if last is None else self._missed(last, store)
        if missed is not None:
            return [*missed, *counters]
        reset = [] if last is None else [Event("reset", {"reason": "unknown"})]
        return [*reset, Event("here", {}, f"{self.audit}-{self.attempt}"), *counters]

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
    for row in heapq.merge(audits, attempts, key=lambda row: row.time):
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


class RunTopic:
    """One run: itself as it is, then each step and the run as they move.

    An id says which topic has told how much. What one has told another cannot know: one that is made when everybody had
    left, or by another server, tells everything again.
    """

    def __init__(self, run: int) -> None:
        self.run = run
        self.over = False
        self.mark = secrets.randbits(48)
        self.count = 0
        self.last: Any = None
        self.events: list[Event] = []

    def look(self, store: Store) -> list[Event]:
        row = views.run(store.run_by_id(self.run))
        if row == self.last:
            return []
        before = self.last or {"steps": {}}
        found = [
            self._event("step", {"step": name, "from_state": before["steps"].get(name, {}).get("state"), **step})
            for name, step in row["steps"].items()
            if before["steps"].get(name) != step
        ]
        found.append(self._event("run", row))
        self.last = row
        if row["end_time"] is not None:
            found.append(self._event("end", row))
            self.over = True
        self.events = [*self.events, *found][-KEPT:]
        return found

    def _event(self, name: str, content: Any) -> Event:
        self.count += 1
        return Event(name, content, self._id())

    def _id(self) -> str:
        return f"{self.mark}-{self.count}"

    def since(self, last: str | None, store: Store) -> list[Event]:
        mark, count = _numbers(last or "") or (None, 0)
        if mark == self.mark and self.count - len(self.events) <= count <= self.count:
            return self.events[len(self.events) - self.count + count :]
        first = [] if last is None else [Event("reset", {"reason": "unknown"})]
        now = [Event("run", self.last, self._id())]
        return [*first, *now, *([Event("end", self.last, self._id())] if self.over else [])]
