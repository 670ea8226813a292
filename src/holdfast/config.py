"""Settings: flags over environment over `holdfast.toml`, as one frozen value.

- A setting has one name: `lost_after` in the file is `HOLDFAST_LOST_AFTER` in the environment; `concurrency` in the
  table `[worker]` is `HOLDFAST_WORKER_CONCURRENCY`, and `worker_concurrency` here. `VARIABLES` has the exception.
- Only the command line reads the file. What code passes to `App` wins over everything here.
- A mistake is `Invalid` and says where it stands; a key that is not known also names the nearest one.
"""

import difflib
import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from holdfast.errors import Invalid, backticked, quoted, reason, shown_path

FILE_NAME = "holdfast.toml"
TABLES = ("worker", "serve", "web")
TABLES_OF_BUILDS = ("builds", "projects")  # known, and read by the part that builds
VARIABLES = {"web.public_url": "HOLDFAST_PUBLIC_URL"}  # of a key whose variable is not named after it
PUBLIC_URL = re.compile(r"(?P<origin>(?P<scheme>https?)://([a-z0-9_.-]+|\[[0-9a-f:.]+\]))(:(?P<port>[0-9]{1,5}))?/?")
PORTS = {"http": 80, "https": 443}
LONGEST = 1000 * 365 * 86400.0  # seconds; much more leads out of the calendar

OF_THE_APP = ("url", "instance", "heartbeat", "lost_after", "archive_after", "archive_keep")


class Settings(Struct, frozen=True):
    """What the surroundings say; None where they say nothing."""

    url: str | None = None
    instance: str | None = None
    heartbeat: float | None = None
    lost_after: float | None = None
    archive_after: float | None = None
    archive_keep: float | None = None
    worker_queues: tuple[str, ...] | None = None
    worker_labels: tuple[str, ...] | None = None
    worker_duties: tuple[str, ...] | None = None
    worker_concurrency: int | None = None
    worker_processes: int | None = None
    worker_grace: float | None = None
    worker_log_level: str | None = None
    serve_host: str | None = None
    serve_port: int | None = None
    serve_allow_host: tuple[str, ...] | None = None
    serve_from: tuple[str, ...] | None = None  # addresses of proxies, or networks
    web_public_url: str | None = None
    web_session_lifetime: float | None = None
    web_session_idle_timeout: float | None = None

    def environment(self) -> dict[str, str]:
        """As the variables that an `App` reads where its code gives nothing."""
        values = {name: getattr(self, name) for name in OF_THE_APP}
        return {_variable(name): str(value) for name, value in values.items() if value is not None}


