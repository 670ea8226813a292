"""What handlers say about their jobs, in every way a handler is called: progress, log and checkpoint."""

import asyncio
import contextlib
import contextvars
import io
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Invalid, NoDelay, Progress, Unavailable, current_job
from holdfast.clock import Clock
from holdfast.stores.contract import Claimed, Done, Note, Store
from holdfast.worker import dispatch, scribe
from holdfast.worker.capture import Capture
from holdfast.worker.handler import CALL
from holdfast.worker.scribe import Scribe
from tests.faults.fleet import until

WAYS = {"loop": {}, "thread": {}, "process": {"isolation": "process"}}
logger = logging.getLogger("tests.notes")


@pytest.fixture
def app(url: str, instance: str) -> Iterator[App]:
    with App(url, name=instance, heartbeat=0.5, lost_after=5) as app:
        app.queue("work")
        yield app


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    logger.setLevel(logging.DEBUG)
    yield
    logger.setLevel(logging.NOTSET)


def job_type(app: App, way: str, function: Callable[[str], Any], **options: Any) -> Any:
    """The same function as a coroutine where it is to run on the loop."""

    async def coroutine(path: str = "") -> Any:
        return function(path)

    def plain(path: str = "") -> Any:
        return function(path)

    chosen = coroutine if way == "loop" else plain
    return app.queue("work").job(name="speaks", **{**WAYS[way], "retries": 0, **options})(chosen)


def wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


