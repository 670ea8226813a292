"""Routines: what the code declares, what an operator did, and how turns follow one another (F19).

- The end of a turn and the making of the next are one transaction, whoever writes the end: a worker, a sweeper, an
  operator. The checkpoint goes from the row of the one to the row of the other.
- Locks are taken in the order job rows, routine, parts. So a verb that changes a routine says so in one transaction and
  takes back the turns that have not begun in the next: after the first of them nobody makes new ones.
- Of the ended turns of a part the newest few are kept with the living jobs, and none goes to the archive.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import structs

from holdfast.errors import NotFound, backticked
from holdfast.jobs import routines as rules
from holdfast.jobs.job import Outcome, Situation, State
from holdfast.jobs.routines import Routine, TurnEnd
from holdfast.jobs.states import Aborted, Change, Row, Succeeded
from holdfast.stores.contract import NewJob, News, PartRow, Report, RoutineRow, TypeRow
from holdfast.stores.reader import RowReader
from holdfast.stores.run_archive import RunArchive
from holdfast.stores.statements import BATCH, RowDict, encode_json

encode_routine = msgspec.json.Encoder(order="deterministic").encode
decode_effects = msgspec.json.Decoder(dict[str, float | None]).decode


class Looping(RunArchive):
    """Adds the verbs about routines."""

    def declare_routines(self, routines: Sequence[Routine]) -> None:
        """Store what the code declares, if it differs from what is stored, and see to it that every part has its turn."""
        with self.work(write=False):
            stored = {row["name"]: row for row in self.rows("routines")}
            going = {name for name, row in stored.items() if not self._lacks_turns(row)}
        for routine in sorted(routines, key=lambda each: each.name):
            text, row = encode_routine(routine).decode(), stored.get(routine.name)
            if row is None or row["definition"] != text:
                self._put_routine(routine.name, text)
            elif routine.name not in going:
                self._set_going(routine.name)

    def _put_routine(self, name: str, definition: str) -> None:
        with self.work():
            self.run("put_routine", {"name": name, "definition": definition, "now": self.time(self.now())})
        self._take_back_turns(name)
        self._set_going(name)

    def routines(self) -> Sequence[RoutineRow]:
        """Every routine by name, with its parts."""
        with self.work(write=False):
            return [self._routine_row(row) for row in self.rows("routines")]

    def pause_routine(self, name: str, paused: bool, actor: str) -> RoutineRow:
        """No turn begins while it is paused; those that run end. `paused=False` also brings back one that was removed."""
        with self.work():
            row = self._locked_routine(name)
            if paused and row["removed"]:
                raise NotFound(
                    f"Routine `{name}` of instance `{self.instance}` was removed by an operator. `holdfast routines resume {name}` brings it back."
                )
            self._switch(name, paused, removed=False)
            self._audit(actor, "pause_routine" if paused else "resume_routine", detail=name)
        if paused:
            self._take_back_turns(name)
        self._set_going(name)
        return self._routine(name)

    def remove_routine(self, name: str, actor: str) -> None:
        """End it and forget its checkpoints and turns. It stays removed, though code declares it, until it is resumed."""
        with self.work():
            self._locked_routine(name)
            self._switch(name, paused=False, removed=True)
            self._audit(actor, "remove_routine", detail=name)
        self._take_back_turns(name)
        with self.work():
            living = [part["job"] for part in self.rows("parts", {"routine": name}) if part["job"] is not None]
            for row in self._lock(living).values():
                if row is not None and row.situation is Situation.HELD:
                    self._ask_to_abort(row, actor)
                elif row is not None and row.state is not State.FINAL:
                    self.apply([Report(row.id, Aborted(actor), actor=actor, action="abort")])
            routine = routine_of(RowReader(self._locked_routine(name)))
            self.run("drop_parts", {"routine": name})
            self._drop_all_turns(routine)

    def revive_routines(self) -> int:
        """Parts whose turn has gone without a successor, however that came, get one; how many."""
        with self.work(write=False):
            lacking = [row["name"] for row in self.rows("routines") if self._lacks_turns(row)]
        return sum(self._set_going(name) for name in lacking)

    # Turns

    def ends_of_turns(self, reports: Sequence[Report], changes: Sequence[Change | None], now: datetime) -> set[int]:
        """Turns of routines are among what became final: the next ones are made. Their ids: they do not go to the archive."""
        found: dict[str, list[tuple[Report, Change]]] = {}
        for report, change in zip(reports, changes, strict=True):
            if change is not None and change.final and change.row.job_type.startswith(rules.PREFIX):
                found.setdefault(change.row.job_type.removeprefix(rules.PREFIX), []).append((report, change))
        kept: set[int] = set()
        for name in sorted(found):
            for row in self.rows("lock_routine", {"name": name}):
                kept.update(self._end_turns(row, found[name], now))
        return kept

    def _end_turns(self, row: RowDict, ended: Sequence[tuple[Report, Change]], now: datetime) -> Iterator[int]:
        read = RowReader(row)
        routine = routine_of(read)
        goes_on = not (row["paused"] or row["removed"] or read.damaged)
        for report, change in ended:
            for part in self._part_of(routine, change.row):
                yield change.row.id
                if change.row.state is State.INITIAL:
                    self._pass_over(routine, part, goes_on, now)
                    if report.actor is None:  # nobody asked for it: it leaves no trace
                        self._drop_turns(change.row.queue, {change.row.id: self.time(now)})
                else:
                    self._end_turn(routine, part, report, change, now)
        if goes_on:
            self._begin_turns(routine, now)

    def _part_of(self, routine: Routine, row: Row) -> list[dict[str, object]]:
        """The part whose living turn this job was; none for a job that somebody enqueued by hand."""
        name, _, index = (row.job_key or "").rpartition(":")
        if name != routine.name or not index.isdecimal():
            return []
        return self.rows("part_of_job", {"routine": name, "part": int(index), "job": row.id})

    def _pass_over(self, routine: Routine, part: RowDict, goes_on: bool, now: datetime) -> None:
        """A turn that had not begun. If the routine was not paused and has the same scale, the turn is passed over."""
        at = part["next_time"]
        if goes_on and part["scale"] == routine.scale:
            at = self.time(rules.next_time(routine, TurnEnd(Outcome.ABORTED), 0, now, 0.0))
        self.run("take_back_turn", {"routine": routine.name, "part": part["part"], "next_time": at})

    def _end_turn(self, routine: Routine, part: RowDict, report: Report, change: Change, now: datetime) -> None:
        row, last = change.row, change.steps[-1]
        assert last.outcome is not None
        effects = report.happening.effects if isinstance(report.happening, Succeeded) else None
        delay = decode_effects(effects).get("delay") if effects else None
        end = rules.end_of(last.outcome, last.error, report.happening, delay, now)
        failures = rules.failures_after(end, part["failures"])
        params = {
            "routine": routine.name,
            "part": part["part"],
            "job": row.id,
            "failures": failures,
            "next_time": self.time(rules.next_time(routine, end, failures, now, random.random())),
            "outcome": end.outcome.value,
            "error": None if end.error is None else encode_json(end.error).decode(),
            "now": self.time(now),
        }
        self.run("end_turn", params, row.queue)
        wanted = {"job_type": row.job_type, "job_key": row.job_key, "keep": routine.keep, "limit": BATCH}
        self._drop_turns(row.queue, {old["id"]: old["end_time"] for old in self.rows("old_turns", wanted, row.queue)})

    def _begin_turns(self, routine: Routine, now: datetime) -> int:
        """A turn for each part that has none; not before all of another scale have ended: parts never overlap."""
        idle = self.rows("idle_parts", {"routine": routine.name, "scale": routine.scale})
        if not idle:
            return 0
        declared = self._types_named([routine.job_type]).get(routine.job_type)
        if declared is None:
            return 0  # nobody has registered its handler yet
        made = self.insert([turn_job(routine, declared, part, self._begins(part, now)) for part in idle])
        for part, job in zip(idle, made, strict=True):
            place = {"routine": routine.name, "part": part["part"], "job": job.id}
            self.run("begin_turn", {**place, "scale": routine.scale})
            self.run("give_checkpoint", place, job.queue)
        return len(made)

    def _begins(self, part: RowDict, now: datetime) -> datetime:
        planned = self.moment(part["next_time"])
        return now if planned is None else max(now, planned)

    def _set_going(self, name: str) -> int:
        """Every part of a routine that is not paused has a turn; how many were made."""
        with self.work():
            row = self._locked_routine(name)
            read, params = RowReader(row), {"routine": name}
            routine = routine_of(read)
            if row["paused"] or row["removed"] or read.damaged:
                return 0
            for index in range(routine.scale):
                self.run("add_part", {**params, "part": index})
            for part in self.rows("orphaned_parts", {**params, "job_type": routine.job_type}):
                self.run("take_back_turn", {**params, "part": part["part"], "next_time": None})
            return self._begin_turns(routine, self.now())

    def _lacks_turns(self, row: RowDict) -> bool:
        read, params = RowReader(row), {"routine": row["name"]}
        routine = routine_of(read)
        if row["paused"] or row["removed"] or read.damaged:
            return False
        if sum(part["part"] < routine.scale for part in self.rows("parts", params)) < routine.scale:
            return True
        orphaned = self.rows("orphaned_parts", {**params, "job_type": routine.job_type})
        return bool(orphaned or self.rows("idle_parts", {**params, "scale": routine.scale}))

    def _take_back_turns(self, name: str) -> None:
        """Turns that nobody has, of a routine that is paused, removed, or has another scale now."""
        with self.work():
            row = self.rows("routines_named", {"name": name})[0]
            stands, read = row["paused"] or row["removed"], RowReader(row)
            scale = routine_of(read).scale
            parts = self.rows("parts", {"routine": name})
            ids = [part["job"] for part in parts if part["job"] is not None and (stands or part["scale"] != scale)]
            ids = [] if read.damaged and not stands else ids
            self._drop_hints(ids)
            free = [each for each in self._lock(ids).values() if each is not None and is_free(each)]
            self.apply([Report(each.id, Aborted("routine")) for each in free])

    def _drop_turns(self, queue: str, ended: Mapping[int, object]) -> None:
        for job_id, end_time in ended.items():
            self.run("drop_turn", {"id": job_id}, queue)
            self.run("drop_dead_turn", {"id": job_id, "end_time": end_time})
        if ended:
            self.drop_beside(list(ended))

    def _drop_all_turns(self, routine: Routine) -> None:
        declared = self._types_named([routine.job_type]).get(routine.job_type)
        while declared is not None:
            rows = self.rows("all_turns", {"job_type": routine.job_type, "limit": BATCH}, declared.queue)
            self._drop_turns(declared.queue, {row["id"]: row["end_time"] for row in rows})
            if len(rows) < BATCH:
                return

    # Rows

    def _switch(self, name: str, paused: bool, removed: bool) -> None:
        self.run("switch_routine", {"name": name, "paused": paused, "removed": removed, "now": self.time(self.now())})
        self.tell(News.JOBS)

    def _locked_routine(self, name: str) -> RowDict:
        for row in self.rows("lock_routine", {"name": name}):
            return row
        raise NotFound(
            f"There is no routine {backticked(name)} in instance `{self.instance}`. `holdfast routines list` shows those there are."
        )

    def _routine(self, name: str) -> RoutineRow:
        return next(row for row in self.routines() if row.name == name)

    def _routine_row(self, row: RowDict) -> RoutineRow:
        parts = self.rows("parts", {"routine": row["name"]})
        ids = [part["job"] for part in parts if part["job"] is not None]
        turns = {each["id"]: each for each in self.rows("jobs_by_id", {"ids": self.pack(ids)})}
        read = RowReader(row)
        return RoutineRow(
            routine=routine_of(read),
            paused=bool(row["paused"]),
            removed=bool(row["removed"]),
            create_time=self._known(row["create_time"]),
            update_time=self._known(row["update_time"]),
            parts=tuple(self._part_row(part, turns.get(part["job"])) for part in parts),
            damaged=tuple(read.damaged),
        )

    def _part_row(self, row: RowDict, living: RowDict | None) -> PartRow:
        turn, read = None if living is None else self.job_of(living), RowReader(row)
        return PartRow(
            index=row["part"],
            turn=turn,
            turns=row["turns"],
            failures=row["failures"],
            next_time=turn.scheduled_run_time if turn is not None else self.moment(row["next_time"]),
            last_job=row["last_job"],
            last_end_time=self.moment(row["last_end_time"]),
            last_outcome=row["last_outcome"],
            error=read.error("error"),
            error_time=self.moment(row["error_time"]),
            checkpoint=(read if living is None else RowReader(living)).value("checkpoint"),
        )


def routine_of(read: RowReader) -> Routine:
    """A routine as it is stored. One that is damaged keeps what its turns leave, and begins none until code declares it again."""
    return read.read("definition", rules.decode, lambda _: Routine(read.row["name"], every=0))


def turn_job(routine: Routine, declared: TypeRow, part: RowDict, at: datetime) -> NewJob:
    """The next turn of a part: the type's defaults as they are now."""
    told = {"routine": routine.name, "index": part["part"], "scale": routine.scale, "number": part["turns"] + 1}
    new = NewJob(
        queue=declared.queue,
        job_type=declared.job_type,
        payload=encode_json(told).decode(),
        job_key=routine.key(part["part"]),
        priority=declared.default_priority,
        timeout=declared.default_timeout,
        throttle_factor=declared.default_throttle_factor,
        retries=0,
        timeout_named=declared.timeout_named,
        retries_named=True,
        time_windows=declared.default_time_windows,
    )
    return structs.replace(new, scheduled_run_time=at)


def is_free(row: Row) -> bool:
    """Nobody has it, and it waits for no answer."""
    return row.state is not State.FINAL and row.situation not in (Situation.HELD, Situation.WAITING)
