"""A tour of Holdfast on SQLite, told in a quarter of a minute: `make tour`.

- Every line with a time is a move that the database recorded; the tour only reads them and prints them.
- The same file is the program of the two worker processes of the last chapter, one of which is killed.
"""

import argparse
import asyncio
import logging
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from holdfast import App, Failed, Fixed, Job, JobFailed, Move, current_job

PATIENCE = 60.0  # seconds for any one thing to happen, on a machine that has other things to do
PACE = 0.7  # seconds to read a chapter's head, where somebody reads
COLOURS = {
    "initial": "cyan",
    "running": "yellow",
    "error": "red",
    "success": "green",
    "failed": "red",
    "aborted": "magenta",
}

YOURS = """\
from holdfast import App

app = App("sqlite:///mine.db")
work = app.queue("work")

@work.job
def double(n: int) -> int:
    return 2 * n

with app.worker():
    print(double.enqueue(n=21).unwrap(timeout=10))"""


def make_app(folder: Path) -> App:
    """The same app in the tour and in its worker processes."""
    app = App(f"sqlite:///{folder}/tour.db", name="tour")
    photos, films = app.queue("photos"), app.queue("films")

    @photos.job
    def resize(photo: str) -> str:
        """A plain function runs in a thread."""
        time.sleep(0.3)
        return f"{photo} resized in a thread"

    @photos.job
    async def fetch(page: int) -> str:
        """A coroutine runs on the worker's event loop."""
        await asyncio.sleep(0.3)
        return f"page {page} fetched on the event loop"

    @photos.job(isolation="process")
    def convert(photo: str) -> str:
        """This one runs in a child process, which can be killed without harm to the others."""
        return f"{photo} converted in process {os.getpid()}"

    @photos.job(retries=3, retry=Fixed(0.7))
    def upload(photo: str) -> str:
        """The server is busy twice."""
        if current_job().attempt <= 2:
            raise ConnectionError("the server is busy")
        return f"{photo} uploaded"

    @photos.job
    def pay(amount: int) -> None:
        """An expected failure: nothing to retry."""
        raise Failed("the card has expired")

    @photos.job
    async def publish(album: str) -> str:
        return f"{album} published"

    @photos.job(timeout=600)
    async def endless() -> None:
        await asyncio.sleep(600)

    @films.job(timeout=60)
    def render(film: str, frames: int) -> str:
        """Slow enough to be interrupted."""
        for frame in range(1, frames + 1):
            print(f"attempt {current_job().attempt}: frame {frame} of {frames}", flush=True)
            time.sleep(0.4)
        return f"{film} rendered in process {os.getpid()}"

    return app


def main() -> int:
    parser = argparse.ArgumentParser(description="A tour of Holdfast on SQLite.")
    parser.add_argument("--folder", type=Path, help="where to put the database; a new temporary folder if not given")
    parser.add_argument("--worker", metavar="NAME", help="be a worker of the tour in --folder instead")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="holdfast-tour-"))).resolve()
    if options.worker:
        make_app(folder).run_worker(queues=["films"], concurrency=1, name=options.worker)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 120
    try:
        with make_app(folder) as app:
            Tour(app, folder, console).run()
    except KeyboardInterrupt:
        return 130
    return 0