def texts(job: Any) -> list[str]:
    return [line.text for line in job.log()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("R7")
def test_progress_and_log_are_seen_while_the_handler_runs(app: App, way: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def speaks(path: str) -> None:
        job = current_job()
        job.progress(0.1)
        job.progress(0.4, "two of five")
        job.log("copied %s of %s", 2, 5)
        wait_for(path)

    job = job_type(app, way, speaks, timeout=60).enqueue(path=str(gate))
    with app.worker(concurrency=4):
        until(lambda: job.refresh().progress == Progress(0.4, "two of five"), what="progress is seen")
        until(lambda: texts(job) == ["copied 2 of 5"], what="the line is seen")
        assert job.refresh().state == "running"
        gate.touch()
        assert job.wait(30).progress == Progress(0.4, "two of five")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("R7")
def test_a_final_job_has_everything_its_handler_said_in_order(app: App, way: str) -> None:
    def speaks(path: str) -> None:
        job = current_job()
        for number in range(50):
            job.log(number)
            job.progress(number / 49)

    declared = job_type(app, way, speaks)
    with app.worker(concurrency=4):
        for _ in range(5):
            job = declared.enqueue().wait(30)
            assert (texts(job), job.progress) == ([str(number) for number in range(50)], Progress(1.0))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("R7")
def test_an_attempt_that_fails_leaves_what_it_said(app: App, way: str) -> None:
    def speaks(path: str) -> None:
        current_job().log("before it broke", level="warning")
        current_job().progress(0.9, "nearly")
        raise ValueError("broken")

    declared = job_type(app, way, speaks)
    with app.worker(concurrency=4):
        job = declared.enqueue().wait(30)
    assert (job.outcome, job.progress) == ("error", Progress(0.9, "nearly"))
    assert [(line.level, line.text, line.attempt) for line in job.log()] == [("WARNING", "before it broke", 1)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("R8")
def test_a_checkpoint_is_stored_when_the_assignment_returns_and_found_by_the_next_attempt(
    app: App, way: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"

    def speaks(path: str) -> Any:
        job = current_job()
        if job.attempt == 1:
            assert job.checkpoint is None
            job.checkpoint = {"page": 1}
            job.checkpoint = {"page": 7, "seen": [1, 2]}
            assert job.checkpoint == {"page": 7, "seen": [1, 2]}
            wait_for(path)
            raise ValueError("broken")
        return job.checkpoint

    job = job_type(app, way, speaks, retries=1, retry=NoDelay(), timeout=60).enqueue(path=str(gate))
    with app.worker(concurrency=4):
        until(lambda: stored_checkpoint(app, job.id) == '{"page":7,"seen":[1,2]}', what="it is stored")
        gate.touch()
        assert job.wait(30).result == {"page": 7, "seen": [1, 2]}


def stored_checkpoint(app: App, job_id: int) -> Any:
    (row,) = app.store.rows("job", {"id": job_id})  # type: ignore[attr-defined]
    return row["checkpoint"]


@pytest.mark.claim("R8")
def test_checkpoints_that_come_together_share_a_commit(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    store_type = type(app.store)
    real = store_type.note

    def counted(self: Store, notes: Any, waits: bool) -> Any:
        batches.append(len(notes))
        time.sleep(0.05)
        return real(self, notes, waits)  # type: ignore[arg-type]

    monkeypatch.setattr(store_type, "note", counted)

    @app.queue("work").job
    def saves(number: int) -> None:
        current_job().checkpoint = number

    jobs = saves.enqueue_many([{"number": number} for number in range(20)])
    with app.worker(concurrency=20):
        for job in jobs:
            assert job.wait(30).outcome == "success"
    assert sum(batches) == 20
    assert len(batches) < 20


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("R8")
def test_what_json_cannot_hold_is_refused_as_a_checkpoint(app: App, way: str) -> None:
    def speaks(path: str) -> str:
        try:
            current_job().checkpoint = {"x": object()}
        except Invalid as error:
            return str(error)
        return ""

    declared = job_type(app, way, speaks)
    with app.worker(concurrency=4):
        job = declared.enqueue().wait(30)
    assert "checkpoint" in job.result


@pytest.mark.claim("R7")
@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), "0.5", True, None])
def test_progress_is_a_fraction(app: App, fraction: Any) -> None:
    @app.queue("work").job(retries=0)
    def speaks() -> None:
        current_job().progress(fraction)

    job = speaks.enqueue()
    app.run_until_idle()
    assert (job.refresh().error.type, job.refresh().progress) == ("Invalid", None)


@pytest.mark.claim("R7")
def test_whatever_is_logged_can_be_stored(app: App) -> None:
    @app.queue("work").job(retries=0)
    def speaks() -> None:
        job = current_job()
        job.log("nul \0 and half a pair \ud800")
        job.log("x" * 1_000_000)
        job.log("%d", "no number")
        job.progress(0.5, "\0" + "y" * 10_000)
        with contextlib.suppress(Invalid):
            job.log("?", level="LOUD")

    job = speaks.enqueue()
    app.run_until_idle()
    nul, long, unfilled = texts(job.refresh())
    assert nul == "nul \\0 and half a pair \\ud800"
    assert (len(long), long[-1]) == (10_000, "…")
    assert unfilled == "%d no number"
    assert len(job.refresh().progress.text) <= 1001


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("R7")
def test_logging_is_captured(app: App, way: str) -> None:
    def speaks(path: str) -> None:
        logger.debug("too quiet")
        logger.info("an %s", "info")
        logging.getLogger("holdfast.worker").error("not the user's")
        try:
            raise ValueError("inside")
        except ValueError:
            logger.exception("it broke")

    declared = job_type(app, way, speaks)
    with app.worker(concurrency=4):
        job = declared.enqueue().wait(30)
    lines = job.log()
    assert [(line.level, line.text.splitlines()[0]) for line in lines] == [("INFO", "an info"), ("ERROR", "it broke")]
    assert "ValueError: inside" in lines[1].text


@pytest.mark.claim("R7")
def test_logging_of_tasks_and_of_threads_that_a_coroutine_waits_for_is_captured(app: App) -> None:
    @app.queue("work").job
    async def speaks(name: str) -> None:
        async def task() -> None:
            await asyncio.sleep(0)
            logger.info("task of %s", name)

        await asyncio.gather(task(), asyncio.to_thread(logger.info, "thread of %s", name))
        await asyncio.sleep(0.01)
        logger.info("%s", name)

    jobs = speaks.enqueue_many([{"name": str(number)} for number in range(20)])
    with app.worker(concurrency=20):
        for number, job in enumerate(jobs):
            assert sorted(texts(job.wait(30))) == [str(number), f"task of {number}", f"thread of {number}"]


@pytest.mark.claim("R7")
def test_the_level_of_what_is_captured_can_be_set(app: App) -> None:
    @app.queue("work").job
    def speaks() -> None:
        logger.debug("debug")
        logger.warning("warning")
        current_job().log("said", level="DEBUG")

    for wanted, expected in (("DEBUG", ["debug", "warning", "said"]), ("ERROR", ["said"])):
        with app.worker(log_level=wanted):
            assert texts(speaks.enqueue().wait(30)) == expected
    with pytest.raises(Invalid, match="log_level='LOUD'"):
        app.worker(log_level="LOUD")
    with pytest.raises(Invalid, match="log_limit=0"):
        app.worker(log_limit=0)


@pytest.mark.claim("R7")
def test_of_two_workers_in_a_process_only_that_of_the_job_captures_its_records(app: App, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    @app.queue("work").job(timeout=60)
    def speaks(path: str) -> None:
        logger.info("once")
        wait_for(path)

    with app.worker() as first, app.worker() as second:
        jobs = [speaks.enqueue(path=str(gate)) for _ in range(4)]
        until(lambda: all(map(texts, jobs)), what="all have spoken")
        until(lambda: not first.scribe.busy and not second.scribe.busy, what="all is written")  # type: ignore
        assert [texts(job) for job in jobs] == [["once"]] * 4
        gate.touch()


def test_capturing_leaves_no_trace_in_the_users_logging(app: App) -> None:
    @app.queue("work").job
    def speaks() -> None:
        logger.info("here")

    before = list(logging.root.handlers), logging.root.level
    with app.worker():
        speaks.enqueue().wait(30)
    speaks.enqueue()
    app.run_until_idle()
    assert (list(logging.root.handlers), logging.root.level) == before


def test_a_program_that_has_not_set_up_logging_still_gets_its_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(told))
    logging.lastResort.setLevel(logging.WARNING)  # type: ignore[union-attr]
    captures = [Capture(Heard(), "ERROR"), Capture(Heard(), "INFO")]
    for capture in captures:
        capture.install()
        capture.install()
    logger.info("quiet")
    logger.warning("loud")
    own = logging.StreamHandler(io.StringIO())
    logger.addHandler(own)
    logger.warning("taken care of")
    logger.removeHandler(own)
    assert told.getvalue() == "loud\n"
    assert logging.root.handlers == captures


def test_a_record_that_cannot_be_filled_in_is_kept_as_it_is() -> None:
    heard = Heard()
    call = call_of(1)
    call.notes = heard
    record = logging.LogRecord("tests.notes", logging.INFO, "", 0, "%d", ("no number",), None)
    context = contextvars.copy_context()
    context.run(CALL.set, call)
    context.run(Capture(heard, "INFO").handle, record)
    assert heard.lines == ["%d ('no number',)"]


class Heard:
    """Notes that nobody writes down."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def progress(self, call: Claimed, progress: Progress) -> None: ...

    def line(self, call: Claimed, level: str, text: str) -> None:
        self.lines.append(text)

    def checkpoint(self, call: Claimed, text: str) -> None: ...

    def cancelled(self) -> bool:
        return False


@pytest.mark.fault(7, "a flood of log lines")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("R7")
def test_a_flood_leaves_its_end_and_the_gap_is_counted(app: App, way: str) -> None:
    said = 20_000

    def speaks(path: str) -> None:
        for number in range(said):
            current_job().log(f"{number:05} {'x' * 94}")

    declared = job_type(app, way, speaks, timeout=60)
    with app.worker(concurrency=4, log_limit=100 * 200):
        job = declared.enqueue().wait(60)
    lines = job.log(limit=said)
    assert job.outcome == "success"
    assert 0 < len(lines) <= 100
    assert (lines[-1].id, lines[-1].text[:5]) == (said, f"{said - 1:05}")
    assert all(int(line.text[:5]) == line.id - 1 for line in lines)


def call_of(number: int) -> Claimed:
    return Claimed("work", 1, number, 1, "speaks", None, "{}", None, 0)


class Away:
    """A store that cannot be reached until it is let, and jobs of which somebody keeps locked."""

    def __init__(self) -> None:
        self.back = threading.Event()
        self.kept: set[int] = set()
        self.tried = 0
        self.notes: list[Note] = []
        self.patience: float | None = None

    def note(self, notes: Any, waits: bool) -> list[bool | None]:
        if not self.back.is_set():
            raise Unavailable("away")
        self.tried += 1
        self.notes += [note for note in notes if note.job_id not in self.kept]
        return [None if note.job_id in self.kept else True for note in notes]

    def close(self) -> None: ...


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    monkeypatch.setattr(scribe, "EVERY", 0.01)
    return Away()


@pytest.mark.claim("R7", "C7")
def test_while_the_database_is_away_memory_is_bounded_and_afterwards_it_goes_on(
    away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scribe, "MOST_IN_ALL", 100_000)
    writer = Scribe(lambda: away, 1 << 20, Clock())  # type: ignore[arg-type,return-value]
    for number in range(50_000):
        writer.line(call_of(number % 10), "INFO", f"{number}" + "x" * 100)
    writer.progress(call_of(1), Progress(0.5))
    kept = sum(entry.size for entry in [*writer._unwritten.values(), *writer._writing.values()])
    assert kept <= 3 * 100_000
    away.back.set()
    until(lambda: not writer.busy, what="it is written")
    writer.close()
    last = [note.lines[-1] for note in away.notes if note.lines]
    counted = sum(1 + line.skipped for note in away.notes for line in note.lines)
    assert counted == 50_000
    assert {line.text.partition("x")[0] for line in last} >= {str(number) for number in range(49_990, 50_000)}
    assert [note.progress for note in away.notes if note.progress] == [Progress(0.5)]


@pytest.mark.claim("R8", "C7")
def test_a_checkpoint_waits_for_a_database_that_is_away(away: Away) -> None:
    writer = Scribe(lambda: away, 1 << 20, Clock())  # type: ignore[arg-type,return-value]
    saving = threading.Thread(target=writer.checkpoint, args=(call_of(1), "7"))
    saving.start()
    saving.join(0.1)
    assert saving.is_alive()
    away.back.set()
    saving.join(30)
    assert [note.checkpoint for note in away.notes] == ["7"]
    writer.close()


@pytest.mark.claim("R8")
def test_a_checkpoint_that_cannot_be_saved_any_more_is_an_error(away: Away) -> None:
    writer = Scribe(lambda: away, 1 << 20, Clock())  # type: ignore[arg-type,return-value]
    raised: list[Exception] = []

    def save() -> None:
        try:
            writer.checkpoint(call_of(1), "7")
        except Unavailable as error:
            raised.append(error)

    saving = threading.Thread(target=save)
    saving.start()
    until(lambda: writer.busy, what="it waits")
    writer.close()
    saving.join(30)
    save()
    assert len(raised) == 2


@pytest.mark.claim("R8", "C7")
def test_an_end_does_not_wait_for_a_checkpoint_of_a_job_that_somebody_keeps(away: Away) -> None:
    away.back.set()
    away.kept = {1}
    writer = Scribe(lambda: away, 1 << 20, Clock())  # type: ignore[arg-type,return-value]
    told: list[Exception | None] = []
    writer.save(call_of(1), "7", told.append)
    writer.save(call_of(2), "8", told.append)
    until(lambda: told == [None] and not writer._writing, what="the other is saved")
    (last,) = writer.take([Done(call_of(1), 1.0, None)], [])
    assert (last.checkpoint, [note.job_id for note in away.notes]) == ("7", [2])
    assert "before this checkpoint could be saved" in str(told[1])
    writer.close()


def test_a_worker_that_stops_does_not_wait_for_notes_of_a_job_that_somebody_keeps(away: Away) -> None:
    away.back.set()
    away.kept = {1}
    writer = Scribe(lambda: away, 1 << 20, Clock())  # type: ignore[arg-type,return-value]
    writer.progress(call_of(1), Progress(0.5))
    until(lambda: away.tried > 2, what="it is tried again")
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < 4
    assert not away.notes


def test_jobs_that_say_nothing_need_no_scribe(app: App) -> None:
    @app.queue("work").job
    def silent() -> None: ...

    with app.worker() as worker:
        silent.enqueue().wait(30)
        assert worker.scribe._thread is None  # type: ignore[attr-defined]
        assert "holdfast-scribe" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.claim("R7")
def test_what_jobs_say_is_kept_by_run_until_idle(app: App) -> None:
    @app.queue("work").job
    def speaks() -> None:
        current_job().log("said")
        current_job().progress(1, "done")
        current_job().checkpoint = [1]

    job = speaks.enqueue()
    app.run_until_idle()
    assert (texts(job), job.refresh().progress, job.refresh().outcome) == (["said"], Progress(1.0, "done"), "success")


@pytest.mark.claim("C1", "J5")
def test_a_thread_that_was_given_up_has_no_say_any_more(app: App, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    told = threading.Event()

    @app.queue("work").job(timeout=0.2, retries=0)
    def late(path: str) -> None:
        job = current_job()
        job.progress(0.5, "in time")
        wait_for(path)
        assert job.cancelled
        job.progress(1.0, "late")
        job.log("late")
        job.checkpoint = "late"
        told.set()

    with app.worker(concurrency=4):
        job = late.enqueue(path=str(gate)).wait(30)
        gate.touch()
        assert told.wait(30)
    found = app.get(job.id)
    assert (found.error.kind, found.progress, texts(found)) == ("timeout", Progress(0.5, "in time"), [])
    assert stored_checkpoint(app, job.id) is None


@pytest.mark.claim("R7", "R8")
def test_a_handler_that_is_cancelled_can_save_where_it_was(app: App) -> None:
    @app.queue("work").job(timeout=0.2, retries=1)
    async def speaks() -> Any:
        job = current_job()
        if job.checkpoint is not None:
            return job.checkpoint
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            job.checkpoint = "half"
            raise

    with app.worker():
        assert speaks.enqueue().wait(30).result == "half"


@pytest.mark.claim("C1")
def test_a_process_that_is_to_end_can_know_it(app: App, tmp_path: Path) -> None:
    @app.queue("work").job(isolation="process", timeout=0.5, retries=0)
    def stubborn(path: str) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        job = current_job()
        Path(path, "began").write_text(str(job.cancelled))
        while not job.cancelled:
            time.sleep(0.01)
        Path(path, "heard").touch()

    with app.worker(concurrency=4):
        assert stubborn.enqueue(path=str(tmp_path)).wait(30).error.kind == "timeout"
    assert (tmp_path / "began").read_text() == "False"
    assert (tmp_path / "heard").exists()


@pytest.mark.claim("R7")
def test_a_copy_that_a_handler_forks_has_no_say(app: App) -> None:
    @app.queue("work").job(isolation="process")
    def forks() -> int:
        job = current_job()
        job.log("before")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                job.log("a copy")
                job.progress(1.0)
                try:
                    job.checkpoint = "a copy"
                except Unavailable:
                    code = 7
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        job.log("after")
        return code

    with app.worker():
        job = forks.enqueue().wait(30)
    assert (job.outcome, job.result, texts(job), job.progress) == ("success", 7, ["before", "after"], None)


@pytest.mark.claim("R7")
def test_a_process_that_dies_leaves_what_it_said(app: App) -> None:
    @app.queue("work").job(isolation="process", max_crashes=1)
    def dies() -> None:
        current_job().log("last words")
        current_job().checkpoint = "here"
        os.kill(os.getpid(), signal.SIGKILL)

    with app.worker():
        job = dies.enqueue().wait(60)
    assert job.outcome == "error"
    assert set(texts(job)) == {"last words"}
    assert stored_checkpoint(app, job.id) == '"here"'


@pytest.mark.fault(7, "a handler closes stdout and every other descriptor")
@pytest.mark.claim("R7")
def test_a_process_that_has_closed_everything_still_ends(app: App) -> None:
    @app.queue("work").job(isolation="process", retries=0, max_crashes=1)
    def closes() -> None:
        os.close(1)
        logger.warning("without standard output")

    with app.worker():
        job = closes.enqueue().wait(60)
    assert (job.outcome, texts(job)) == ("success", ["without standard output"])


def test_a_flood_from_a_child_is_held_back_at_its_source() -> None:
    sent: list[bytes] = []

    class Counted:
        def send(self, body: bytes, kind: bytes = b"") -> None:
            sent.append(body)

    speaking = dispatch.Dispatch(Counted())  # type: ignore[arg-type]
    for number in range(5000):
        speaking.line(call_of(1), "INFO", str(number))
    speaking.close()
    speaking.line(call_of(1), "INFO", "too late")
    assert len(sent) < 1000
    last = dispatch.msgspec.json.decode(sent[-1], type=dispatch.Message)
    assert last.lines[-1][1] == "4999"


@pytest.mark.claim("R7")
def test_a_signal_handler_may_log_while_its_process_does(app: App) -> None:
    @app.queue("work").job(isolation="process", timeout=60)
    def interrupted() -> int:
        heard: list[int] = []

        def log(*_: Any) -> None:
            heard.append(1)
            logger.info("interrupted")
            signal.setitimer(signal.ITIMER_REAL, 0.0005)  # not before: on a slow machine it would do nothing else

        signal.signal(signal.SIGALRM, log)
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        while len(heard) < 200:
            logger.info("going on")
            current_job().checkpoint = len(heard)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return len(heard)

    with app.worker(log_limit=1 << 24):
        job = interrupted.enqueue().wait(60)
    assert job.outcome == "success"
    assert sum(text == "interrupted" for text in (line.text for line in job.log(limit=100_000))) > 0


@pytest.mark.claim("R7")
def test_an_end_waits_for_what_is_just_being_written_about_the_job(away: Away) -> None:
    """Else the end would be stored first, and what was said before it would be stale."""
    began, go_on = threading.Event(), threading.Event()

    def slowly(notes: Any, waits: bool) -> list[bool | None]:
        began.set()
        go_on.wait(30)
        return [True for _ in notes]

    away.note = slowly  # type: ignore[method-assign]
    writer = Scribe(lambda: away, 1 << 20, Clock())  # type: ignore[arg-type,return-value]
    writer.line(call_of(1), "INFO", "being written")
    assert began.wait(30)
    writer.line(call_of(1), "INFO", "said since")
    taken: list[list[Note]] = []
    ending = threading.Thread(target=lambda: taken.append(writer.take([Done(call_of(1), 0.0, None)], [])))
    ending.start()
    assert writer.take([Done(call_of(2), 0.0, None)], []) == []  # others do not wait
    ending.join(0.1)
    assert taken == []
    go_on.set()
    ending.join(30)
    assert [line.text for (note,) in taken for line in note.lines] == ["said since"]
    writer.close()