def load(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> Settings:
    """The settings in force. `flags` are by name, None where one was not given."""
    text = None if file is None else _read(file)
    return resolve(flags, environment, text, str(file))


def locate(given: Path | None, folder: Path) -> Path | None:
    """The file to read: the given one, else the folder's own if it has one."""
    if given is not None:
        if not os.path.isfile(given):
            raise Invalid(f"--config: there is no file {shown_path(given)}. Correct the path, or leave --config out.")
        return given
    own = folder / FILE_NAME
    return own if own.is_file() else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{shown_path(file)} cannot be read: {reason(error)}.") from error


def resolve(flags: Mapping[str, Any], environment: Mapping[str, str], text: str | None, file: str) -> Settings:
    """`load` without I/O: `text` is what stands in the file."""
    values = {} if text is None else _from_file(text, file)
    for key, check in KNOWN.items():
        variable = variable_of(key)
        if environment.get(variable):
            values[_name(key)] = check(environment[variable], f"Environment variable {variable}")
    for key, check in KNOWN.items():
        if flags.get(_name(key)) is not None:
            flag = "--" + key.rpartition(".")[2].replace("_", "-")
            values[_name(key)] = check(flags[_name(key)], flag)
    return Settings(**values)


def _from_file(text: str, file: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{file} is not valid TOML: {error}.") from error
    values = {}
    for key, value in _flat(content):
        if key not in KNOWN:
            raise Invalid(f"{file}: unknown key {backticked(key)}; the nearest known one is `{_nearest(key)}`.")
        values[_name(key)] = KNOWN[key](value, f"{file}: `{key}`")
    return values


def _flat(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each key, with its table before it."""
    for key, value in content.items():
        if key in TABLES and isinstance(value, dict):
            yield from ((f"{key}.{inner}", below) for inner, below in value.items())
        elif key not in TABLES_OF_BUILDS:
            yield key, value


def _nearest(key: str) -> str:
    def likeness(known: str) -> float:
        leaves = key.rpartition(".")[2], known.rpartition(".")[2]
        return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in ((key, known), leaves))

    return max((*KNOWN, *TABLES_OF_BUILDS), key=likeness)


def _name(key: str) -> str:
    return key.replace(".", "_")


def variable_of(key: str) -> str:
    """The environment variable of a key of the file."""
    return VARIABLES.get(key, _variable(_name(key)))


def _variable(name: str) -> str:
    return f"HOLDFAST_{name.upper()}"


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Invalid(f"{where} is {quoted(value)}; give a text that is not empty.")
    return value


def _url(value: Any, where: str) -> str:
    """Without a quotation: it may hold a password, wherever it stands."""
    if not isinstance(value, str) or not value.strip():
        raise Invalid(f"{where} is {'empty' if value == '' else 'no text'}; give the URL of a database.")
    return value


def _seconds(value: Any, where: str) -> float:
    seconds = _number(value)
    if not 0 < seconds < math.inf:
        raise Invalid(f"{where} is {quoted(value)}; give a number of seconds above 0.")
    return seconds


def _patience(value: Any, where: str) -> float:
    seconds = _number(value)
    if not 0 <= seconds < math.inf:
        raise Invalid(f"{where} is {quoted(value)}; give a number of seconds, 0 or more.")
    return seconds


def _count(value: Any, where: str) -> int:
    number = _number(value)
    if not (1 <= number < math.inf and number.is_integer()):
        raise Invalid(f"{where} is {quoted(value)}; give a whole number, 1 or more.")
    return int(number)


def _port(value: Any, where: str) -> int:
    number = _number(value)
    if not (0 <= number < 65536 and number.is_integer()):
        raise Invalid(f"{where} is {quoted(value)}; give a port, 0 to 65535 (0: any that is free).")
    return int(number)


def _number(value: Any) -> float:
    """A number, also where the environment has it as text; not-a-number for anything else."""
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _lifetime(value: Any, where: str) -> float:
    seconds = _seconds(value, where)
    if seconds > LONGEST:
        raise Invalid(f"{where} is {quoted(value)}; give at most {LONGEST:.0f} seconds, a thousand years.")
    return seconds


def _public_url(value: Any, where: str) -> str:
    """In lower case, without a port that the scheme has anyway."""
    found = PUBLIC_URL.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if found is None or int(found["port"] or 1) not in range(1, 65536):
        raise Invalid(
            f"{where} is no address of a server; give scheme and host, and the port if it is not the usual one, but no path: "
            "`https://jobs.example.com`."
        )
    usual = found["port"] is None or int(found["port"]) == PORTS[found["scheme"]]
    return found["origin"] if usual else f"{found['origin']}:{int(found['port'])}"


def _words(value: Any, where: str) -> tuple[str, ...]:
    """A list of names, or names with commas between them."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise Invalid(f"{where} is {quoted(value)}; give a list of names.")
    words = tuple(word.strip() for part in parts for word in part.split(","))
    if not all(words):
        raise Invalid(f"{where} is {quoted(value)}, in which a name is empty.")
    return words


def _networks(value: Any, where: str) -> tuple[str, ...]:
    """Addresses of machines, or networks of them."""
    words = _words(value, where)
    for word in words:
        try:
            ipaddress.ip_network(word, strict=False)
        except ValueError:
            raise Invalid(
                f"{where}: {word!r} is no address. Give one as 10.0.0.5, or a network as 10.0.0.0/8."
            ) from None
    return words


KNOWN: Mapping[str, Callable[[Any, str], Any]] = {
    "url": _url,
    "instance": _text,
    "heartbeat": _seconds,
    "lost_after": _seconds,
    "archive_after": _seconds,
    "archive_keep": _seconds,
    "worker.queues": _words,
    "worker.labels": _words,
    "worker.duties": _words,
    "worker.concurrency": _count,
    "worker.processes": _count,
    "worker.grace": _patience,
    "worker.log_level": _text,
    "serve.host": _text,
    "serve.port": _port,
    "serve.allow_host": _words,
    "serve.from": _networks,
    "web.public_url": _public_url,
    "web.session_lifetime": _lifetime,
    "web.session_idle_timeout": _lifetime,
}
