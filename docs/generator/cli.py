"""docs/reference/cli.md: the commands, read from the tree that the command line itself is made of."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from docs.generator import errors, text
from holdfast.cli import SETTINGS, commands
from holdfast.cli.command import Call
from holdfast.errors import HoldfastError

EXIT_CODES = {
    0: "done",
    1: "anything else",
    2: "the command, its arguments or settings are wrong",
    3: "no such job, queue or instance",
    4: "true now, but in the way of what was asked",
    5: "the database cannot be used right now",
}
SHARED = set(Call.__struct_fields__)


def page() -> str:
    root: Any = get_command(commands())
    tree = list(walk(root, "holdfast"))
    shared = next(command for _, command in tree if {each.name for each in command.params} >= SHARED).params
    parts = [
        "# Command line\n",
        text.MADE,
        f"`holdfast NOUN VERB`. {SETTINGS} `python -m holdfast` is the same program.\n",
        "Every command has these options as well:\n",
        text.table(("option", ""), [row(option) for option in shared if option.name in SHARED]),
        "Answers go to standard output, errors to standard error, as one paragraph.\n",
        text.table(("exit code", ""), sorted(exit_codes().items())),
    ]
    for path, command in tree:
        parts += [f"## {path}\n", f"{command.help}\n", *called(path, command)]
    return "\n".join(parts)


def exit_codes() -> dict[int, str]:
    raised = {error.exit_code for error, _ in errors.tree(HoldfastError)}
    text.exactly({str(code): means for code, means in EXIT_CODES.items()}, map(str, raised | {0}), "exit codes")
    return EXIT_CODES


def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The commands that do something, each with what one types."""
    below = getattr(command, "commands", {})
    if not below:
        yield path, command
    for name, child in below.items():
        yield from walk(child, f"{path} {name}")


def called(path: str, command: Any) -> list[str]:
    own = [each for each in command.params if each.name not in SHARED and not getattr(each, "hidden", False)]
    arguments = [each for each in own if not is_option(each)]
    options = [each for each in own if is_option(each)]
    words = [each.metavar if each.required else f"[{each.metavar}]" for each in arguments]
    line = " ".join([path, *words, *(["[OPTIONS]"] if options else [])])
    rows = [row(each) for each in (*arguments, *options) if is_option(each) or each.help]
    return [text.block(line, "sh"), *([text.table(("", ""), rows)] if rows else [])]


def is_option(parameter: Any) -> bool:
    return bool(parameter.opts[0].startswith("-"))


def row(parameter: Any) -> tuple[str, str]:
    if not is_option(parameter):
        return text.code(parameter.metavar), parameter.help or ""
    value = "" if parameter.is_flag else " " + (parameter.metavar or choice(parameter.type))
    return ", ".join(text.code(option + value) for option in parameter.opts), parameter.help or ""


def choice(kind: Any) -> str:
    if choices := getattr(kind, "choices", None):
        return "|".join(str(getattr(each, "value", each)) for each in choices)
    return {"int": "NUMBER", "float": "NUMBER", "path": "FILE"}.get(kind.name.removesuffix(" range"), "TEXT")
