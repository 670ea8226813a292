"""docs/reference/build-file.md: what may stand in a build file, from the tables that read it."""

from collections.abc import Mapping

from msgspec import structs

from docs.generator import text
from holdfast.builds.buildfile import KEYS, LARGEST_FILE, MOST_STEPS, STEP_KEYS, Key
from holdfast.builds.condition import COMPARISONS, NAMES
from holdfast.builds.order import BUILD_FILE, BuildOrder, Limits
from holdfast.worker.building.surroundings import of_steps

COMPARED = {"==": "the texts are the same", "!=": "they are not", "like": "the left one fits the pattern on the right"}
VARIABLES = {
    "PATH": "Where programs are found: the project's `path`, then the builder's own; in a sandbox the system's.",
    "HOME": "An empty folder of the build.",
    "TMPDIR": "Another one, for temporary files.",
    "SHELL": "`/bin/sh`, which runs the lines.",
    "TERM": "`xterm-256color`: the steps have a terminal.",
    "PAGER": "`cat`: nobody is there to turn a page.",
    "GIT_PAGER": "The same for git.",
    "GIT_TERMINAL_PROMPT": "`0`: git does not ask for passwords.",
    "CI": "`true`",
    "HOLDFAST": "`true`",
    "HOLDFAST_PROJECT": NAMES["project"],
    "HOLDFAST_COMMIT": NAMES["commit"],
    "HOLDFAST_BRANCH": NAMES["branch"],
    "HOLDFAST_TAG": NAMES["tag"],
    "HOLDFAST_EVENT": NAMES["event"],
}
LATER = {
    "HOLDFAST_SOURCE": "The top of the working copy.",
    "HOLDFAST_STEP": "The name of the step.",
    "HOLDFAST_KEEPER": "A random mark. By it the builder finds processes that a step leaves behind.",
}
LIMITS = {
    "memory": "of each process, and of all together",
    "processes": "with their threads, at once",
    "file_size": "of any one file",
    "disk": "of working copy, clone, home and temporary files together",
    "log": "of everything that is printed",
    "outputs": "of a build",
    "output_size": "of all outputs together",
}


def page() -> str:
    return "\n".join(
        [
            "# The build file\n",
            text.MADE,
            f"`{BUILD_FILE}` in the repository that is built, or what the project's `build_file` names. It is TOML, at most "
            f"{LARGEST_FILE >> 10} KiB, with at most {MOST_STEPS} steps. The guide is [Write a build file](../guides/write-a-build-file.md).\n",
            text.table(("key", "takes", "means"), rows(KEYS)),
            "## Steps\n",
            "The keys of a table `[steps.NAME]`:\n",
            text.table(("key", "takes", "means"), rows(STEP_KEYS)),
            "A step is in one of the [states of workflow steps](../guarantees.md#f2-states-of-tasks-steps-and-workflows): `DORMANT` until its turn, "
            "`READY` while it runs, then `SUCCESS`, `FAILED`, `ACCEPTABLE_FAILED`, `ERROR`; `IGNORED` if it was left out; "
            "`SKIP_BY_FAILED` or `SKIP_BY_ERROR` behind one that did not succeed.\n",
            "The name of an output begins with a letter or digit and has letters, digits, `.`, `_`, `+` and `-`, without `..`; no two "
            "differ in case only. Only plain files are kept: no folder, no symbolic link, no hard link to a file elsewhere.\n",
            "## Conditions\n",
            "`and`, `or`, `not` and parentheses join comparisons of names and texts in quotes. A name alone holds if it is not empty.\n",
            text.table(("name", "is"), [*((text.code(name), means) for name, means in NAMES.items()), ENV]),
            text.table(("comparison", "holds if"), comparisons()),
            "In a pattern `*` stands for any characters, `?` for one.\n",
            "## Variables\n",
            "Besides those of project, file and step, in this order, commands see `LANG`, `LC_ALL`, `LC_CTYPE` and `TZ` of the "
            "builder, and:\n",
            text.table(("variable", "is"), variables()),
            "Nothing else of the builder's environment is passed on. Names that change which programs run or what is loaded into "
            "them (`PATH`, `LD_…`, `GIT_…`, `BASH_ENV`, …) and `HOLDFAST_…` cannot be set; a line may set them for itself: "
            '`PATH="$PWD/bin:$PATH" make`.\n',
            "## Limits\n",
            "Defaults; a build that passes one is `failed`, and the error names it.\n",
            text.table(("limit", "", "default"), limits()),
            "The total timeout and the silence timeout are of the project; a build that passes one of them is `error`.\n",
        ]
    )


ENV = ("`env.NAME`", "A variable of the project, the file or the step.")


def rows(keys: Mapping[str, Key]) -> list[tuple[str, str, str]]:
    return [(text.code(name), key.takes, key.means) for name, key in keys.items()]


def comparisons() -> list[tuple[str, str]]:
    return [(text.code(name), means) for name, means in text.exactly(COMPARED, COMPARISONS, "comparison").items()]


def variables() -> list[tuple[str, str]]:
    order = BuildOrder(project="x", commit="0" * 40, repository="/x")
    given = [name for name in of_steps(order, "/", "/", ()) if not name.startswith(("LANG", "LC_", "TZ"))]
    return [(text.code(name), means) for name, means in (text.exactly(VARIABLES, given, "variable") | LATER).items()]


def limits() -> list[tuple[str, str, str]]:
    fields = {field.name: field.default for field in structs.fields(Limits)}
    means = text.exactly(LIMITS, fields, "limit")
    return [(text.code(name), means[name], _size(value)) for name, value in fields.items()]


def _size(value: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if value >= 1 << shift:
            return f"{value >> shift} {unit}"
    return f"{value:,}"
