"""What running attempts say about themselves: progress, checkpoint and log.

- Notes of many jobs are one transaction. An attempt that no longer holds its job changes nothing (J5).
- A log keeps its newest lines: each counts its bytes and `LINE_COSTS`, and what stands before the last `log_limit` of
  them is dropped. Ids go on counting, so what was dropped is seen as a gap.
- Log lines stand beside the job, by its id, and stay when it is archived.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.jobs.job import LogLine
from holdfast.stores.contract import Note
from holdfast.stores.reading import Reading
from holdfast.stores.statements import RowDict

LINE_COSTS = 100  # bytes that a line counts for besides its text, so that empty ones are bounded too


class Noting(Reading):
    """Adds the verbs about progress, checkpoint and log."""

    def note(self, notes: Sequence[Note], waits: bool = True) -> Sequence[bool | None]:
        """Write what attempts say, all of it or none; False for each that is stale.

        Unless it `waits`: None for each whose job somebody else has locked. Of those nothing is written.
        """
        with self.work():
            return self.write_notes(notes, waits)

    def write_notes(self, notes: Sequence[Note], waits: bool = True) -> list[bool | None]:
        """`note` inside a transaction."""
        if not notes:
            return []
        held = self._attempts("lock_held" if waits else "lock_free_held", notes)
        live = [note for note in notes if (note.job_id, note.attempt) in held]
        others = [note for note in notes if (note.job_id, note.attempt) not in held]
        busy = self._attempts("held_attempts", others) if others and not waits else set()
        now = self.now()
        self._write_rows([note for note in live if note.progress or note.checkpoint is not None], now)
        self._append_lines([note for note in live if note.lines], now)
        keys = [(note.job_id, note.attempt) for note in notes]
        return [None if key in busy else key in held for key in keys]

    def _attempts(self, name: str, notes: Sequence[Note]) -> set[tuple[int, int]]:
        """Which attempts hold the jobs that these notes are about."""
        ids = self.pack(sorted({note.job_id for note in notes}))
        return {(row["id"], row["attempt"]) for row in self.rows(name, {"ids": ids})}

    def _write_rows(self, notes: Sequence[Note], now: datetime) -> None:
        by_queue: dict[str, list[dict[str, Any]]] = {}
        for note in notes:
            fraction, text = (note.progress.fraction, note.progress.text) if note.progress else (None, None)
            params = {"id": note.job_id, "attempt": note.attempt, "checkpoint": note.checkpoint, "now": self.time(now)}
            by_queue.setdefault(note.queue, []).append({**params, "progress": fraction, "progress_text": text})
        for queue, rows in by_queue.items():
            self.run_many("note", rows, queue)

    def _append_lines(self, notes: Sequence[Note], now: datetime) -> None:
        if not notes:
            return
        ids = self.pack([note.job_id for note in notes])
        ends: dict[int, RowDict] = {row["job"]: row for row in self.rows("log_ends", {"ids": ids})}
        added: list[dict[str, Any]] = []
        floors: list[dict[str, int]] = []
        for note in notes:
            lines = self._lines_of(note, ends.get(note.job_id), now)
            ends[note.job_id] = lines[-1]
            floor = lines[-1]["total"] - note.log_limit
            added += [line for line in lines if line["total"] > floor]
            if floor > 0:
                floors.append({"job": note.job_id, "floor": floor})
        self.run_many("add_line", added)
        for params in floors:
            self.run("drop_lines", params)

    def _lines_of(self, note: Note, end: RowDict | None, now: datetime) -> list[dict[str, Any]]:
        """The rows to add, in the order of saying, which their times never contradict."""
        last, total = (end["id"], end["total"]) if end else (0, 0)
        time = self._known(end["time"]) if end else None
        clock, found = self.clock.monotonic(), []
        for line in note.lines:
            last += 1 + line.skipped
            total += len(line.text.encode()) + LINE_COSTS
            said = now - timedelta(seconds=max(0.0, clock - line.said))
            time = said if time is None else max(said, time)
            found.append(
                {
                    "job": note.job_id,
                    "id": last,
                    "time": self.time(time),
                    "attempt": note.attempt,
                    "level": line.level,
                    "text": line.text,
                    "total": total,
                }
            )
        return found

    def log(self, job_id: int, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """What a job's handler said, oldest first, from behind a line on; also of an archived job."""
        with self.work(write=False):
            rows = self.rows("log", {"job": job_id, "after": after, "limit": limit}) if job_id < 2**63 else []
            if not rows:
                self._get(job_id)
        names = ("attempt", "level", "text")
        return [LogLine(row["id"], self._known(row["time"]), *(row[name] for name in names)) for row in rows]
