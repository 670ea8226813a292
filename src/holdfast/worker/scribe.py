"""The scribe: writes down what running handlers say about their jobs.

- Progress and log lines are gathered and written a few times a second, by a thread and on a connection of their own,
  which are there from the first note on: jobs that say nothing cost nothing.
- What an attempt said last goes with the turn that settles it (`take`), so a job that is final has all of it.
- A checkpoint is stored before its assignment returns; those that come together share a commit.
- A job whose row somebody else has locked is left out and tried again: only what is said about it is late.
- Memory is bounded, also while the database is away: who says more than can be written loses the oldest lines that are
  not written yet, and their number is kept.
"""

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from holdfast.clock import Clock, monotonic
from holdfast.errors import Unavailable
from holdfast.jobs.job import Progress
from holdfast.stores.contract import Claimed, Done, Line, Note, Report, Store
from holdfast.worker.settings import FAREWELL

logger = logging.getLogger("holdfast.worker")
EVERY = 0.25  # seconds between two writes of progress and lines
MOST_LINES = 1000  # not yet written, of one attempt
MOST_BYTES = 256 * 1024
MOST_IN_ALL = 32 * 1024 * 1024  # of all attempts together
LINE_COSTS = 100  # bytes besides its text
LONGEST_PAUSE = 1.0
PATIENCE = 60.0  # seconds that a checkpoint waits for the database

Key = tuple[int, int]  # job and attempt
Saved = Callable[[Exception | None], None]


class Unwritten:
    """What one attempt said and nobody has written yet."""

    __slots__ = ("checkpoint", "lines", "locked_until", "progress", "queue", "savers", "size")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.progress: Progress | None = None
        self.checkpoint: str | None = None
        self.savers: list[Saved] = []  # who waits for the checkpoint
        self.locked_until = 0.0  # somebody else had locked the job, and until then it is not tried again
        self.lines: deque[Line] = deque()
        self.size = 0

    def add(self, line: Line) -> int:
        """Keep a line, at the cost of the oldest if there are too many; by how much it has grown."""
        before = self.size
        self.lines.append(line)
        self.size += _cost(line)
        while len(self.lines) > 1 and (len(self.lines) > MOST_LINES or self.size > MOST_BYTES):
            self.drop_oldest()
        return self.size - before

    def drop_oldest(self) -> None:
        oldest = self.lines.popleft()
        self.size -= _cost(oldest)
        head = self.lines[0]
        self.lines[0] = Line(head.said, head.level, head.text, head.skipped + oldest.skipped + 1)

    def absorb(self, newer: "Unwritten") -> None:
        """Take over what was said since this was taken away to be written, and was not."""
        self.progress = newer.progress or self.progress
        self.checkpoint = self.checkpoint if newer.checkpoint is None else newer.checkpoint
        self.savers += newer.savers
        for line in newer.lines:
            self.add(line)


def _cost(line: Line) -> int:
    return len(line.text) + LINE_COSTS


