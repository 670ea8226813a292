"""Reads what names a database: a URL, a mapping, or that mapping as JSON. Nothing here does I/O.

- An error never quotes the input, for a malformed URL may hold its password anywhere. It says the scheme and the mistake.
- Views show `shown(config)`: no password, and nothing at all of what cannot be read.
- A PostgreSQL URL is divided as libpq does it: the first `@` before the first `/` ends user and password.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Self
from urllib.parse import unquote

from msgspec import Struct

from holdfast.errors import Invalid

Config = str | Mapping[str, Any]
FORMS = "Write sqlite:///file.db, sqlite:////absolute/file.db, sqlite://:memory: or postgresql://user:password@host:5432/database."
POSTGRESQL = ("postgresql", "postgres")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}")
SERVER = re.compile(r"[^/]*:[^/]*@")  # at the beginning of a path: user, password and host
HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%25[\w.]+)?\]|[^\[\]:@]*)(?::(?P<port>[^:@\[\]]*))?")
PARAMETER = re.compile(r"[A-Za-z_]+=[^=&]*")
NOT_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
PLAIN = re.compile(r"[\w.,:/%\[\]-]+")  # what names, addresses and paths are written with
HIDDEN = "…"


class ServerUrl(Struct, frozen=True):
    """The parts of a PostgreSQL URL as they are written, without a check."""

    user: str
    password: str | None
    hosts: str
    database: str
    parameters: str

    @classmethod
    def of(cls, rest: str) -> Self:
        """Divide the part after `://`."""
        before, at, after = rest.partition("@")
        login, place = (before, after) if at and "/" not in before else ("", rest)
        user, colon, password = login.partition(":")
        place, _, parameters = place.partition("?")
        hosts, _, database = place.partition("/")
        return cls(user, password if colon else None, hosts, database, parameters)

    def mistakes(self) -> Iterator[str]:
        """What libpq would refuse or take for something else, in words that quote nothing."""
        if any(NOT_ENCODED.search(part) for part in (self.user, self.password or "", *self._others())):
            yield "a `%` in it is not followed by two hexadecimal digits. Write `%25` for a `%`"
        if any("@" in part for part in (self.hosts, self.database)):
            yield "there is an `@` after the host. Write `%40` for an `@` and `%2F` for a `/` in a user or password"
        found = [HOST.fullmatch(host) for host in self.hosts.split(",")]
        if not all(found):
            yield "its host is not a name, an address or an IPv6 address in brackets"
        ports = [each["port"] for each in found if each is not None and each["port"]]
        if not all(port.isascii() and port.isdigit() and int(port) < 65536 for port in ports):
            yield "its port is not a number from 1 to 65535. Write `%2F` for a `/` in a user or password"
        if self.parameters and not all(map(PARAMETER.fullmatch, self.parameters.split("&"))):
            yield "a parameter after its `?` is not `name=value`"

    def _others(self) -> tuple[str, str, str]:
        return self.hosts, self.database, self.parameters


def resolve(config: Config) -> tuple[str, str]:
    """`sqlite` and a path, or `postgresql` and a connection string. `Invalid` if it is neither."""
    if isinstance(config, str) and config.lstrip().startswith("{"):
        config = _from_json(config)
    if isinstance(config, Mapping):
        return _from_mapping(dict(config))
    if not isinstance(config, str):
        raise Invalid(f"A database is a URL or a mapping, not {type(config).__qualname__}. {FORMS}")
    scheme, found, rest = config.partition("://")
    if not found or not SCHEME.fullmatch(scheme):
        raise Invalid(f"This is not a database URL: it does not begin with a scheme and `://`. {FORMS}")
    if scheme == "sqlite":
        return "sqlite", _sqlite_path(rest)
    if scheme in POSTGRESQL:
        for mistake in ServerUrl.of(rest).mistakes():
            raise Invalid(f"The PostgreSQL URL is not valid: {mistake}. {FORMS}")
        return "postgresql", "postgresql://" + rest
    raise Invalid(f"The database URL begins with `{scheme}`, which Holdfast does not speak. {FORMS}")


def shown(config: Config) -> str:
    """The database as views name it."""
    try:
        kind, where = resolve(config)
    except Invalid:
        return HIDDEN
    if kind == "sqlite":
        return "sqlite://:memory:" if where == ":memory:" else f"sqlite:///{where}"
    login, hosts, database, parameters = _parts(config)
    return f"postgresql://{login}{hosts}{'/' + database if database else ''}{'?' + parameters if parameters else ''}"


def passwords(config: Config) -> tuple[str, ...]:
    """Its passwords, as they are meant and as they are written. One that is the user's or the database's name is none."""
    return tuple(dict.fromkeys(password for password in _passwords(config) if password))


def _passwords(config: Config) -> Iterator[str]:
    found = _mapping_of(config)
    if found is not None:
        names = {str(found.get(name)) for name in ("user", "database", "dbname")}
        given = [str(value) for key, value in found.items() if "password" in key]
        nested = passwords(found["url"]) if isinstance(found.get("url"), str) else ()
        yield from (*(each for each in given if each not in names), *nested)
    elif isinstance(config, str) and config.partition("://")[0] in POSTGRESQL:
        url = ServerUrl.of(config.partition("://")[2])
        pairs = [pair.partition("=") for pair in url.parameters.split("&")]
        written = [url.password or "", *(value for key, _, value in pairs if "password" in key)]
        for each in written:
            if each not in (url.user, url.database):
                yield from (unquote(each), each)


def _mapping_of(config: Config) -> Mapping[str, Any] | None:
    if isinstance(config, str) and config.lstrip().startswith("{"):
        try:
            return _from_json(config)
        except Invalid:
            return None
    return config if isinstance(config, Mapping) else None


def _parts(config: Config) -> tuple[str, str, str, str]:
    """Login, hosts, database and parameters of a PostgreSQL server, as far as they are plain."""
    found = _mapping_of(config)
    if found is not None and "url" in found:
        return _parts(found["url"])
    if found is not None:
        port = f":{found['port']}" if found.get("port") else ""
        hosts, parameters = f"{found.get('host', '')}{port}", ""
        user, password, database = (str(found.get(name) or "") for name in ("user", "password", "database"))
    else:
        url = ServerUrl.of(str(config).partition("://")[2])
        user, password, hosts, database = url.user, url.password or "", url.hosts, url.database
        parameters = "&".join(map(_parameter, filter(None, url.parameters.split("&"))))
    login = f"{_plain(user)}{':' + HIDDEN if password else ''}@" if user or password else ""
    return login, _plain(hosts), _plain(database), parameters


def _plain(name: str) -> str:
    return name if not name or PLAIN.fullmatch(name) else HIDDEN


def _parameter(written: str) -> str:
    name, _, value = written.partition("=")
    return f"{name}={HIDDEN if 'password' in name else _plain(value)}"


def _from_json(text: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        # Without the cause, which has the text.
        raise Invalid(f"The database JSON cannot be read: {_where(error)}. {FORMS}") from None
    return found


def _where(error: Exception) -> str:
    return f"{error.msg} in column {error.colno}" if isinstance(error, json.JSONDecodeError) else "it is too deep"


def _sqlite_path(rest: str) -> str:
    if rest in (":memory:", "/:memory:"):
        return ":memory:"
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path or "\0" in path:
        raise Invalid(f"The URL names no SQLite file. {FORMS}")
    if SERVER.match(path):
        raise Invalid(f"The SQLite URL has a user, a password and a host, and SQLite has a file. {FORMS}")
    return path


def _from_mapping(config: dict[str, Any]) -> tuple[str, str]:
    """`{"database": "shop", "host": "…"}`; with `"engine": "sqlite"` the database is a file."""
    engine = config.pop("engine", "postgresql")
    if "url" in config:
        return resolve(config["url"])
    if not config.get("database"):
        raise Invalid('A database mapping must name a "database".')
    if engine == "sqlite":
        return "sqlite", str(config["database"])
    config["dbname"] = config.pop("database")
    pairs = (f"{key}='" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'" for key, value in config.items())
    return "postgresql", " ".join(pairs)
