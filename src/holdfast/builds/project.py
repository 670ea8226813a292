"""The tables `[builds]` and `[projects.NAME]` of holdfast.toml: what is built, from where, for whom, and within which limits.

- A mistake is `Invalid`, says where it stands and what may stand there; an unknown key also names the nearest one.
- A secret stands in the environment or in a file of its own, never in the settings.
- Nothing here does I/O: who has the settings reads the secrets.
"""

import difflib
import fnmatch
import math
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from holdfast.builds.forges import Ignored, Wanted
from holdfast.builds.names import check_project, check_ref
from holdfast.builds.order import (
    ADDRESS,
    BUILD_FILE,
    NOT_IN_AN_ADDRESS,
    Limits,
    Sandbox,
    is_path_within,
    refused_variable,
)
from holdfast.builds.webhooks import FORGES
from holdfast.errors import Invalid, backticked, quoted

EVENTS = ("push", "tag", "pull_request")
HOST_NETWORK = "host"
STRANGERS = ("label", "build", "never")
ALL_BRANCHES = "all"


class Secret(Struct, frozen=True):
    """Where a secret stands."""

    env: str | None = None
    file: str | None = None

    @property
    def words(self) -> str:
        return f"environment variable {self.env}" if self.env else f"file {self.file}"


class StatusSettings(Struct, frozen=True):
    """Where commit statuses go."""

    forge: str
    url: str
    repository: str  # as the forge names it: owner/name
    token: Secret


class Project(Struct, frozen=True, kw_only=True):
    """What is built."""

    name: str
    repository: str
    build_file: str = BUILD_FILE
    hooks: Mapping[str, Secret] = field(
        default_factory=dict
    )  # forge → its secret; a forge that is not here has no hook
    events: tuple[str, ...] = EVENTS
    branches: tuple[str, ...] = ("*",)  # patterns; only pushes to these are built
    rebuild_label: str = "rebuild"
    strangers: str = "label"  # what builds a stranger's pull request: a maintainer's label, whatever comes, or nothing
    supersede: bool = False  # a new commit on a branch ends the older build
    public_badge: bool | str = False  # without a token: of the default branch, or of "all" branches
    default_branch: str | None = None  # wins over what the forge and the repository say
    web: str | None = None  # where people look at the repository
    timeout: float = 600.0
    silence_timeout: float = 300.0
    status: StatusSettings | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    sandbox: Sandbox = Sandbox.AUTO
    network: bool | str = True  # whether a sandbox has this machine's; a stranger's only if it is HOST_NETWORK
    readable: tuple[str, ...] = ()
    limits: Limits = Limits()

    @property
    def all_secrets(self) -> tuple[Secret, ...]:
        """Of its hooks, its builds and its commit status."""
        token = () if self.status is None else (self.status.token,)
        return (*self.hooks.values(), *self.secrets.values(), *token)

    def gives_network(self, trusted: bool) -> bool:
        """Whether a build in a sandbox has this machine's network."""
        return self.network == HOST_NETWORK or (trusted and self.network is True)


class BuildSettings(Struct, frozen=True, kw_only=True):
    """Everything about builds."""

    folder: str = "builds"
    cache: int = 200
    builders: int = 2
    disk_reserve: int = 1 << 30  # bytes that stay free on the disk of the folder
    keep: float | None = None  # seconds that a completed build stays when nobody looks into it; None: for ever
    url: str | None = None  # where people find this server, for links on the forge
    projects: Mapping[str, Project] = field(default_factory=dict)

    @property
    def all_secrets(self) -> tuple[Secret, ...]:
        return tuple(secret for project in self.projects.values() for secret in project.all_secrets)


class Decided(Struct, frozen=True):
    """A build that a project wants."""

    wanted: Wanted
    rebuild: bool


def decide(project: Project, wanted: Wanted) -> Decided | Ignored:
    """Whether a project wants what a forge asks for."""
    if wanted.event not in project.events:
        return Ignored(f"project `{project.name}` is not built for `{wanted.event}`")
    if wanted.event == "push" and not _matches(wanted.branch, project.branches):
        return Ignored(f"project `{project.name}` does not build this branch")
    labelled = wanted.labels is not None and project.rebuild_label in wanted.labels
    if wanted.labels is not None and not labelled:
        return Ignored(f"only the label `{project.rebuild_label}` asks for a build")
    if wanted.stranger and project.strangers == "never":
        return Ignored(f"project `{project.name}` does not build pull requests of other repositories")
    if wanted.stranger and project.strangers == "label" and not labelled:
        return Ignored(
            f"a pull request from another repository is built when a maintainer gives it the label `{project.rebuild_label}`, "
            "for the commit that it then has"
        )
    return Decided(wanted, labelled)


