"""An app with something of everything, and the making of it."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from holdfast import WAIT, Adaptive, App, Failed, Invalid, current_job
from holdfast.clock import Clock, MovableClock, microseconds
from holdfast.jobs.job import Job
from holdfast.routines import RoutineTurn
from holdfast.stores.contract import NewToken
from tests.raw_sql import RawSql

HOUR, WEEK = 3600.0, 7 * 86400.0
FILL_LASTS = WEEK + 1
NUMBERS = 6


def make_shop(url: str, name: str, clock: Clock | None = None, **settings: Any) -> App:
    """The same app wherever it is."""
    app = App(url, name=name, clock=clock, **settings)
    mail, calls = app.queue("mail"), app.queue("calls", throttle_limit=1, order="schedule")
    app.queue("quota", throttle_limit=3)

    @mail.job(retries=1)
    def send(to: str) -> str:
        current_job().log("sending")
        current_job().checkpoint = {"to": to}
        current_job().progress(0.5, "half")
        return to

    @mail.job(retries=0)
    def break_(text: str = "é\\\t\n'broken'") -> None:
        raise ValueError(text)

    @mail.job(retries=0)
    def refuse() -> None:
        raise Failed("as expected")

    @mail.job(retries=5, retry=Adaptive(breaker=1, probe=HOUR))
    def fetch() -> None:
        raise OSError("away")

    @calls.job(timeout=WEEK)
    def call(number: int) -> int:
        return number

    @calls.job(timeout=WEEK)
    def ask(question: str) -> object:
        return WAIT

    @ask.response_handler
    def answered(job: Any, response: Any) -> str:
        return f"they say {response}"

    app.schedule("hourly", every=HOUR, job=send, payload={"to": "at {time}"})

    @app.routine(every=HOUR)
    def walk(turn: RoutineTurn) -> None:
        turn.checkpoint = {"turn": turn.number}

    make_report(app)

    @app.workflow("other").step()
    def only(task: Any) -> None: ...

    return app


def make_report(app: App) -> None:
    report = app.workflow("report", params={"day": "monday"})

    def numbers(task: Any, cursor: int | None) -> Iterator[tuple[int, int]]:
        for number in range(0 if cursor is None else cursor + 1, NUMBERS):
            yield number, number

    @report.step()
    def prep(task: Any) -> None:
        task.publish(rows=NUMBERS)

    @report.step(after=["prep"], items=numbers, max_undone=2)
    def each(task: Any) -> int:
        assert task.params["rows"] == NUMBERS
        return int(task.item)

    @report.step(after=["each"])
    def last(task: Any) -> None: ...


class Filled(Struct, frozen=True):
    """Jobs that have to come to a good end, wherever that is."""

    asked: Job  # waits for an answer
    early: Job  # was answered before it asked
    later: Job
    queued: list[Job]


def fill(app: App, sql: RawSql, clock: MovableClock) -> None:
    """Something of everything. The clock moves on by `FILL_LASTS`."""
    types = app.job_types
    app.workflows["report"].submit(trigger="old")
    types["send"].using(job_key="old").enqueue(to="ann")
    types["break_"].enqueue()
    types["refuse"].enqueue()
    app.run_until_idle()
    clock.advance(FILL_LASTS)
    assert app.store.archive_runs(WEEK)
    while app.store.archive(WEEK):
        pass
    for job_type in ("fetch", "break_"):
        types[job_type].enqueue()
    asked = types["ask"].using(job_key="q1").enqueue(question="why?")
    app.run_until_idle()
    app.workflows["report"].submit(trigger="new")
    with pytest.raises(Invalid):
        app.run_until_idle(max_jobs=4)  # half-way; the next job is handed back
    types["ask"].using(job_key="q2").enqueue(question="when?")
    app.complete("ask", "q2", result="soon")
    types["call"].using(delay=HOUR / 2, priority=3).enqueue(number=7)
    for number in (2, 1, 3):
        types["call"].using(priority=number).enqueue(number=number)
    app.pause("mail")
    app.limit("calls", 2)
    app.hold("pick", workflow="other")
    app.store.identity()
    app.store.add_token(NewToken(name="ci", hash="0" * 64, scope="read", queues=("mail",)), "ann")
    app.store.add_server("http://localhost:8765")
    rest(sql, clock.now() if sql.postgres else microseconds(clock.now()), asked.id)


def find_filled(app: App) -> Filled:
    """What `fill` has left."""
    (asked,), (early,) = (app.find(job_type="ask", job_key=key) for key in ("q1", "q2"))
    *queued, later = app.find(job_type="call")
    assert len(queued) == 3
    return Filled(asked, early, later, queued[::-1])


def rest(sql: RawSql, now: object, job: int) -> None:
    """Rows of tables that only traffic, forges and tracing would fill."""
    sql("insert into {bucket} (queue, tokens, update_time) values ('quota', 1.5, :now)", now=now)
    sql("insert into {trace} (job, context) values (:job, '{}')", job=job)
    sql(
        "insert into {request} (owner, key, print, job, duplicate, create_time) values ('ann', 'k', 'p', :job, :flag, :now)",
        job=job,
        flag=True,
        now=now,
    )
    sql(
        "insert into {build} (project, commit_id, ref, forge, trusted, title, author, tells, use_time, create_time, update_time) "
        "values ('p', 'c', 'r', 'github', :flag, 't', 'a', :flag, :now, :now, :now)",
        flag=True,
        now=now,
    )
    sql(
        "insert into {delivery} (project, forge, id, build, receive_time) values ('p', 'github', 'd', 1, :now)", now=now
    )
    sql("insert into {default_branch} (project, branch) values ('p', 'main')")
    sql("insert into {hook_body} (project, digest, build, receive_time) values ('p', 'd', 1, :now)", now=now)
    sql("insert into {pull_request} (project, number, labels, change_time) values ('p', 7, '[\"wip\"]', :now)", now=now)
    sql(
        "insert into {build_ref} (build, project, ref, branch, ask_time) values (1, 'p', 'refs/heads/main', 'main', :now)",
        now=now,
    )
    sql(
        "insert into {status} (build, state, description, create_time) values (1, 'pending', 'd', :now)",
        now=now,
    )
    sql(
        "insert into {duty} (duty, \"on\", label, actor, create_time) values ('run', :flag, 'none', 'ann', :now)",
        flag=False,
        now=now,
    )
