"""One build from its clone to `completed`, on one thread.

- Steps run one at a time, each behind what it comes after, otherwise as written; their states are those of workflows.
- A command that fails, a build file that is wrong, a limit of size that is passed: `failed`. No code, no sandbox, time that
  is over, anything broken here: `error`. Whatever happens, no process is left when `completed` is written.
"""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field, structs

from holdfast.builds import buildfile, condition
from holdfast.builds.buildfile import BuildFile, BuildStep, WrongBuildFile
from holdfast.builds.context import READABLE
from holdfast.builds.order import BuildOrder, check
from holdfast.builds.result import BuildResult, StepChange, StepResult, owned
from holdfast.clock import Clock
from holdfast.errors import Invalid
from holdfast.jobs.secrets import Redaction
from holdfast.jobs.wording import shortened, span
from holdfast.worker.building import files, sandbox, source
from holdfast.worker.building import folder as folders
from holdfast.worker.building.files import Refused
from holdfast.worker.building.folder import BuildFolder
from holdfast.worker.building.keeping import Bounds, Ended, Keeper, Lost, Stopped
from holdfast.worker.building.outputs import Outputs
from holdfast.worker.building.sandbox import NoSandbox, Proven
from holdfast.worker.building.source import NoSource
from holdfast.worker.building.surroundings import facts, of_steps
from holdfast.workflows import states
from holdfast.workflows.states import Result, Step, StepState

logger = logging.getLogger("holdfast.worker")
Tell = Callable[[StepChange], None]
BLOT = "***"  # in the place of a secret, as in the log
COLOURS = {"success": "32", "failed": "31", "error": "35", "aborted": "33"}
OUTCOMES = {Result.SUCCESS: "success", Result.FAILED: "failed", Result.ERROR: "error"}


class Place(Struct, frozen=True, kw_only=True):
    """Where a build is performed: how one on the spot differs, and what its builder knows."""

    source: Path | None = None  # a working copy to build in, instead of a clone
    echo: int | None = None  # a descriptor that gets the log too
    colours: bool = True
    step: str | None = None  # only this one, and what it comes after
    begun: Callable[[], None] = lambda: None  # called when its folder is there
    disk_reserve: int = 0  # bytes that stay free on the disk of its folder
    group_parent: str | None = None  # where a control group can be made for each command
    proven: Proven = field(default_factory=set)
    secrets: tuple[str, ...] = ()  # all that its builder knows, also those of other projects