def _matches(branch: str | None, patterns: tuple[str, ...]) -> bool:
    return branch is None or any(fnmatch.fnmatchcase(branch, pattern) for pattern in patterns)


def read_settings(content: Mapping[str, Any], file: str) -> BuildSettings | None:
    """From the whole content of holdfast.toml; None if it has neither table."""
    if "builds" not in content and "projects" not in content:
        return None
    values = _table(content.get("builds", {}), BUILDS, f"{file}: `builds`")
    found = content.get("projects", {})
    if not isinstance(found, Mapping):
        raise Invalid(f"{file}: `projects` is {quoted(found)}; write a table for each: [projects.NAME].")
    projects = {name: _project(name, table, f"{file}: `projects.{name}`") for name, table in found.items()}
    return BuildSettings(**values, projects=projects)


def _project(name: str, table: Any, where: str) -> Project:
    check_project(name)
    values = _table(table, PROJECT, where)
    if "repository" not in values:
        raise Invalid(f"{where} has no `repository`. Say where git finds it.")
    hooks = {forge: values.pop(forge) for forge in FORGES if forge in values}
    if "status" in values:
        values["status"] = _status(values["status"], hooks, values["repository"], f"{where}: `status`")
    return Project(name=name, hooks=hooks, **values)


def _status(given: Mapping[str, Any], hooks: Mapping[str, Secret], repository: str, where: str) -> StatusSettings:
    forge = given.get("forge") or (next(iter(hooks)) if len(hooks) == 1 else None)
    if forge is None:
        raise Invalid(f"{where} has no `forge`. Say which one is told: {', '.join(FORGES)}.")
    url = given.get("url") or DEFAULT_URLS.get(forge)
    if url is None:
        raise Invalid(f"{where} has no `url`. Say where the API of {forge} is.")
    path = given.get("repository") or _path_of(repository)
    if path is None and forge != "generic":
        raise Invalid(f"{where} has no `repository`. Say how the forge names it, as in `owner/name`.")
    token = Secret(given.get("token_env"), given.get("token_file"))
    if (token.env is None) == (token.file is None):
        raise Invalid(f"{where}: say where the token stands, by `token_env` or `token_file`.")
    return StatusSettings(forge, url.rstrip("/"), path or "", token)


DEFAULT_URLS = {"github": "https://api.github.com", "gitlab": "https://gitlab.com/api/v4"}


def _path_of(repository: str) -> str | None:
    """`owner/name` of the address of a repository on a forge."""
    if repository.startswith(("file:", "/")):
        return None
    path = repository.partition("://")[2].partition("/")[2] if "://" in repository else repository.partition(":")[2]
    return path.strip("/").removesuffix(".git") or None


Check = Callable[[Any, str], Any]


def _table(given: Any, known: Mapping[str, Check], where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise Invalid(f"{where} is {quoted(given)}; it is a table.")
    for key in given:
        if key not in known:
            nearest = max(known, key=lambda each: difflib.SequenceMatcher(None, str(key), each).ratio())
            raise Invalid(f"{where}: unknown key {backticked(key)}; the nearest known one is `{nearest}`.")
    return {key: known[key](value, f"{where}: `{key}`") for key, value in given.items()}


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise Invalid(f"{where} is {quoted(value)}; give a text that is not empty.")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"{where} is {quoted(value)}; it is true or false.")
    return value


def _public_badge(value: Any, where: str) -> bool | str:
    if value != ALL_BRANCHES and not isinstance(value, bool):
        raise Invalid(f'{where} is {quoted(value)}; it is true (the default branch), "{ALL_BRANCHES}" or false.')
    return bool(value) if isinstance(value, bool) else ALL_BRANCHES


def _branch(value: Any, where: str) -> str:
    try:
        return check_ref(value)
    except Invalid as error:
        raise Invalid(f"{where}: {error}") from None


