"""What is to be built: a commit of a repository, how, and within which limits.

- An order is made by the process that has the project's settings; secrets stand in it, so it is never stored.
- `check` refuses names that could be taken for something else by git, a shell or a terminal. A name that passes is still
  nothing but data: it becomes an argument behind `--` or the value of a variable, never a part of a shell's line.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct, field

from holdfast.builds.context import Context
from holdfast.builds.result import Owner
from holdfast.errors import Invalid, quoted

BUILD_FILE = "holdfast.build.toml"
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
PROJECT = re.compile(r"[A-Za-z0-9_-]{1,200}")
EVENT = re.compile(r"[a-z][a-z_]{0,39}")
# What git itself refuses in the name of a branch or tag, and a leading dash, which would make it an option.
NOT_A_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|^[-/.]|/$|\.$|//|/\.|\.lock(/|$)|^@$")
NOT_IN_AN_ADDRESS = re.compile(r"[\x00-\x20\x7f]")
ADDRESS = re.compile(  # no user and no host may begin with a dash: ssh would take it for an option
    r"(https?|ssh|git)://([^-/@][^/@]*@)?[A-Za-z0-9\[][^/@]*(/.*)?|file:///.+|[A-Za-z0-9][\w.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^-].*|/.+"
)
LONGEST_REF = 250
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# These change which program runs, what is loaded into it, or which repository git works on, also in the programs that
# start a build, which run outside its sandbox.
REFUSED_VARIABLE = re.compile(
    r"(LD|DYLD|GIT|HOLDFAST)_.*|PATH|IFS|ENV|BASH_ENV|BASH_FUNC.*|SHELLOPTS|BASHOPTS|PS4|GCONV_PATH|GLIBC_TUNABLES|MALLOC_.*"
)


class Sandbox(StrEnum):
    """Where the steps of a build run."""

    AUTO = "auto"  # in bubblewrap where that works; else as plain processes, and the log says so
    BUBBLEWRAP = "bubblewrap"  # in bubblewrap, or not at all
    NONE = "none"  # as plain processes with limits


class Limits(Struct, frozen=True, kw_only=True):
    """What a build may use. A build that wants more is `failed`."""

    memory: int = 4 << 30  # bytes, of each process and of all together
    processes: int = 1_000
    file_size: int = 4 << 30  # bytes of any one file
    disk: int = 16 << 30  # bytes of working copy, clone, home and temporary files together
    log: int = 32 << 20  # bytes
    outputs: int = 100
    output_size: int = 1 << 30  # bytes of all outputs together


class BuildOrder(Struct, frozen=True, kw_only=True):
    """One build as it is to be performed."""

    project: str
    commit: str  # the full name, in hexadecimal digits
    repository: str  # where git finds it: https, ssh, file, or a path
    branch: str | None = None
    tag: str | None = None
    ref: str | None = None  # where the commit can be found if not on a branch: refs/pull/3/head
    event: str = "push"
    build_file: str = BUILD_FILE  # its path in the repository
    timeout: float | None = 600.0  # seconds for everything
    silence_timeout: float | None = 300.0  # seconds without a byte of output
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(
        default_factory=dict
    )  # variables that only trusted builds see, blotted out of the log
    trusted: bool = True  # its code comes from people who may see the secrets
    sandbox: Sandbox = Sandbox.AUTO
    network: bool = True  # whether the sandbox has one
    path: tuple[str, ...] = ()  # folders in which programs are looked for before those of the system
    readable: tuple[str, ...] = ()  # paths that the sandbox shows besides the system's own
    protected: tuple[str, ...] = ()  # paths that it never shows: the database, settings, tokens
    limits: Limits = Limits()
    instance: str | None = None  # that wants the build; None: it is built on the spot
    job_id: int | None = None

    @property
    def owner(self) -> Owner:
        """The build that the folder is of."""
        context = Context(trusted=self.trusted, event=self.event, branch=self.branch, tag=self.tag)
        return Owner(
            instance=self.instance, project=self.project, commit=self.commit, context=context, job_id=self.job_id
        )


def check(order: BuildOrder) -> BuildOrder:
    """The order itself, or `Invalid` with everything in it that cannot be."""
    found = list(_problems(order))
    if found:
        raise Invalid(f"This build cannot be: {' '.join(found)}")
    return order


def _problems(order: BuildOrder) -> Iterator[str]:
    if not PROJECT.fullmatch(order.project):
        yield f"project {quoted(order.project)}: use letters, digits, `_` and `-`."
    if not COMMIT.fullmatch(order.commit):
        yield f"commit {quoted(order.commit)} is not the full name of one: give its 40 (or 64) hexadecimal digits in lower case."
    for what in ("branch", "tag", "ref"):
        name = getattr(order, what)
        if name is not None and not is_ref(name):
            yield f"{what} {quoted(name)} is a name that git does not allow, or that would be an option."
    if not EVENT.fullmatch(order.event):
        yield f"event {quoted(order.event)}: use lower-case letters and `_`."
    if not ADDRESS.fullmatch(order.repository) or NOT_IN_AN_ADDRESS.search(order.repository):
        yield "the repository's address is none that is cloned from: give https://…, ssh://…, git@host:…, file:///… or an absolute path."
    if not is_path_within(order.build_file):
        yield f"build_file {quoted(order.build_file)}: give a path inside the repository."
    for name in (*order.env, *order.secrets):
        refused = refused_variable(name)
        if refused:
            yield f"variable {quoted(name)} {refused}."
    for each in (*order.path, *order.readable, *order.protected):
        if not each.startswith("/") or "\0" in each or (":" in each and each in order.path):
            yield f"path {quoted(each)}: give an absolute path without `:`."
    for name, value in (*order.env.items(), *order.secrets.items()):
        if "\0" in value:
            yield f"variable {quoted(name)}: its value holds NUL."


def is_ref(name: str) -> bool:
    """Whether git would take it as the name of a branch or tag, and nothing as an option."""
    return 0 < len(name.encode("utf-8", "replace")) <= LONGEST_REF and not NOT_A_REF.search(name) and name.isprintable()


def is_path_within(path: str) -> bool:
    """Whether a path, as it is written, stays in the folder it is relative to."""
    parts = path.split("/")
    return (
        bool(path) and not path.startswith(("/", "-")) and ".." not in parts and path.isprintable() and "\\" not in path
    )


def refused_variable(name: str) -> str | None:
    """Why a variable may not be set for a build; None if it may."""
    if not VARIABLE.fullmatch(name):
        return "is no name of a variable; use letters, digits and _"
    if REFUSED_VARIABLE.fullmatch(name):
        return "would reach beyond the build's own commands; set it in the line that needs it, as in `PATH=… make`"
    return None