class Stop:
    """The wish that a build ends: said once, from any thread."""

    def __init__(self) -> None:
        self.why: str | None = None  # aborted, timeout, stopping
        self._lock = threading.Lock()
        self._then: list[Callable[[], None]] = []

    def say(self, why: str) -> None:
        with self._lock:
            if self.why is None:
                self.why = why
                for each in self._then:
                    each()

    def then(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._then.append(call)
            if self.why is not None:
                call()

    def check(self) -> None:
        if self.why is not None:
            raise Stopped


class _Failed(Exception):
    """The code is at fault."""


class _Broken(Exception):
    """Nothing can be said about the code."""


class Build:
    """One attempt at a build."""

    def __init__(self, order: BuildOrder, path: Path, tell: Tell, stop: Stop, place: Place | None = None) -> None:
        self._order, self._path, self._tell, self._stop = order, path, tell, stop
        self._place = place or Place()
        own = (*order.secrets.values(), *source.credentials(order.repository))
        self.hidden = Redaction((*own, *self._place.secrets), shown=BLOT)
        self.stopped = False  # it ended because it was told to
        self._clock = Clock()
        self._began = self._clock.monotonic()
        self._start_time = self._clock.now()
        self._condition_names: tuple[str, ...] = READABLE  # until the build file is read: it may read each of them
        self._steps: dict[str, Step] = {}
        self._details: dict[str, StepResult] = {}

    def run(self) -> BuildResult | None:
        """Perform it; None if its worker stops, so that another will. Raises only what the folder itself refuses."""
        with folders.opened(self._path) as folder:
            self._folder, self._log = folder, folder.log()
            self._tell_begun()
            self._source = self._place.source or folder.work / "source"
            self._outputs = Outputs(folder, self._source, self._order.limits, self._stop.check)
            try:
                outcome, error = self._performed()
                if self._stop.why == "stopping":
                    return None
                return self._completed(folder, outcome, error)
            finally:
                os.close(self._log)

    def _completed(self, folder: BuildFolder, outcome: str, error: str | None) -> BuildResult:
        took = span(self._clock.monotonic() - self._began)
        self._say(f"{outcome} after {took}" + (f": {error}" if error else ""), COLOURS[outcome])
        result = BuildResult(
            outcome=outcome,
            error=None if error is None else self.hidden.apply(error),
            start_time=self._start_time,
            end_time=self._clock.now(),
            steps={name: step.state for name, step in self._steps.items()},
            details=tuple(self._details.values()),
            outputs=tuple(self._outputs.kept),
            condition_names=self._condition_names,
        )
        result = owned(result, self._order.owner)
        folder.complete(result)
        return result

    def _performed(self) -> tuple[str, str | None]:
        """The outcome, and a sentence about what went wrong. Every process has ended then."""
        try:
            check(self._order)
            with self._kept():
                self._prepare()
                return self._run_steps()
        except Stopped:
            self.stopped = True
            if self._stop.why == "timeout":
                return self._cut_short("error", self._total_timeout())
            return self._cut_short("aborted", "aborted")
        except _Failed as failed:
            return self._cut_short("failed", str(failed))
        except (_Broken, NoSource, NoSandbox, Lost, Invalid, OSError) as broken:
            return self._cut_short("error", str(broken))
        except Exception as error:
            logger.exception("Build of %s %s broke.", self._order.project, self._order.commit)
            return self._cut_short("error", f"{type(error).__qualname__}: {error}")

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """A keeper for as long as commands run."""
        secrets = [pattern.encode("utf-8", "surrogateescape") for pattern in self.hidden.patterns]
        bounds = Bounds(
            limits=self._order.limits,
            work=self._folder.work,
            disk_reserve=self._place.disk_reserve,
            group_parent=self._place.group_parent,
        )
        self._keeper = Keeper(self._log, self._place.echo, bounds, secrets)
        try:
            self._stop.then(self._keeper.stop)
            yield
        finally:
            self._keeper.close()

    def _prepare(self) -> None:
        """Get the code, read its build file, and find a place for its steps to run in."""
        order = self._order
        if self._place.source is None:
            self._say(f"clone {order.commit} of {source.shown(order.repository)}")
            source.clone(order, self._folder.work, self._command)
        self._file = self._read_file()
        self._condition_names = self._file.condition_names
        self._runner = sandbox.choose(order, self._folder.work, self._source, self._path.parent, self._place.proven)
        self._variables = of_steps(
            order, self._runner.home, self._runner.temporary, self._runner.path, self._place.colours
        ) | {"HOLDFAST_SOURCE": self._runner.source}
        self._say(self._runner.name)

    def _read_file(self) -> BuildFile:
        name = self._order.build_file
        try:
            with files.opened(self._source, name) as descriptor:
                text = os.read(descriptor, buildfile.LARGEST_FILE * 4 + 1).decode("utf-8")
            file = buildfile.read(text, name)
        except FileNotFoundError:
            raise _Failed(f"there is no build file {name} in this commit") from None
        except UnicodeDecodeError:
            raise _Failed(f"{name} is not UTF-8") from None
        except Refused as refused:
            raise _Failed(f"the build file cannot be read: {refused}") from None
        except WrongBuildFile as wrong:
            for problem in wrong.problems:
                self._say(problem, COLOURS["failed"])
            raise _Failed(str(wrong)) from None
        return file if self._place.step is None else buildfile.only(file, self._place.step)

    def _run_steps(self) -> tuple[str, str | None]:
        self._steps = {
            step.name: Step(step.name, after=step.after, can_fail=step.can_fail) for step in self._file.steps
        }
        for step in self._file.steps:
            self._told(step, StepState.DORMANT, None)
        for step in self._file.steps:
            self._stop.check()
            self._step(step)
        return self._outcome()

    def _outcome(self) -> tuple[str, str | None]:
        results = {step.result for step in self._steps.values()}
        worst = next(result for result in (Result.ERROR, Result.FAILED, Result.SUCCESS) if result in results)
        wrong = [
            f"step {detail.name}: {detail.reason}"
            for detail in self._details.values()
            if detail.state in (StepState.FAILED, StepState.ERROR) and detail.reason
        ]
        return OUTCOMES[worst], "; ".join(wrong) or None

    def _step(self, declared: BuildStep) -> None:
        """Decide on one step and, if it is to run, run it."""
        left_out = self._left_out(declared)
        step = structs.replace(self._steps[declared.name], ignored=left_out is not None)
        dependencies = [self._steps[name].result for name in declared.after]
        begun = states.next_state(step, dependencies, phase_open=True)
        if begun is not StepState.START:
            self._move(declared, step, begun, left_out or "what it comes after did not succeed")
            return
        step = self._move(declared, step, StepState.READY, None)
        failure = self._performed_step(declared)
        step = structs.replace(step, all_created=True, succeeded=int(failure is None), failed=int(failure is not None))
        self._move(declared, step, states.next_state(step, dependencies, phase_open=True), failure)

    def _left_out(self, step: BuildStep) -> str | None:
        if step.skip:
            return "`skip` is set"
        variables = {**self._order.env, **self._file.env, **step.env}
        if step.condition is None or condition.holds(step.condition.condition, facts(self._order, variables)):
            return None
        return f"its condition does not hold: {step.condition.text}"

    def _performed_step(self, step: BuildStep) -> str | None:
        """Run its lines and keep its outputs; what failed, or None."""
        failure = self._run_lines(step) if step.run else None
        telling = next((name for name in step.outputs if self.hidden.apply(name) != name), None)
        if telling is not None:
            return failure or f"output {telling}: its name holds a secret"
        missing = self._outputs.collect(step.name, step.outputs, all_of_them=failure is None)
        if missing and failure:
            self._say(missing, COLOURS["failed"])
        return failure or missing

    def _run_lines(self, step: BuildStep) -> str | None:
        folder = self._source / step.cwd
        if not folder.is_dir():
            return f"cwd {step.cwd}: there is no such folder"
        env = {**self._variables, **self._file.env, **step.env, **self._secrets(), "HOLDFAST_STEP": step.name}
        arguments = self._runner.command(step.run, step.cwd, self._place.colours)
        ended = self._command(arguments, env, self._runner.start_folder(step.cwd), self._runner.shared_folder)
        if ended.left:
            self._say(f"{ended.left:,} bytes stay in memory, in {self._runner.shared_folder} or in System V segments")
        if ended.code == 0:
            return None
        if ended.line == 0:
            raise _Broken(f"step {step.name} could not be started; the log says why")
        line = step.run[min(ended.line, len(step.run)) - 1]
        return f"{_how(ended.code)}: {shortened(line, 100)}"

    def _secrets(self) -> dict[str, str]:
        """They win over variables of the same names in the build file, which strangers may write."""
        return dict(self._order.secrets) if self._order.trusted else {}

    def _command(
        self, arguments: Sequence[str], env: dict[str, str], cwd: Path, shared_folder: str | None = None
    ) -> Ended:
        """Run a command within what is left of the build's time and log."""
        limits, timeout = self._order.limits, self._order.timeout
        ended = self._keeper.run(
            arguments,
            env,
            cwd,
            timeout=None if timeout is None else timeout - (self._clock.monotonic() - self._began),
            silence_timeout=self._order.silence_timeout,
            log_room=limits.log - self._log_size(),
            shared_folder=shared_folder,
        )
        match ended.why:
            case "stopped":
                raise Stopped
            case "timeout":
                raise _Broken(self._total_timeout())
            case "silence":
                raise _Broken(
                    f"silence timeout: nothing was printed for {self._order.silence_timeout:g} s{self._during()}"
                )
            case "broken":
                raise _Broken(f"a command could not be watched over: {ended.detail}")
            case "log":
                raise _Failed(f"log limit: more than {limits.log:,} bytes were printed{self._during()}")
            case "memory":
                raise _Failed(
                    f"memory limit: {int(ended.detail):,} bytes, {limits.memory:,} are allowed{self._during()}"
                )
            case "processes":
                raise _Failed(
                    f"process limit: {ended.detail} at once, {limits.processes:,} are allowed{self._during()}"
                )
            case "disk":
                raise _Failed(f"disk limit: {int(ended.detail):,} bytes, {limits.disk:,} are allowed{self._during()}")
            case "reserve":
                raise _Broken(
                    f"disk reserve: only {int(ended.detail):,} bytes are free on the disk of the builds{self._during()}. "
                    "Free some, or lower `disk_reserve` in [builds]"
                )
        return ended

    def _total_timeout(self) -> str:
        timeout = self._order.timeout
        return f"total timeout: not finished after {timeout:g} s{self._during()}" if timeout else "total timeout"

    def _during(self) -> str:
        if not self._steps:
            return ", in the clone"
        running = [name for name, step in self._steps.items() if step.state is StepState.READY]
        return f", in step {running[0]}" if running else ""

    def _cut_short(self, outcome: str, error: str) -> tuple[str, str]:
        """The build ends here: what ran erred or failed, and what did not begin is skipped because of that."""
        ends = {StepState.DORMANT: StepState.SKIP_BY_ERROR, StepState.READY: StepState.ERROR}
        if outcome == "failed":
            ends = {StepState.DORMANT: StepState.SKIP_BY_FAILED, StepState.READY: StepState.FAILED}
        for name, step in list(self._steps.items()):
            if step.state in ends:
                declared = next(each for each in self._file.steps if each.name == name)
                self._move(
                    declared,
                    step,
                    ends[step.state],
                    error if step.state is StepState.READY else "the build was cut short",
                )
        return outcome, error

    def _move(self, declared: BuildStep, step: Step, to: StepState, reason: str | None) -> Step:
        """The step in its new state, kept, written to the log and told."""
        step = self._steps[step.name] = states.move(step, to)
        if to is StepState.READY:
            self._say(f"step {step.name}")
        self._told(declared, to, reason)
        if to is not StepState.READY:
            words = f"{step.name} {to}" + (f": {reason}" if reason else "")
            self._say(words, COLOURS[OUTCOMES[step.result]])
        return step

    def _told(self, step: BuildStep, state: StepState, reason: str | None) -> None:
        now, size = self._clock.now(), self._log_size()
        reason = None if reason is None else self.hidden.apply(reason)
        before = self._details.get(step.name, StepResult(name=step.name, state=state, hidden=step.hidden))
        detail = structs.replace(before, state=state, reason=reason)
        if state is StepState.READY:
            detail = structs.replace(detail, start_time=now, log_start=size)
        elif state is not StepState.DORMANT:
            detail = structs.replace(detail, end_time=now, log_end=None if detail.start_time is None else size)
        self._details[step.name] = detail
        try:
            self._tell(
                StepChange(step=step.name, state=state, time=now, hidden=step.hidden, reason=reason, log_size=size)
            )
        except Exception:
            logger.exception("Step %s of a build of %s: nobody could be told.", step.name, self._order.project)

    def _tell_begun(self) -> None:
        try:
            self._place.begun()
        except Exception:
            logger.exception("A build of %s begins: nobody could be told.", self._order.project)

    def _log_size(self) -> int:
        return os.fstat(self._log).st_size

    def _say(self, words: str, colour: str = "36") -> None:
        """A line of our own in the log."""
        line = f"── {self.hidden.apply(words)}"
        text = f"\x1b[1;{colour}m{line}\x1b[0m\n" if self._place.colours else f"{line}\n"
        for descriptor in (self._log, self._place.echo):
            if descriptor is not None:
                _write_all(descriptor, text.encode("utf-8", "replace"))


def _how(code: int | None) -> str:
    number = 0 if code is None else -code if code < 0 else code - 128
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(number).name}"
    return f"exited with {code}"


def _write_all(descriptor: int, text: bytes) -> None:
    while text:
        text = text[os.write(descriptor, text) :]
