"""How changes are written: one statement for each kind of thing that they leave, for all changes of a transaction.

- Whoever writes has the rows locked and has decided; nothing is decided here.
- Moves go step by step: first the first step of every change, then the second of those that have one. Of each, those that
  differ by their values only go together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.errors import IllegalMove
from holdfast.jobs.job import AttemptEnd, Outcome, Situation, State
from holdfast.jobs.payload import storable
from holdfast.jobs.states import Change, Row, Step
from holdfast.stores.breaking import Breaking
from holdfast.stores.contract import Report
from holdfast.stores.statements import encode_json, lots, text_of

Statement = tuple[str, Mapping[str, Any], str]  # its name, its parameters, and the queue whose table it names
Place = tuple[Row, datetime, datetime | None]  # when a job is wanted, and from when on it may not start


class Writing(Breaking):
    """Adds what writes what was decided about jobs."""

    def write_changes(self, told: Sequence[tuple[Report, Change]], now: datetime) -> None:
        """All of them, each of another job, or an error and none."""
        for lot in lots(told, _text_in):
            changes = [change for _, change in lot]
            moves = list(self._moves(changes, now))
            beside = [*self._record(changes, now), *self._leases(lot), *self._undecided(changes)]
            places = [(change.row, change.place_time, change.closes_time) for change in changes if change.place_time]
            beside += [*self._places(places, now), *self._finals(changes, now)]
            counts = self.run_all([*(statement for statement, _ in moves), *beside])
            for (_, moved), count in zip(moves, counts, strict=False):
                if count != len(moved):
                    raise IllegalMove(
                        f"Of jobs {_told(moved)} {len(moved) - count} changed while their rows were locked. "
                        "This is a defect of Holdfast; please report it."
                    )
            for report, change in lot:
                if report.actor is not None:
                    attempt = change.steps[-1].attempt
                    self._audit(report.actor, report.action, job=change.row.id, attempt=attempt, queue=change.row.queue)

    # Moves

    def _moves(self, changes: Sequence[Change], now: datetime) -> Iterator[tuple[Statement, list[Change]]]:
        """Each with the changes it is of."""
        for index in range(max(len(change.steps) for change in changes)):
            alike: dict[tuple[Any, ...], list[Change]] = {}
            for change in changes:
                if index < len(change.steps):
                    alike.setdefault(_shape(change, index), []).append(change)
            for moved in alike.values():
                moved.sort(key=_job_of)
                yield self._move(moved, index, now), moved

    def _move(self, changes: Sequence[Change], index: int, now: datetime) -> Statement:
        """Of jobs in the order of their ids, which differ in nothing that `_shape` tells."""
        first = changes[0]
        was, step = _before(first, index), first.steps[index]
        last = index == len(first.steps) - 1
        waits = step.situation is Situation.WAITING
        values = self.columns(
            {
                "ids": [change.row.id for change in changes],
                "attempts": [
                    change.row.attempt if index == 0 else change.steps[index - 1].attempt for change in changes
                ],
                "errors": [self._stored_error(change, index) for change in changes],
                "results": [change.result if last else None for change in changes],
                "payloads": [change.payload if last else None for change in changes],
                "failures": [change.failures if last else change.row.failures for change in changes],
                "losses": [change.losses if last else change.row.losses for change in changes],
                "crashes": [change.crashes if last else change.row.crashes for change in changes],
                "times": [self.time(change.place_time) if last else None for change in changes],
                "deadlines": [self.time(change.deadline_time) if waits else None for change in changes],
                "answers": [_stored(change.answer) for change in changes],
                "seconds": [change.seconds if last else None for change in changes],
            }
        )
        params = {
            "was": was.state.value,
            "situation_was": text_of(was.situation),
            "state": step.state.value,
            "situation": text_of(step.situation),
            "raised": step.attempt - was.attempt,
            "outcome": text_of(step.outcome),
            "keeps_answer": first.answer is first.row.answer,
            "ends": step.state is State.FINAL,
            "now": self.time(now),
        }
        return "move", {**values, **params}, first.row.queue

    def _stored_error(self, change: Change, index: int) -> str | None:
        """The word NONE or JSON (J4); None for a job that stays in `error`, or ends in it, and keeps what it has."""
        step = change.steps[index]
        if step.error is None:
            return None if step.state is State.ERROR else "NONE"
        kept = index > 0 and change.steps[index - 1].error is step.error
        return None if kept else _stored(step.error)

    # What stands beside

    def _record(self, changes: Sequence[Change], now: datetime) -> Iterator[Statement]:
        """How attempts ended, unless in plain success."""
        ended = [change for change in changes if change.record and change.record.end is not AttemptEnd.SUCCESS]
        if ended:
            columns = zip(*(self._ended_attempt(change) for change in ended), strict=True)
            yield "add_attempts", {**self.columns(dict(zip(RECORD, columns, strict=True))), "now": self.time(now)}, ""

    def _ended_attempt(self, change: Change) -> tuple[Any, ...]:
        row, record, last = change.row, change.record, change.steps[-1]
        assert record is not None
        called = last.attempt == row.attempt
        return (
            row.id,
            last.attempt,
            self.time(row.start_time) if called else None,
            record.end.value,
            last.state.value,
            _stored(record.error),
            None if record.traceback is None else storable(record.traceback),
            record.seconds,
            None if row.worker is None or not called else str(row.worker),
        )

    def _leases(self, told: Sequence[tuple[Report, Change]]) -> Iterator[Statement]:
        """Of jobs that nobody holds: those that wait, and those whose time runs although they were lost."""
        over = [change.row.id for _, change in told if change.row.situation is Situation.WAITING]
        if over:
            yield "drop_waits", {"ids": self.pack(over)}, ""
        waits = [
            (change.row, change.deadline_time, report.lease)
            for report, change in told
            if change.steps[-1].situation is Situation.WAITING
        ]
        if waits:
            yield self.lease_waits(waits)
        for _, change in told:
            if change.steps[-1].situation is not Situation.WAITING and change.deadline_time is not None:
                ids, deadline = self.pack([change.row.id]), self.time(change.deadline_time)
                yield "lease_until", {"queue": change.row.queue, "deadline": deadline, "ids": ids}, ""

    def lease_waits(self, waits: Sequence[tuple[Row, datetime | None, int]]) -> Statement:
        """They go on counting against the limit, each in the pool of the lease that its attempt had."""
        columns: dict[str, list[Any]] = {
            "queues": [row.queue for row, _, _ in waits],
            "factors": [row.throttle_factor for row, _, _ in waits],
            "leases": [held_under for _, _, held_under in waits],
            "deadlines": [self.time(deadline) for _, deadline, _ in waits],
            "jobs": [row.id for row, _, _ in waits],
        }
        return "lease_waits", self.columns(columns), ""

    def _undecided(self, changes: Sequence[Change]) -> Iterator[Statement]:
        """Errors that a retry handler has still to judge."""
        rows = [change.row for change in changes if change.undecided]
        if rows:
            columns: dict[str, list[Any]] = {"types": [row.job_type for row in rows], "ids": [row.id for row in rows]}
            yield "add_undecided", self.columns(columns), ""
            self.announce(sorted({row.queue for row in rows}))

    def place(self, places: Sequence[Place], now: datetime) -> None:
        """Where jobs are looked for."""
        self.run_all(list(self._places(places, now)))

    def _places(self, places: Sequence[Place], now: datetime) -> Iterator[Statement]:
        """Into the claim order those whose time has come, the others among the waiting."""
        later = [each for each in places if each[1] > now]
        if later:
            columns: dict[str, list[Any]] = {
                "wake_times": [self.time(at) for _, at, _ in later],
                "ids": [row.id for row, _, _ in later],
                "queues": [row.queue for row, _, _ in later],
                "closes_times": [self.time(closes) for _, _, closes in later],
            }
            yield "place_waiting", self.columns(columns), ""
        due = [each for each in places if each[1] <= now]
        if due:
            ranks = [self.rank(row.queue, row.priority, at) for row, at, _ in due]
            columns = {
                "queues": [row.queue for row, _, _ in due],
                "majors": [major for major, _ in ranks],
                "minors": [minor for _, minor in ranks],
                "ids": [row.id for row, _, _ in due],
                "types": [row.job_type for row, _, _ in due],
                "factors": [row.throttle_factor for row, _, _ in due],
                "closes_times": [self.time(closes) for _, _, closes in due],
            }
            yield "place_ready", {**self.columns(columns), "now": self.time(now)}, ""
        if places:
            self.announce(sorted({row.queue for row, _, _ in places}))

    def rank(self, queue: str, priority: float, at: datetime) -> tuple[float, float]:
        """The two numbers that order due jobs (W2)."""
        instant = self.instant(at)
        by_time = self.queue_row(queue).claim_order == "schedule"
        return (instant, priority) if by_time else (priority, instant)

    def _finals(self, changes: Sequence[Change], now: datetime) -> Iterator[Statement]:
        """Nobody is asked any more to end what became final, and what did so otherwise than in success is listed."""
        ended = [change for change in changes if change.final]
        if ended:
            yield "drop_aborts", {"ids": self.pack([change.row.id for change in ended])}, ""
        dead = [change.row for change in ended if change.steps[-1].outcome is not Outcome.SUCCESS]
        if dead:
            columns: dict[str, list[Any]] = {"ids": [row.id for row in dead], "queues": [row.queue for row in dead]}
            yield "add_dead", {**self.columns(columns), "now": self.time(now)}, ""


RECORD = ("jobs", "attempts", "start_times", "outcomes", "states", "errors", "tracebacks", "seconds", "workers")


def _shape(change: Change, index: int) -> tuple[Any, ...]:
    """What moves have in common that one statement makes."""
    was, step = _before(change, index), change.steps[index]
    last, keeps_answer = index == len(change.steps) - 1, change.answer is change.row.answer
    moves = was.state, was.situation, step.state, step.situation, step.outcome, step.attempt - was.attempt
    return change.row.queue, last, keeps_answer, *moves


def _before(change: Change, index: int) -> Row | Step:
    return change.steps[index - 1] if index else change.row


def _job_of(change: Change) -> int:
    return change.row.id


def _stored(value: Any) -> str | None:
    return None if value is None else encode_json(value).decode()


def _text_in(told: tuple[Report, Change]) -> int:
    """About how many characters a change has to store."""
    change = told[1]
    record = change.record
    return len(change.result or "") + len(change.payload or "") + len((record and record.traceback) or "")


def _told(changes: Iterable[Change]) -> str:
    return ", ".join(str(change.row.id) for change in changes)