class Tour:
    """Chapters in the order they are told."""

    def __init__(self, app: App, folder: Path, console: Console) -> None:
        self.app = app
        self.folder = folder
        self.console = console
        self.types = app.job_types
        self.began = time.monotonic()
        self.start = app.clock.now()
        self.jobs: list[int] = []
        self.told: dict[int, int] = {}  # job → how many of its moves were printed
        self.names: dict[str, str] = {}  # worker → its name
        self.heard: queue.SimpleQueue[str] = queue.SimpleQueue()  # what other threads and processes say
        self.said = ""  # all of it that was printed
        self.number = 0

    def run(self) -> None:
        self.say("[bold]Holdfast[/]: durable jobs for Python, here in one SQLite file.")
        self.say(f"The file is [bold]{self.folder}/tour.db[/]. Every timed line below is a move recorded in it.")
        with self.log_heard(), self.app.worker(queues=["photos"], concurrency=4, name="the tour's own worker"):
            self.three_kinds()
            self.retries()
            self.expected_failure()
            self.one_key()
            self.a_time()
            self.an_abort()
        self.a_crash()
        self.look_back()
        self.what_next()

    # The chapters

    def three_kinds(self) -> None:
        self.chapter("Jobs run", "A thread, an event loop or a child process: the handler's definition says which.")
        jobs = [
            self.enqueue("resize", photo="cat.jpg"),
            self.enqueue("fetch", page=7),
            self.enqueue("convert", photo="dog.jpg"),
        ]
        self.follow(jobs)

    def retries(self) -> None:
        self.chapter("An exception is retried", "@photos.job(retries=3, retry=Fixed(0.7)): the server is busy twice.")
        (job,) = self.follow([self.enqueue("upload", photo="cat.jpg")])
        self.say(f"{job.attempt} attempts, {job.failures} failures, and the error of each is kept with its traceback.")

    def expected_failure(self) -> None:
        self.chapter("An expected failure is final", 'raise Failed("…") says that trying again would not help.')
        job = self.enqueue("pay", amount=12)
        self.follow([job])
        try:
            job.unwrap()
        except JobFailed as error:
            self.say(f"job.unwrap() raises [red]JobFailed[/]: {escape(str(error))}")

    def one_key(self) -> None:
        self.chapter("One living job per key", "Enqueued twice with job_key='summer'. The database lets one in.")
        first = self.enqueue("publish", {"job_key": "summer", "delay": 1}, album="summer")
        self.tell_moves(first)
        second = self.types["publish"].using(job_key="summer").enqueue(album="summer")
        self.say(f"The second call got job {second.id} too: duplicate={second.duplicate}.")
        self.follow([first])

    def a_time(self) -> None:
        self.chapter("A job for later", "using(delay=2): not before its scheduled_run_time.")
        (job,) = self.follow([self.enqueue("publish", {"delay": 2}, album="autumn")])
        assert job.start_time is not None
        late = (job.start_time - job.scheduled_run_time).total_seconds()
        self.say(f"It was wanted 2 s after it was enqueued and started {late * 1000:.0f} ms after that.")

    def an_abort(self) -> None:
        self.chapter("A job is aborted", "It would run for ten minutes. app.abort(job.id) cancels it where it runs.")
        job = self.enqueue("endless")
        self.follow([job], until=lambda job: job.state == "running")
        self.app.abort(job.id, actor="the tour")
        self.follow([job])

    def a_crash(self) -> None:
        self.chapter("A worker is killed", "Two worker processes. The one that has the job gets kill -9.")
        with self.worker_process("ada") as ada, self.worker_process("ben") as ben:
            self.wait_for("two worker processes", lambda: len(self.meet_workers()) == 2)
            self.say(f"ada is process {ada.pid}, ben is process {ben.pid}.")
            job = self.enqueue("render", film="tide", frames=6)
            (running,) = self.follow([job], until=lambda job: job.state == "running")
            victim = {"ada": ada, "ben": ben}[self.names[f"worker {running.worker}"]]
            self.wait_for("the second frame", lambda: "frame 2" in self.said)
            self.say(f"[bold red]kill -9 {victim.pid}[/], in the middle of the job.")
            victim.kill()
            (done,) = self.follow([job])
        self.say(f"Attempt {done.attempt}, failures {done.failures}. A crash is not a failure, and the job is done.")

    def look_back(self) -> None:
        self.chapter(
            "What happened", "One row a job; [bold]attempts[/] counts executions, [bold]failures[/] only errors."
        )
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("job", "type", "attempts", "failures", "outcome", "result or error"):
            table.add_column(name, no_wrap=True)
        for job in map(self.app.get, self.jobs):
            outcome = f"[{COLOURS[job.outcome or job.state]}]{job.outcome}[/]"
            told = escape(str(job.error or job.result))
            table.add_row(str(job.id), job.job_type, str(job.attempt), str(job.failures), outcome, told)
        self.console.print(Padding.indent(table, 3))
        self.say(f"{len(self.jobs)} jobs accepted, {len(self.jobs)} ended, none lost. {self.seconds():.0f} s.")

    def what_next(self) -> None:
        installed = Path(sys.executable).with_name("holdfast")
        command = os.path.relpath(installed) if installed.exists() else "python -m holdfast"
        self.chapter("What to type next", "The same jobs on the command line:")
        lines = [f"export HOLDFAST_URL=sqlite:///{self.folder}/tour.db"]
        lines += [f"{command} {rest}" for rest in ("jobs list", f"jobs show {self.jobs[-1]}", "queues list")]
        self.block("\n".join(lines))
        self.say("Ten lines of your own:")
        self.block(YOURS)
        self.say("And then: docs/tutorial.md")

    # Doing

    def enqueue(self, job_type: str, options: dict[str, object] | None = None, **payload: object) -> Job:
        job: Job = self.types[job_type].using(**(options or {})).enqueue(**payload)
        self.jobs.append(job.id)
        return job

    def follow(self, jobs: list[Job], until: Callable[[Job], bool] = lambda job: job.final) -> list[Job]:
        """Print the moves of these jobs as they are recorded, until each is where it is wanted."""
        seen: list[Job] = []

        def there() -> bool:
            seen[:] = [job.refresh() for job in jobs]
            for job in seen:
                self.tell_moves(job)
            return all(job.final or until(job) for job in seen)

        self.wait_for(" and ".join(f"job {job.id}" for job in jobs), there)
        return seen

    def wait_for(self, what: str, happened: Callable[[], bool]) -> None:
        """Print what is heard meanwhile."""
        ends = time.monotonic() + PATIENCE
        with self.console.status(f"[dim]waiting for {what}[/]") if self.console.is_terminal else nullcontext():
            while not happened():
                self.hear()
                if time.monotonic() > ends:
                    raise TimeoutError(f"{what}: still waited for after {PATIENCE:g} s")
                time.sleep(0.05)
        self.hear()

    def meet_workers(self) -> dict[str, str]:
        """The worker processes that have joined, by the identity that the database knows them by."""
        workers = [row for row in self.app.store.workers() if row.pid != os.getpid()]
        self.names = {f"worker {row.id}": row.name for row in workers}
        return self.names

    @contextmanager
    def worker_process(self, name: str) -> "Iterator[subprocess.Popen[str]]":
        """This file as a worker in a process of its own; what it prints is heard here."""
        command = [sys.executable, "-u", __file__, "--folder", str(self.folder), "--worker", name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.listen, args=(name, process), daemon=True).start()
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE)

    def listen(self, name: str, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.heard.put(f"{name}: {line.rstrip()}")

    @contextmanager
    def log_heard(self) -> Iterator[None]:
        """What Holdfast logs in this process is printed with the rest."""
        handler, logger = Heard(self.heard), logging.getLogger("holdfast")
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)

    # Telling

    def chapter(self, title: str, text: str) -> None:
        self.number += 1
        self.console.print(f"\n[bold]{self.number}. {title}[/]")
        self.say(f"[dim]{text}[/]")
        if self.console.is_terminal:
            time.sleep(PACE)

    def say(self, text: str) -> None:
        self.console.print(f"   {text}")

    def block(self, text: str) -> None:
        """At the edge, so that it can be copied."""
        self.console.print(f"\n[cyan]{escape(text)}[/]\n")

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def hear(self) -> None:
        """Print what was heard since the last time."""
        while not self.heard.empty():
            line = self.heard.get()
            self.said += line + "\n"
            self.say(f"[dim]          {escape(line)}[/]")

    def tell_moves(self, job: Job) -> None:
        moves = job.history()
        for move in moves[self.told.get(job.id, 0) :]:
            at = (move.time - self.start).total_seconds()
            name = f"job {job.id} {job.job_type}"
            self.say(f"[dim]{at:6.2f} s[/]  {name:<15} {self.told_by(job, move)}")
        self.told[job.id] = len(moves)

    def told_by(self, job: Job, move: Move) -> str:
        attempt = f"attempt {move.attempt}"
        match move.from_state, move.to_state:
            case None, _:
                wait = (job.scheduled_run_time - job.create_time).total_seconds()
                return f"[cyan]initial[/]  enqueued{f', wanted in {wait:g} s' if job.attempt == 0 and wait > 0 else ''}"
            case "running", "running" if move.cause != "claimed":
                return f"[red]running[/]  {attempt} is {move.cause} with its worker; the job may start again"
            case _, "running":
                name = f", {self.names[move.actor]}" if move.actor in self.names else ""
                return f"[yellow]running[/]  {attempt} begun by {move.actor}{name}"
            case _, "error":
                return f"[red]error[/]    {attempt}: {escape(self.error_of(job, move.attempt))}"
            case _:
                colour = COLOURS.get(move.cause, "red")
                ended = job.refresh()  # it may have ended after `job` was read
                told = "" if ended.outcome != "success" else f": {escape(str(ended.result))}"
                return f"[{colour}]final[/]    {ended.outcome}{told}"

    def error_of(self, job: Job, number: int) -> str:
        return str(next(attempt.error for attempt in job.attempts() if attempt.attempt == number))


class Heard(logging.Handler):
    """Puts what is logged where the tour reads it."""

    def __init__(self, heard: "queue.SimpleQueue[str]") -> None:
        super().__init__()
        self.heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.put(f"log: {record.getMessage()}")


if __name__ == "__main__":
    sys.exit(main())
