"""Everything that an operator does leaves an audit row with its actor: over HTTP, on the pages, on the command line.

What is new and in neither table fails here: give it a request that is granted, and see that it is written down.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from holdfast import App
from holdfast.cli import commands
from tests.cli.terminal import Call
from tests.raw_sql import RawSql
from tests.web.conftest import Browser, Client
from tests.web.furnished import API, Deed, Furnished, Route, routes

OPERATES = ("operate", "admin")
NAMED = {
    f"POST {API}/jobs/{{job_id}}/abort": "abort",
    f"POST {API}/jobs/{{job_id}}/retry": "retry",
    f"POST {API}/jobs/{{job_id}}/complete": "complete",
    f"POST {API}/queues/{{queue}}/pause": "pause",
    f"PATCH {API}/queues/{{queue}}": "limit",
    f"POST {API}/schedules/{{name}}/fire": "fire_schedule",
    f"DELETE {API}/schedules/{{name}}": "remove_schedule",
    f"POST {API}/workflows/{{workflow}}": "submit",
    f"DELETE {API}/workflows/{{workflow}}/{{trigger}}": "delete",
    f"POST {API}/builds/{{build_id}}/abort": "abort",
    f"POST {API}/builds/{{build_id}}/retry": "retry",
}
LOOKS = {  # or run what has an end of its own
    *(f"jobs {verb}" for verb in ("list", "show", "history", "attempts", "log", "tail", "explain")),
    *(f"workflows {verb}" for verb in ("list", "show", "tasks", "explain", "holds", "watch")),
    *(f"builds {verb}" for verb in ("list", "show", "run", "log")),
    *("queues list", "queues breakers", "routines list", "routines show", "schedules list", "schedules history"),
    *("tokens list", "workers list", "top", "doctor", "version", "bench", "simulate", "demo", "dev", "worker", "serve"),
}
UNSIGNED = {
    "jobs enqueue": "a job is what programs add; its history begins with it",
    "hooks send": "is a forge; what it asks for is audited as the hook's",
    "migrate": "before it there may be no audit; the instance tells its version",
    "move": "has a table of its own, in both databases",
}


def rows(sql: RawSql, after: int = 0) -> list[dict[str, Any]]:
    return sql("select * from {audit} where id > :after order by id", after=after)


def last(sql: RawSql) -> int:
    return max((row["id"] for row in rows(sql)), default=0)


@pytest.mark.parametrize("who", ["token:tests", "session:app"])
def test_whatever_changes_something_over_http_is_audited(
    furnished: Furnished, request: pytest.FixtureRequest, sql: RawSql, who: str
) -> None:
    client: Client = request.getfixturevalue("client") if who == "token:tests" else as_browser(request)
    known = {route.name: route for route in routes(furnished.app)}
    deeds = furnished.deeds()
    assert {name for name, route in known.items() if route.needs in OPERATES} <= deeds.keys()
    for name, deed in deeds.items():
        before, about = last(sql), about_what(furnished, known[name], deed)
        answer = request_of(client, known[name], deed)
        assert answer.status_code < 400, (name, answer.text)
        left = rows(sql, before)
        if known[name].needs in OPERATES or name in NAMED:
            assert {row["actor"] for row in left} == {who}, name
            assert any(tells(row, about) for row in left), (name, about, left)
        assert NAMED.get(name, "") in {"", *(row["action"] for row in left)}, name


def about_what(furnished: Furnished, route: Route, deed: Deed) -> str:
    """What the row has to name: of a build its job; nothing where a request names nothing, or a key."""
    if route.noun == "builds":
        return str(furnished.yard.projects.look(int(deed.row[0])).job_id)
    return str(deed.row[-1]) if deed.row and "job_key" not in deed.body else ""


def tells(row: dict[str, Any], about: str) -> bool:
    named = about in (str(row["job"]), row["queue"])
    return named or (not about.isdigit() and about in (row["detail"] or ""))


def as_browser(request: pytest.FixtureRequest) -> Client:
    browser: Browser = request.getfixturevalue("browser")
    browser.client.headers["X-CSRF-Token"] = browser.csrf_token
    return browser.client


def request_of(client: Client, route: Route, deed: Deed) -> Any:
    sent = {"json": deed.body} if route.path.startswith(API) else {"data": deed.body}
    body: Any = sent if deed.body else {}
    return client.request(route.method, route.address(deed.row), follow_redirects=False, **body)


def test_whatever_changes_something_on_the_command_line_is_audited(
    furnished: Furnished, cli: Call, sql: RawSql, url: str, instance: str
) -> None:
    acts = commands_of(furnished)
    tried = {words[0] if words[0] in ("archive", "login-link") else f"{words[0]} {words[1]}" for words in acts}
    assert tried | LOOKS | UNSIGNED.keys() == {*every_command()}
    for words in acts:
        before = last(sql)
        answer = cli(*words, "--url", url, "--instance", instance)
        assert answer.code == 0, (words, answer.err)
        left = rows(sql, before)
        assert left, words
        assert all(row["actor"].startswith("cli:") for row in left), words


def every_command() -> Iterator[str]:
    root: Any = typer.main.get_command(commands())
    for name, found in root.commands.items():
        yield from (f"{name} {verb}" for verb in found.commands) if hasattr(found, "commands") else [name]


def commands_of(furnished: Furnished) -> list[tuple[object, ...]]:
    """Every command that changes something, with what it takes."""
    app, asks = furnished.app, furnished.asks
    poll(app)
    return [
        ("jobs", "complete", asks[1].id),
        ("jobs", "complete", "ask", asks[2].job_key),
        ("jobs", "fail", asks[3].id),
        ("jobs", "abort", furnished.new_job()),
        ("jobs", "retry", furnished.new_job(over=True)),
        ("queues", "pause", "slow"),
        ("queues", "resume", "slow"),
        ("queues", "limit", "slow", 4),
        ("queues", "reset", "stagger"),
        ("schedules", "add", "daily", "mail", "send", '{"to": "a"}', "--every", 86400),
        ("schedules", "fire", "nightly"),
        ("schedules", "remove", "nightly"),
        ("schedules", "add", "nightly", "--declared"),
        ("workflows", "submit", "report", "friday"),
        ("workflows", "retry", *furnished.new_run(over=True)),
        ("workflows", "abort", *furnished.new_run()),
        ("workflows", "archive", *furnished.new_run(over=True)),
        ("workflows", "delete", *furnished.new_run(over=True)),
        ("workflows", "hold", "pick", "report"),
        ("workflows", "release", "pick", "report"),
        ("builds", "abort", furnished.new_build()),
        ("builds", "retry", furnished.new_build(over=True)),
        ("routines", "pause", "poll"),
        ("routines", "resume", "poll"),
        ("routines", "remove", "poll"),
        ("tokens", "create", "ci"),
        ("tokens", "revoke", "ci"),
        ("login-link", "--public-url", "https://jobs.example.com"),
        ("tokens", "revoke", "--sessions"),
        ("workers", "duty", "off", "sweep"),
        ("workers", "duty", "remove", 1),
        ("archive", "--older-than", "300d", "--keep", "300d"),
    ]


def poll(app: App) -> None:
    app.routine(every=3600, queue="mail", name="poll")(lambda turn: None)
    app.store.queues()
