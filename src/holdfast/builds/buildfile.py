"""The build file: the steps of a build as they are written in the repository that is built (B6, B7).

- One TOML file. Everything that is wrong with it is told at once, each with its line.
- Nothing in it reaches a shell but the lines of `run`.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from holdfast.builds import condition as conditions
from holdfast.builds.condition import Condition, Unreadable
from holdfast.builds.lines import Place, line_of, lines
from holdfast.builds.order import is_path_within, refused_variable
from holdfast.errors import Invalid, backticked, quoted
from holdfast.workflows.definition import NAME, nearest
from holdfast.workflows.graph import cycles

LARGEST_FILE = 256 << 10
MOST_STEPS = 200
LONGEST_RUN = 32 << 10  # characters of a line
OUTPUT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,199}")
SYNTAX = re.compile(r"(?P<what>.*?) \(at (?:line (?P<line>\d+), column \d+|end of document)\)", re.DOTALL)


class Key(Struct, frozen=True):
    """A key that may stand in a build file."""

    takes: str
    means: str


KEYS: Mapping[str, Key] = {
    "env": Key("a table of texts", "Variables for the commands of every step."),
    "steps": Key("a table of steps", "`[steps.NAME]` for each; a name has letters, digits, `_` and `-`."),
}
STEP_KEYS: Mapping[str, Key] = {
    "run": Key(
        "a list of texts, or one",
        "Lines for the shell, each a shell of its own; the first that fails ends the step. A step without lines gathers others.",
    ),
    "after": Key("a list of steps, or one", "It begins when these are done, and is skipped if one of them failed."),
    "env": Key("a table of texts", "Variables for its own commands; they win over those of the file."),
    "cwd": Key("a path", "The folder in which its lines run, from the top of the working copy, which is the default."),
    "if": Key("a condition", "It is left out, as if it had succeeded, where this does not hold."),
    "outputs": Key("a table: name = path", "Files to keep, by path from the top of the working copy."),
    "hidden": Key("true or false", "It has no commit status of its own."),
    "skip": Key("true or false", "It is left out, as if it had succeeded."),
    "can_fail": Key("true or false", "Its failure does not fail the build, nor skip what comes after it."),
}


class WrittenCondition(Struct, frozen=True):
    """A condition, and how it was written."""

    text: str
    condition: Condition


class BuildStep(Struct, frozen=True, kw_only=True):
    """One step."""

    name: str
    run: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str = "."
    condition: WrittenCondition | None = None
    outputs: Mapping[str, str] = {}  # name → path
    hidden: bool = False
    skip: bool = False
    can_fail: bool = False


class BuildFile(Struct, frozen=True, kw_only=True):
    """A build file that can be run: its steps in the order in which they run, each behind what it comes after."""

    steps: tuple[BuildStep, ...]
    env: Mapping[str, str] = {}

    @property
    def condition_names(self) -> tuple[str, ...]:
        """The names that its conditions read, sorted."""
        written = [step.condition.condition for step in self.steps if step.condition is not None]
        return tuple(sorted({name for each in written for name in conditions.names(each)}))


class WrongBuildFile(Invalid):
    """A build file that cannot be; `problems` are all the reasons, each with file and line."""

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            f"{problems[0]}"
            if len(problems) == 1
            else f"{where} cannot be used, for {len(problems)} reasons: "
            + " ".join(f"({at}) {text}" for at, text in enumerate(problems, 1))
        )


def read(text: str, where: str) -> BuildFile:
    """The build file that is written there; `WrongBuildFile` with everything that is wrong. `where` names the file."""
    if len(text) > LARGEST_FILE:
        raise WrongBuildFile(
            where, [f"{where}: is larger than {LARGEST_FILE >> 10} KiB; put long scripts in files of their own."]
        )
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise WrongBuildFile(where, [_of_syntax(error, text, where)]) from None
    reading = _Reading(content)
    if reading.problems:
        places = lines(text)
        found = sorted((line_of(places, place), told) for place, told in reading.problems)
        raise WrongBuildFile(where, [f"{where}:{line}: {told}" for line, told in found])
    return reading.file()


def only(file: BuildFile, name: str) -> BuildFile:
    """The file with one step and what it comes after; `Invalid` if there is no such step."""
    steps = {step.name: step for step in file.steps}
    if name not in steps:
        raise Invalid(
            f"The build file has no step {backticked(name)}.{nearest(name, list(steps))} It has {', '.join(steps)}."
        )
    wanted, more = set[str](), [name]
    while more:
        step = steps[more.pop()]
        wanted.add(step.name)
        more += [other for other in step.after if other not in wanted]
    return BuildFile(steps=tuple(step for step in file.steps if step.name in wanted), env=file.env)


def is_output_name(name: str) -> bool:
    """Whether a file may be called so wherever outputs are kept and shown (B7)."""
    return bool(OUTPUT.fullmatch(name)) and ".." not in name


def _of_syntax(error: Exception, text: str, where: str) -> str:
    if isinstance(error, RecursionError):
        return f"{where}: is nested too deeply."
    match = SYNTAX.match(str(error))
    what = match["what"] if match else str(error)
    line = match["line"] if match and match["line"] else text.count("\n") + 1
    return f"{where}:{line}: is not TOML: {what[:1].lower()}{what[1:]}."


class _Reading:
    """Takes a file's content apart and collects what is wrong with it."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.problems: list[tuple[Place, str]] = []
        self._unknown(content, (), KEYS)
        self._env = self._texts(content.get("env", {}), ("env",), refused_variable)
        self._steps = [self._step(name, table) for name, table in self._tables(content)]
        self._together()

    def file(self) -> BuildFile:
        return BuildFile(steps=tuple(_in_order(self._steps)), env=self._env)

    def _tables(self, content: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        steps = content.get("steps")
        if not isinstance(steps, dict) or not steps:
            self._wrong(("steps",), "it has no steps; write one as [steps.NAME] with `run` below it.")
        elif len(steps) > MOST_STEPS:
            self._wrong(("steps",), f"it has {len(steps)} steps; {MOST_STEPS} are the most.")
        else:
            for name, table in steps.items():
                if isinstance(table, dict):
                    yield name, table
                else:
                    self._wrong(
                        ("steps", name), f"step {backticked(name)} is {quoted(table)}; give a table: [steps.NAME]."
                    )

    def _step(self, name: str, table: Mapping[str, Any]) -> BuildStep:
        place = ("steps", name)
        if not NAME.fullmatch(name):
            self._wrong(place, f"step {quoted(name)}: use letters, digits, `_` and `-`, at most 200.")
        self._unknown(table, place, STEP_KEYS)
        return BuildStep(
            name=name,
            run=self._run(table.get("run", []), (*place, "run")),
            after=self._list(table.get("after", []), (*place, "after")),
            env=self._texts(table.get("env", {}), (*place, "env"), refused_variable),
            cwd=self._path(table.get("cwd", "."), (*place, "cwd"), "cwd"),
            condition=self._condition(table.get("if"), (*place, "if")),
            outputs=self._texts(table.get("outputs", {}), (*place, "outputs"), _refused_output, self._output_path),
            hidden=self._flag(table, place, "hidden"),
            skip=self._flag(table, place, "skip"),
            can_fail=self._flag(table, place, "can_fail"),
        )

    def _run(self, value: Any, place: Place) -> tuple[str, ...]:
        found = self._list(value, place)
        for at, line in enumerate(found):
            if len(line) > LONGEST_RUN or "\0" in line:
                self._wrong((*place, str(at)), f"a line for the shell has at most {LONGEST_RUN} characters and no NUL.")
        return found

    def _list(self, value: Any, place: Place) -> tuple[str, ...]:
        several = [value] if isinstance(value, str) else value
        if not isinstance(several, list):
            self._wrong(place, f"`{place[-1]}` is {quoted(value)}; give {STEP_KEYS[place[-1]].takes}.")
            return ()
        for at, each in enumerate(several):
            if not isinstance(each, str) or not each.strip():
                self._wrong((*place, str(at)), f"`{place[-1]}` holds {quoted(each)}; give texts that are not empty.")
        return tuple(each for each in several if isinstance(each, str))

    def _texts(
        self,
        value: Any,
        place: Place,
        refused: Callable[[str], str | None],
        check: Callable[[str, Place], object] | None = None,
    ) -> dict[str, str]:
        """A table of texts whose keys are names of some kind."""
        if not isinstance(value, dict):
            self._wrong(place, f'`{place[-1]}` is {quoted(value)}; give a table such as {{ NAME = "text" }}.')
            return {}
        for name, text in value.items():
            why = refused(name)
            if why:
                self._wrong((*place, name), f"`{place[-1]}` has {quoted(name)}, which {why}.")
            if not isinstance(text, str) or "\0" in text:
                self._wrong(
                    (*place, name), f"`{place[-1]}.{name}` is {quoted(text)}; give a text: write numbers in quotes."
                )
            elif check is not None:
                check(text, (*place, name))
        return {name: text for name, text in value.items() if isinstance(text, str)}

    def _output_path(self, text: str, place: Place) -> None:
        self._path(text, place, f"output `{place[-1]}`")

    def _path(self, value: Any, place: Place, what: str) -> str:
        if not isinstance(value, str) or not is_path_within(value):
            self._wrong(place, f"{what} is {quoted(value)}; give a path that stays in the working copy.")
            return "."
        return value

    def _condition(self, value: Any, place: Place) -> WrittenCondition | None:
        if value is None:
            return None
        if not isinstance(value, str):
            self._wrong(place, f"`if` is {quoted(value)}; give a text such as \"branch == 'main'\".")
            return None
        try:
            return WrittenCondition(value, conditions.read(value))
        except Unreadable as why:
            self._wrong(place, f"`if` {why}: {quoted(value)}.")
            return None

    def _flag(self, table: Mapping[str, Any], place: Place, key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            self._wrong((*place, key), f"`{key}` is {quoted(value)}; give true or false.")
        return value is True

    def _unknown(self, table: Mapping[str, Any], place: Place, known: Mapping[str, Key]) -> None:
        for key in table:
            if key not in known:
                hint = nearest(key, list(known)) or f" Known are {', '.join(known)}."
                self._wrong((*place, key), f"{backticked(key)} is not a known key.{hint}")

    def _together(self) -> None:
        """What can only be seen of all steps."""
        names = self._names()
        outputs: dict[str, str] = {}
        for step in self._steps:
            for other in step.after:
                if other not in names and other.strip():
                    self._wrong(
                        ("steps", step.name, "after"),
                        f"{backticked(other)} is no step of this file.{nearest(other, names)}",
                    )
            for name in step.outputs:
                # Where file names are compared without case these would be one file.
                first = outputs.setdefault(name.casefold(), step.name)
                if first != step.name or sum(name.casefold() == other.casefold() for other in step.outputs) > 1:
                    self._wrong(
                        ("steps", step.name, "outputs", name), f"output `{name}` is also one of step `{first}`."
                    )
        for circle in cycles({step.name: step.after for step in self._steps}):
            told = " → ".join(circle)
            self._wrong(
                ("steps", circle[0], "after"),
                f"{told} is a circle: each comes after the next, so none could ever start.",
            )

    def _names(self) -> list[str]:
        return [step.name for step in self._steps]

    def _wrong(self, place: Place, told: str) -> None:
        self.problems.append((place, told))


def _in_order(steps: Sequence[BuildStep]) -> Iterator[BuildStep]:
    """As written, but each behind what it comes after. There are no circles."""
    waiting, done = list(steps), set[str]()
    while waiting:
        step = next(step for step in waiting if done.issuperset(step.after))
        waiting.remove(step)
        done.add(step.name)
        yield step


def _refused_output(name: str) -> str | None:
    if is_output_name(name):
        return None
    return "is no name for an output: begin with a letter or digit, and use letters, digits, `.`, `_`, `+` and `-`, without `..`"
