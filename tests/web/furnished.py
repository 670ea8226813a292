"""An instance in which something of everything exists, and for each route that changes something a request that it grants.

- `places` are the names and ids that a route's path can have; those of `over` go on no more, so that their streams end.
- `deeds` has the routes by method and path. What is not in it, nobody has tried: a sweep over all routes fails.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from holdfast import Adaptive, App, current_job
from holdfast.builds.project import Secret
from holdfast.clock import MovableClock
from holdfast.web.app import create
from tests.builds.making import Repository
from tests.builds.yard import Yard
from tests.by_hand import WorkerByHand
from tests.raw_sql import RawSql

API = "/api/v1"
ENDLESS = f"{API}/events"  # the only stream of which nothing is ever over
BUILD = """
[steps.compile]
run = ["echo done > report.txt"]
outputs = { report = "report.txt" }
"""
WEEK = 7 * 86400.0
TABLES = {
    True: "select tablename as name from pg_tables where schemaname = current_schema()",
    False: "select name from sqlite_master where type = 'table'",
}
USED = "use_time"  # of a build: to look at it is use, which keeps it cached (B3)
Row = tuple[int | str, ...]


class Route(Struct, frozen=True):
    """A method of a path, and the scope it needs."""

    method: str
    path: str
    needs: str | None

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def noun(self) -> str:
        return self.path.removeprefix(API).split("/")[1]

    @property
    def streams(self) -> bool:
        return self.path.endswith("/events") or self.path == f"{API}/builds/{{build_id}}/log"

    def parameters(self, row: Row) -> dict[str, int | str]:
        """The parameters of the path by name."""
        return dict(zip(re.findall(r"\{(\w+)\}", self.path), row, strict=False))

    def address(self, row: Row) -> str:
        found = self.path
        for name, value in self.parameters(row).items():
            found = found.replace(f"{{{name}}}", quote(str(value), safe=""))
        return found


class Deed(Struct, frozen=True):
    """What to fill a path with, and the body or form that goes with it."""

    row: Row = ()
    body: dict[str, Any] = {}


def routes(app: App) -> Iterator[Route]:
    """Everything that is served, but for what a framework answers to OPTIONS."""
    inner: Any = create(app)
    for route in inner.inner.routes:
        path = re.sub(r":\w+\}", "}", route.path)
        for handler in getattr(route, "route_handlers", ()):
            for method in sorted(handler.http_methods - {"OPTIONS"}):
                yield Route(method, path, handler.opt.get("needs"))


def everything(sql: RawSql) -> dict[str, list[str]]:
    """The content of all tables, but for when builds were looked at."""
    names = sorted(row["name"] for row in sql(TABLES[sql.postgres]) if not row["name"].startswith("sqlite_"))
    return {name: sorted(str({**row, USED: None}) for row in sql(f'select * from "{name}"')) for name in names}


class Furnished:
    """A shop with jobs in all states, runs, schedules, builds, a worker and a hold."""

    def __init__(self, shop: App, clock: MovableClock, folder: Path) -> None:
        self.app = shop
        self._declare()
        folder.mkdir()
        hooks = {name: Secret("HOOK_SECRET") for name in ("github", "gitlab", "gitea", "generic")}
        self.yard = Yard(shop, folder, Repository(folder / "repository"), hooks=hooks)
        self.types, self.report = shop.job_types, shop.workflows["report"]
        self._commits = (f"{number:040x}" for number in range(1, 10_000))
        done, dead, runs = self._furnish_what_is_over(clock)
        living = self._furnish_what_goes_on()
        self.over: dict[str, list[Row]] = {
            "jobs": [(job,) for job in (*done, *dead)],
            "workflows": [("report", runs[0], "prepare"), ("report", runs[1], "count"), ("frail", runs[1], "crack")],
            "builds": [(self.built, "report"), (self.called_off, "report")],
        }
        self.known: dict[str, list[Row]] = self.over | {
            "jobs": [*self.over["jobs"], *((job,) for job in living)],
            "workflows": [*self.over["workflows"], ("report", "wednesday", "prepare")],
            "builds": [*self.over["builds"], (self.asked, "report")],
            "queues": [("mail",), ("slow",), ("builds",)],
            "types": [("ask",), ("send",), ("build",)],
            "breakers": [("stagger",)],
            "schedules": [("nightly",), ("weekly",)],
            "static": [("holdfast.css",), ("holdfast.js",)],
            "badges": [("demo.svg",)],
            "links": [("demo",)],
            "hooks": [("github", "demo"), ("gitlab", "demo")],
        }

    def places(self, route: Route) -> list[Row]:
        """What the path of a route can be filled with; of streams what ends."""
        if "{" not in route.path:
            return [()]
        known = self.over if route.streams else self.known
        count = route.path.count("{")
        return list(dict.fromkeys(row[:count] for row in known[route.noun]))

    def _declare(self) -> None:
        mail = self.app.queue("mail")

        @mail.job(retry=Adaptive())
        def stagger() -> None:
            raise ValueError("staggered")

        @mail.job()
        def chatter() -> None:
            current_job().progress(0.5, "half")
            for number in range(3):
                current_job().log(f"line {number}")

        mail.job(name="carry")(lambda: None)
        frail = self.app.workflow("frail")

        @frail.step(retries=0)
        def crack(task: Any) -> None:
            raise ValueError("cracked")

        frail.step(name="glue", after=["crack"])(lambda task: None)

    def _furnish_what_is_over(self, clock: MovableClock) -> tuple[list[int], list[int], list[str]]:
        old = self.types["send"].using(job_key="old").enqueue(to="old")
        self.report.submit("sunday")
        self.app.run_until_idle()
        clock.advance(WEEK + 1)
        assert self.app.store.archive(WEEK)
        assert self.app.store.archive_runs(WEEK)
        sent, talked = self.types["send"].using(job_key="k-1").enqueue(to="ada"), self.types["chatter"].enqueue()
        refused, aborted = self.types["refuse"].enqueue(why="no"), self.types["ask"].enqueue()
        self.app.abort(aborted.id)
        self.staggered = self.types["stagger"].enqueue()
        self.asks = [self.types["ask"].using(job_key=f"ask-{number}").enqueue() for number in range(5)]
        self.report.submit("monday")
        self.app.submit("frail", "monday")
        self.built = self.yard.ask(self.yard.repository.commit(BUILD), title="One").build.id
        self.app.run_until_idle()
        return [old.id, sent.id, talked.id], [refused.id, aborted.id], ["sunday", "monday"]

    def _furnish_what_goes_on(self) -> list[int]:
        due, late = (self.types["send"].using(delay=delay).enqueue(to="b") for delay in (0, 3600))
        carried = self.types["carry"].using(priority=-1).enqueue()
        self.worker = WorkerByHand(self.app.store, types=("carry",))
        assert self.worker.claim_one().id == carried.id
        self.report.submit("wednesday")
        self.app.hold("create", workflow="frail")
        self.app.fire_schedule("nightly")
        self.app.add_schedule("weekly", queue="mail", job_type="send", every=WEEK, payload={"to": "all"})
        self.asked, self.called_off = self.new_build(), self.new_build()
        self.yard.projects.abort(self.called_off)
        self.yard.projects.sweep(self.app.store, everything=True)  # a server does, and must find nothing to do
        return [job.id for job in (due, late, carried, self.staggered, self.asks[0])]

    def new_build(self, over: bool = False) -> int:
        """One that waits for a builder, or was called off."""
        made = self.yard.ask(next(self._commits)).build.id
        if over:
            self.yard.projects.abort(made)
        return made

    def new_job(self, over: bool = False) -> int:
        made = self.types["send"].enqueue(to="c")
        if over:
            self.app.abort(made.id)
        return made.id

    def new_run(self, over: bool = False) -> Row:
        trigger = f"run-{next(self._commits)}"
        made = self.report.submit(trigger)
        if over:
            made.abort()
        return "report", trigger

    def deeds(self) -> dict[str, Deed]:
        """A request for each route that changes something, by its name; to be made in this order, once each."""
        return self._deeds_of_programs() | self._deeds_of_pages()

    def _deeds_of_programs(self) -> dict[str, Deed]:
        hold = {"level": "pick", "workflow": "report"}
        ask, asked = iter(self.asks[1:]), {"queue": "mail", "job_type": "send", "payload": {"to": "a"}}
        found = {
            "POST jobs": Deed(body=asked),
            "POST jobs/{job_id}/abort": Deed((self.new_job(),)),
            "POST jobs/{job_id}/retry": Deed((self.new_job(over=True),)),
            "POST jobs/{job_id}/complete": Deed((next(ask).id,), {"result": 1}),
            "POST jobs/{job_id}/fail": Deed((next(ask).id,), {"error": "no"}),
            "POST types/{job_type}/complete": Deed(("ask",), {"job_key": next(ask).job_key, "result": None}),
            "POST types/{job_type}/fail": Deed(("ask",), {"job_key": next(ask).job_key}),
            "POST queues/{queue}/pause": Deed(("slow",)),
            "POST queues/{queue}/resume": Deed(("slow",)),
            "PATCH queues/{queue}": Deed(("slow",), {"throttle_limit": 3}),
            "POST breakers/{job_type}/reset": Deed(("stagger",)),
            "POST workflows/{workflow}": Deed(("report",), {"trigger": "friday"}),
            "POST workflows/{workflow}/{trigger}/retry": Deed(self.new_run(over=True)),
            "POST workflows/{workflow}/{trigger}/abort": Deed(self.new_run()),
            "POST workflows/{workflow}/{trigger}/archive": Deed(self.new_run(over=True)),
            "DELETE workflows/{workflow}/{trigger}": Deed(self.new_run(over=True)),
            "POST holds": Deed(body=hold),
            "POST holds/release": Deed(body=hold),
            "PUT schedules/{name}": Deed(("daily",), {**asked, "every": 86400}),
            "POST schedules/{name}/fire": Deed(("nightly",)),
            "DELETE schedules/{name}": Deed(("nightly",)),
            "POST schedules/{name}/reset": Deed(("nightly",)),
            "POST builds/{build_id}/abort": Deed((self.new_build(),)),
            "POST builds/{build_id}/retry": Deed((self.new_build(over=True),)),
        }
        return {name.replace(" ", f" {API}/"): deed for name, deed in found.items()}

    def _deeds_of_pages(self) -> dict[str, Deed]:
        """With the answer to the question that some of them ask."""
        sure, hold = {"sure": "yes"}, {"level": "pick", "workflow": "report"}
        found = {
            "jobs/{job_id}/abort": Deed((self.new_job(),)),
            "jobs/{job_id}/retry": Deed((self.new_job(over=True),)),
            "jobs/together": Deed(body={**sure, "verb": "abort", "job_key": self.asks[0].job_key}),
            "queues/{queue}/pause": Deed(("mail",)),
            "queues/{queue}/resume": Deed(("mail",)),
            "queues/{queue}/limit": Deed(("mail",), {"limit": "7"}),
            "types/{job_type}/reset": Deed(("stagger",)),
            "workflows/{name}/{trigger}/retry": Deed(self.new_run(over=True)),
            "workflows/{name}/{trigger}/abort": Deed(self.new_run(), sure),
            "workflows/{name}/{trigger}/archive": Deed(self.new_run(over=True)),
            "workflows/{name}/{trigger}/delete": Deed(self.new_run(over=True), sure),
            "holds/hold": Deed(body=hold),
            "holds/release": Deed(body=hold),
            "schedules/{name}/fire": Deed(("nightly",)),
            "schedules/{name}/remove": Deed(("nightly",), sure),
            "schedules/{name}/reset": Deed(("nightly",)),
            "builds/{build_id}/abort": Deed((self.new_build(),)),
            "builds/{build_id}/retry": Deed((self.new_build(over=True),), sure),
            "logout": Deed(),
        }
        return {f"POST /{name}": deed for name, deed in found.items()}
