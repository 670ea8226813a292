"""The command line: `holdfast NOUN VERB`, the same nouns and verbs as everywhere.

- What a command does not need to read its arguments it imports when it runs: `holdfast --help` must be quick.
- Exit codes: 0 done, 2 usage, 3 not found, 4 conflict, 5 unavailable, 1 anything else. Errors go to standard error.
"""

import sys
from collections.abc import Sequence

import typer

from holdfast.cli import (
    archive,
    bench,
    builds,
    demo,
    dev,
    doctor,
    hooks,
    jobs,
    login_link,
    migrate,
    move,
    queues,
    routines,
    schedules,
    serve,
    simulate,
    tokens,
    top,
    version,
    worker,
    workers,
    workflows,
)
from holdfast.cli.output import Unwritable, complain, prepare, silence
from holdfast.errors import with_short_quotes

NOUNS = (
    demo,
    worker,
    serve,
    dev,
    jobs,
    queues,
    workflows,
    builds,
    hooks,
    schedules,
    routines,
    workers,
    tokens,
    login_link,
    top,
    archive,
    simulate,
    bench,
    migrate,
    move,
    doctor,
    version,
)
SETTINGS = "Settings come from flags, then from HOLDFAST_… variables, then from holdfast.toml."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    prepare()
    try:
        code = commands(given)(given or ["--help"], prog_name="holdfast", standalone_mode=False)
        sys.stdout.flush()  # at the exit of Python nobody could tell of it
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        text = with_short_quotes(error.format_message().strip())
        end = "" if text.endswith((".", "?")) else "."
        complain(f"{text}{end} `{'holdfast' if context is None else context.command_path} --help` tells what it takes.")
        code = error.exit_code
    except BrokenPipeError:
        silence(sys.stdout)
        code = 1
    except Unwritable as error:
        silence(sys.stdout)
        complain(f"The answer cannot be written: {error.strerror}.")
        code = 1
    sys.exit(code or 0)


def commands(given: Sequence[str] = ()) -> typer.Typer:
    """The tree of commands; only the branch of the noun that is `given`, because the whole takes 100 ms to make."""
    # Help in rich's boxes would take 150 ms longer.
    root = typer.Typer(
        help="Durable jobs on SQLite and PostgreSQL.", epilog=SETTINGS, add_completion=False, rich_markup_mode=None
    )
    root.callback()(lambda: None)  # a tree also where it has one branch
    named = [noun for noun in NOUNS if given and noun.__name__ == f"{__name__}.{given[0].replace('-', '_')}"]
    for noun in named or NOUNS:
        noun.add_to(root)
    return root