def _network(value: Any, where: str) -> bool | str:
    if not isinstance(value, bool) and value != HOST_NETWORK:
        raise Invalid(f'{where} is {quoted(value)}; it is true, false or "{HOST_NETWORK}".')
    return bool(value) if value != HOST_NETWORK else HOST_NETWORK


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Invalid(f"{where} is {quoted(value)}; give a whole number, 1 or more.")
    return value


def _amount(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Invalid(f"{where} is {quoted(value)}; give a whole number, 0 or more.")
    return value


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise Invalid(f"{where} is {quoted(value)}; give a number of seconds above 0.")
    return float(value)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise Invalid(f"{where} is {quoted(value)}; give a list of texts.")
    return tuple(_text(each, where) for each in value)


def _one_of(words: tuple[str, ...]) -> Check:
    def check(value: Any, where: str) -> str:
        if value not in words:
            raise Invalid(f"{where} is {quoted(value)}; it may be {', '.join(words)}.")
        return str(value)

    return check


def _events(value: Any, where: str) -> tuple[str, ...]:
    return tuple(_one_of(EVENTS)(each, where) for each in _texts(value, where))


def _address(value: Any, where: str) -> str:
    text = _text(value, where)
    if not ADDRESS.fullmatch(text) or NOT_IN_AN_ADDRESS.search(text):
        raise Invalid(f"{where} is {quoted(text)}; give https://…, ssh://…, git@host:…, file:///… or an absolute path.")
    return text


def _url(value: Any, where: str) -> str:
    text = _text(value, where)
    if not text.startswith(("http://", "https://")) or not text.isprintable() or " " in text:
        raise Invalid(f"{where} is {quoted(text)}; give http://… or https://….")
    return text.rstrip("/")


def _path_within(value: Any, where: str) -> str:
    if not is_path_within(_text(value, where)):
        raise Invalid(f"{where} is {quoted(value)}; give a path inside the repository.")
    return str(value)


def _secret(value: Any, where: str) -> Secret:
    if isinstance(value, str):
        raise Invalid(f'{where}: a secret does not stand in the settings. Name a variable: {{ secret_env = "…" }}.')
    found = _table(value, {"secret_env": _variable, "secret_file": _text}, where)
    if len(found) != 1:
        raise Invalid(f"{where}: say where the secret stands, by `secret_env` or `secret_file`.")
    return Secret(found.get("secret_env"), found.get("secret_file"))


def _secrets(value: Any, where: str) -> dict[str, Secret]:
    if not isinstance(value, Mapping):
        raise Invalid(f"{where} is {quoted(value)}; it is a table of variables.")
    return {_build_variable(name, where): _secret(each, f"{where}: `{name}`") for name, each in value.items()}


def _variables(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise Invalid(f"{where} is {quoted(value)}; it is a table of variables and their texts.")
    return {_build_variable(name, where): text for name, text in value.items()}


def _build_variable(name: str, where: str) -> str:
    refused = refused_variable(name)
    if refused:
        raise Invalid(f"{where}: variable `{name}` {refused}.")
    return name


def _variable(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.replace("_", "a").isalnum():
        raise Invalid(f"{where} is {quoted(value)}; give the name of an environment variable.")
    return value


def _limits(value: Any, where: str) -> Limits:
    return Limits(**_table(value, dict.fromkeys(Limits.__struct_fields__, _count), where))


def _status_table(value: Any, where: str) -> dict[str, Any]:
    return _table(value, STATUS, where)


STATUS: Mapping[str, Check] = {
    "forge": _one_of(FORGES),
    "url": _url,
    "repository": _text,
    "token_env": _variable,
    "token_file": _text,
}
BUILDS: Mapping[str, Check] = {
    "folder": _text,
    "cache": _amount,
    "builders": _count,
    "disk_reserve": _amount,
    "keep": _seconds,
    "url": _url,
}
PROJECT: Mapping[str, Check] = {
    "repository": _address,
    "build_file": _path_within,
    **dict.fromkeys(FORGES, _secret),
    "events": _events,
    "branches": _texts,
    "rebuild_label": _text,
    "strangers": _one_of(STRANGERS),
    "supersede": _flag,
    "public_badge": _public_badge,
    "default_branch": _branch,
    "web": _url,
    "timeout": _seconds,
    "silence_timeout": _seconds,
    "status": _status_table,
    "env": _variables,
    "secrets": _secrets,
    "sandbox": lambda value, where: Sandbox(_one_of(tuple(Sandbox))(value, where)),
    "network": _network,
    "readable": _texts,
    "limits": _limits,
}
