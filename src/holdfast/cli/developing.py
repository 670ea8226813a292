"""What `holdfast dev` does: a process that watches files, and one below it that serves and works.

- The watcher imports nothing of the user's, so a module that is broken for a moment does not end it.
- A change ends the one below gracefully and starts another. Sessions are in the database: a browser stays logged in.
- The one below dies with the watcher, however that went: by signal on Linux, and everywhere because a pipe ends.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.cli import serving
from holdfast.cli.command import Call
from holdfast.cli.output import complain, say, say_json
from holdfast.cli.projects import app_for, conceal_secrets
from holdfast.cli.working import log_to_standard_error, wanted_of
from holdfast.clock import sleep
from holdfast.config import Settings, locate
from holdfast.web.registration import Registration
from holdfast.web.server import server_at
from holdfast.worker.processes import die_with_parent

BELOW = "HOLDFAST_DEV_BELOW"  # in the environment of the process that serves: `first`, or `again` after a change
LOOK_EVERY = 0.3  # seconds
STOPS_WITHIN = 30.0
Seen = Mapping[Path, int]


def develop(call: Call, settings: Settings, target: str) -> int:
    """Until a signal; the exit code."""
    turn = os.environ.get(BELOW)
    if turn is not None:
        serve_and_work(call, settings, target, first=turn == "first")
        return 0
    conceal_secrets(call)
    return Watcher(call, target).run()


def serve_and_work(call: Call, settings: Settings, target: str, first: bool) -> None:
    """The server and a worker, in this process, until a signal."""
    die_with_parent(signal.SIGKILL)
    threading.Thread(target=_exit_with_the_watcher, name="holdfast-dev", daemon=True).start()
    log_to_standard_error()
    app, projects = app_for(call, settings, target)
    worker = app.worker_for_ever(**wanted_of(app, settings, target))
    if projects is not None:
        projects.hold_folder()
    serving.refuse_open_door(app, settings)
    with (
        serving.listening(settings) as listener,
        Registration(app, serving.address_of(listener, settings)) as registration,
    ):
        asgi = serving.application(app, settings, projects, registration)
        server = server_at(listener, asgi, settings.serve_from or ())
        with serving.heeding(server):
            if first or sys.stdout.isatty():  # the link of the process before is dead
                serving.tell(call, app, listener, registration)
            worker.start()
            try:
                server.run()
            finally:
                worker.stop()
                worker.stopped(STOPS_WITHIN)
    app.close()


def _exit_with_the_watcher() -> None:
    while os.read(0, 4096):  # not by sys.stdin, whose lock would be in the way when the interpreter ends
        pass
    os._exit(1)


class Watcher:
    """Starts the one below, and again after each change."""

    def __init__(self, call: Call, target: str) -> None:
        self.call = call
        self.target = target
        self.below: subprocess.Popen[bytes] | None = None
        self.stopping = False

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        seen = self._look()
        self._start("first")
        first = True
        while not self.stopping:
            code = None if self.below is None else self.below.poll()
            if code is not None:
                if first:
                    return code
                complain("It ended. It starts again with the next change.")
                self.below = None
            sleep(LOOK_EVERY)
            now = self._look()
            if now != seen and not self.stopping:
                self._tell(sorted(str(path) for path in {*now, *seen} if now.get(path) != seen.get(path)))
                seen, first = now, False
                self._end()
                self._start("again")
        return self._end()

    def _stop(self, *_: Any) -> None:
        self.stopping = True

    def _look(self) -> Seen:
        found = {}
        for path in self._files():
            try:
                found[path] = path.stat().st_mtime_ns
            except OSError:  # it goes while it is looked at
                continue
        return found

    def _files(self) -> Iterator[Path]:
        config = locate(self.call.config, Path.cwd())
        if config is not None:
            yield config
        if self.target:
            yield from sources(self.target.partition(":")[0])

    def _tell(self, changed: list[str]) -> None:
        if self.call.json:
            say_json({"event": "reload", "changed": changed}, lines=True)
        else:
            say(f"{changed[0]} has changed{' and others' * (len(changed) > 1)}: starting again.")

    def _start(self, turn: str) -> None:
        command = [sys.executable, "-m", "holdfast", *sys.argv[1:]]
        self.below = subprocess.Popen(
            command, stdin=subprocess.PIPE, env={**os.environ, BELOW: turn}, start_new_session=True
        )

    def _end(self) -> int:
        """0 if it has ended as it was told to."""
        if self.below is None:
            return 0
        self.below.terminate()
        try:
            code = self.below.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            self.below.kill()
            code = self.below.wait()
        self.below = None
        return 0 if code in (0, -signal.SIGTERM) else 1


def sources(module: str) -> Iterator[Path]:
    """The files of the module's own package, or the module's own file."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return
    if found is None:
        return
    if found.submodule_search_locations:
        for place in found.submodule_search_locations:
            yield from sorted(Path(place).rglob("*.py"))
    elif found.origin is not None:
        yield Path(found.origin)