class Scribe:
    """One for each worker; what `current_job()` talks to, from any thread."""

    def __init__(self, open_store: Callable[[], Store], log_limit: int, clock: Clock) -> None:
        self.busy = False  # something was said that is not written yet
        self._open_store = open_store
        self._log_limit = log_limit
        self._clock = clock
        self._pid = os.getpid()
        self._changed = threading.Condition()  # re-entrant: a destructor may log while a line is being taken
        self._unwritten: dict[Key, Unwritten] = {}
        self._writing: dict[Key, Unwritten] = {}
        self._size = 0
        self._urgent = False  # somebody waits for a checkpoint
        self._closing = False
        self._store: Store | None = None
        self._thread: threading.Thread | None = None

    # What handlers say

    def progress(self, call: Claimed, progress: Progress) -> None:
        self.hear(call, progress)

    def line(self, call: Claimed, level: str, text: str) -> None:
        self.hear(call, None, ((level, text, 0),))

    def hear(self, call: Claimed, progress: Progress | None = None, lines: Iterable[tuple[str, str, int]] = ()) -> None:
        """Progress, and lines with their levels and how many were skipped before each."""
        if os.getpid() != self._pid:
            return  # a copy that a handler forked: nobody writes here
        with self._changed:
            entry = self._entry(call)
            if progress is not None:
                entry.progress = progress
            for level, text, skipped in lines:
                self._size += entry.add(Line(self._clock.monotonic(), level, text, skipped))
            while self._size > MOST_IN_ALL and len(entry.lines) > 1:
                before = entry.size
                entry.drop_oldest()
                self._size += entry.size - before

    def checkpoint(self, call: Claimed, text: str) -> None:
        """Returns when it is stored, or when it no longer matters because another attempt has the job."""
        if os.getpid() != self._pid:
            raise Unavailable(f"Job {call.id}: a process that its handler forked cannot save a checkpoint.")
        answer: list[Exception | None] = []
        told = threading.Event()

        def saved(error: Exception | None) -> None:
            answer.append(error)
            told.set()

        self.save(call, text, saved)
        if not told.wait(PATIENCE):
            raise Unavailable(
                f"Job {call.id}: its checkpoint could not be saved within {PATIENCE:g} s. If the handler has a transaction open "
                "on the same SQLite file, save the checkpoint before it or after it."
            )
        if answer[0] is not None:
            raise answer[0]

    def save(self, call: Claimed, text: str, saved: Saved) -> None:
        """Store a checkpoint now; `saved` is called from another thread, with None or with why it is not stored."""
        with self._changed:
            entry = None if self._closing else self._entry(call)
            if entry is not None and self._thread is not None:
                entry.checkpoint = text
                entry.savers.append(saved)
                self._urgent = True
                self._changed.notify_all()
                return
        saved(Unavailable(f"Job {call.id}: its worker is stopping, or has no thread left, and saves no checkpoint."))

    def cancelled(self) -> bool:
        return False  # the runners say so on the call

    def _entry(self, call: Claimed) -> Unwritten:
        key = call.id, call.attempt
        entry = self._unwritten.get(key)
        if entry is None:
            entry = self._unwritten[key] = Unwritten(call.queue)
            self.busy = True
            if self._thread is None and not self._closing:
                self._begin()
            if len(self._unwritten) == 1:
                self._changed.notify_all()
        return entry

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="holdfast-scribe", daemon=True)
        with contextlib.suppress(
            RuntimeError
        ):  # no thread to be had: the turn that settles a job still takes its notes
            thread.start()
            self._thread = thread

    # Writing it down

    def take(self, done: Sequence[Done], reports: Sequence[Report]) -> list[Note]:
        """What these attempts said last, to be written with their end. Waits for what is being written about them.

        Not for what could not be, because somebody else has locked the job: other ends would wait with it.
        """
        keys = [(item.call.id, item.call.attempt) for item in done]
        keys += [(report.job_id, report.attempt) for report in reports if report.attempt is not None]
        with self._changed:
            self._changed.wait_for(lambda: self._closing or not any(map(self._is_written_here, keys)))
            taken = {key: self._unwritten.pop(key) for key in keys if key in self._unwritten}
            self._account()
        for (job_id, _), entry in taken.items():
            for saved in entry.savers:
                saved(Unavailable(f"Job {job_id}: its attempt ended before this checkpoint could be saved."))
        return [self._note(key, entry) for key, entry in taken.items()]

    def _is_written_here(self, key: Key) -> bool:
        waiting = self._unwritten.get(key)
        return key in self._writing or (waiting is not None and bool(waiting.savers) and not waiting.locked_until)

    def _note(self, key: Key, entry: Unwritten) -> Note:
        return Note(*key, entry.queue, entry.progress, entry.checkpoint, tuple(entry.lines), self._log_limit)

    def _account(self) -> None:
        self._size = sum(entry.size for entry in self._unwritten.values())
        self.busy = bool(self._unwritten or self._writing)

    def _run(self) -> None:
        pause = 0.05
        while self._gather():
            try:
                locked = self._write(self._writing)
            except Unavailable as error:
                logger.warning("What jobs say waits for the database: %s", error)
                self._put_back(self._writing)
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, pause)
                    if self._closing:
                        return
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            except Exception:
                logger.exception("What jobs say could not be written together; it is tried one by one.")
                locked = self._write_one_by_one()
            pause = 0.05
            self._put_back(locked)
            if locked and self._closing:
                return

    def _gather(self) -> bool:
        """Wait until there is something to write, and a moment for more of it; False at the end."""
        with self._changed:
            while not self._writing:
                self._changed.wait_for(lambda: self._unwritten or self._closing)
                if not self._unwritten:
                    return False
                self._changed.wait_for(lambda: self._urgent or self._closing, EVERY)
                # Meanwhile a turn may have taken it all.
                now, self._urgent = monotonic(), False
                free = [key for key, entry in self._unwritten.items() if self._closing or entry.locked_until <= now]
                self._writing = {key: self._unwritten.pop(key) for key in free}
                self._account()
            return True

    def _write(self, entries: Mapping[Key, Unwritten]) -> dict[Key, Unwritten]:
        """Those that somebody else has locked are given back."""
        if self._store is None:
            self._store = self._open_store()
            if self._closing:
                self._store.patience = FAREWELL
        written = self._store.note([self._note(key, entry) for key, entry in entries.items()], waits=False)
        locked = {}
        for (key, entry), is_written in zip(entries.items(), written, strict=True):
            if is_written is None:
                entry.locked_until = monotonic() + EVERY
                locked[key] = entry
                continue
            for saved in entry.savers:
                saved(None)
            entry.savers = []
        return locked

    def _write_one_by_one(self) -> dict[Key, Unwritten]:
        """One of them cannot be stored: the others must not suffer."""
        locked: dict[Key, Unwritten] = {}
        for key, entry in self._writing.items():
            try:
                locked |= self._write({key: entry})
            except Exception as error:
                logger.exception("What job %s said in attempt %s could not be stored and is lost.", *key)
                for saved in entry.savers:
                    saved(error)
        return locked

    def _put_back(self, entries: Mapping[Key, Unwritten]) -> None:
        """The rest of what was being written is done."""
        with self._changed:
            for key, entry in entries.items():
                newer = self._unwritten.get(key)
                if newer is not None:
                    entry.absorb(newer)
                self._unwritten[key] = entry
            self._urgent = any(entry.savers and not entry.locked_until for entry in self._unwritten.values())
            self._writing = {}
            self._account()
            self._changed.notify_all()

    def close(self) -> None:
        """Write what is left, if the database is there, and let nobody wait any longer."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._store is not None:
            self._store.patience = FAREWELL
        if self._thread is not None:
            self._thread.join(5.0)
        with self._changed:
            left = [*self._unwritten.values(), *self._writing.values()]
        for entry in left:
            for saved in entry.savers:
                saved(Unavailable("The worker stopped before this checkpoint could be saved."))
        if self._store is not None:
            self._store.close()
