"""What `holdfast worker` does: one worker in this process, or several processes with a worker each.

A line on standard output tells of the start and of each end; the log goes to standard error.
"""

import logging
import os
import sys
from typing import Any, NoReturn

from holdfast.app import App
from holdfast.cli.command import Call
from holdfast.cli.output import say, say_json
from holdfast.cli.projects import app_for, settings_of
from holdfast.config import Settings
from holdfast.errors import Invalid
from holdfast.on_demand import Worker
from holdfast.projects import Projects
from holdfast.worker.capture import HidingFormatter
from holdfast.worker.processes import flush_streams
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.signals import run_until_signal
from holdfast.worker.supervisor import run_processes

logger = logging.getLogger("holdfast.worker")
FAILED = 1  # the exit code of a worker that cannot work any more
FORM = "%(asctime)s %(levelname)-7s %(message)s"


def work(call: Call, settings: Settings, target: str, name: str, verbose: bool) -> int:
    """Work until told to stop; the exit code."""
    app, projects = _app(call, settings, target)
    log_to_standard_error(verbose)
    wanted = _wanted(app, settings, target)
    processes = settings.worker_processes or 1
    _tell_start(call, app, wanted, processes)
    if processes == 1:
        return _serve(call, app, projects, wanted, name)
    _ready(app, projects, wanted, "")  # what is refused is refused once, here
    app.close()  # processes must not share a connection
    names = [name and f"{name}-{index}" for index in range(processes)]
    return run_processes(
        processes, lambda at: _serve(call, app, projects, wanted, names[at]), grace=wanted.grace, log=logger
    )


def _app(call: Call, settings: Settings, target: str) -> tuple[App, Projects | None]:
    """The app of a module, with what the settings build; or only that."""
    if not target and settings_of(call) is None:
        raise Invalid(
            "A worker runs the handlers of your code. Name the app that has them: `holdfast worker shop:app`. To build what a "
            "settings file names: `holdfast worker --config holdfast.toml`."
        )
    return app_for(call, settings, target)


def log_to_standard_error(verbose: bool = False) -> None:
    """Log to standard error without the secrets of jobs, unless the user's module has set up a log of its own."""
    written = logging.StreamHandler(sys.stderr)
    written.setFormatter(HidingFormatter(FORM))
    logging.basicConfig(level=logging.INFO, handlers=[written])
    if verbose:
        logging.getLogger("holdfast").setLevel(logging.DEBUG)


def _wanted(app: App, settings: Settings, target: str) -> WorkerSettings:
    return WorkerSettings(**wanted_of(app, settings, target))


def wanted_of(app: App, settings: Settings, target: str) -> dict[str, Any]:
    """What the settings say about a worker; `Invalid` for a queue that the app does not have."""
    for queue in settings.worker_queues or ():
        if queue not in app.queues:
            raise Invalid(f"--queues: {target} declares no queue `{queue}`; it has {', '.join(app.queues) or 'none'}.")
    given: dict[str, Any] = {
        "queues": settings.worker_queues,
        "labels": settings.worker_labels,
        "duties": settings.worker_duties,
        "concurrency": settings.worker_concurrency,
        "grace": settings.worker_grace,
        "log_level": settings.worker_log_level and settings.worker_log_level.upper(),
    }
    return {name: value for name, value in given.items() if value is not None}


def _tell_start(call: Call, app: App, wanted: WorkerSettings, processes: int) -> None:
    queues = wanted.queues or tuple(app.queues)
    if call.json:
        told = {"event": "start", "instance": app.name, "queues": queues, "job_types": tuple(app.job_types)}
        say_json({**told, "concurrency": wanted.concurrency, "processes": processes}, lines=True)
        return
    several = f", {processes} processes" if processes > 1 else ""
    say(
        f"Worker of instance `{app.name}` starts: {', '.join(queues) or 'no queue'}; {len(app.job_types)} job types; "
        f"concurrency {wanted.concurrency}{several}. Ctrl-C stops it."
    )


def _serve(call: Call, app: App, projects: Projects | None, wanted: WorkerSettings, name: str) -> int:
    """One worker, from start to end, in this process."""
    worker = _ready(app, projects, wanted, name)
    run_until_signal(worker)
    if worker.failure is not None:
        _end_at_once(call, worker)
    app.close()
    if call.json:
        say_json({"event": "stop", "worker": worker.id, "attempts": worker.attempts}, lines=True)
    else:
        say(f"Worker {worker.id} has stopped after {worker.attempts} attempt{'s' * (worker.attempts != 1)}.")
    return 0


def _end_at_once(call: Call, worker: Worker) -> NoReturn:
    """Without a farewell: threads that hang in the database would keep the process. The log has said why."""
    if call.json:
        say_json({"event": "failure", "worker": worker.id, "error": worker.failure}, lines=True)
    logging.shutdown()
    flush_streams()
    os._exit(FAILED)


def _ready(app: App, projects: Projects | None, wanted: WorkerSettings, name: str) -> Worker:
    """A worker that is not started yet; waits for its database."""
    worker = app.worker_for_ever(
        queues=wanted.queues,
        labels=wanted.labels,
        duties=wanted.duties,
        concurrency=wanted.concurrency,
        grace=wanted.grace,
        log_level=wanted.log_level,
        name=name,
    )
    if projects is not None:
        projects.hold_folder()
        projects.log_limits()
    return worker
