"""The first page: how fast, how full, how late, and what is wrong."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from litestar import Router
from msgspec import Struct

from holdfast.stores.contract import Glance, Store, WorkerRow
from holdfast.web.pages.page import Html, TheFrame, page
from holdfast.web.site import TheSite
from holdfast.web.trend import Trend, spread
from holdfast.web.trouble import Known, troubles

RUNS = 8
LATELY = timedelta(hours=1)
PARTS_OF_AN_HOUR = 60


class Total(Struct, frozen=True):
    """All queues together."""

    rate: float
    rates: list[float]
    dead: int
    deaths: list[float]
    due: int
    later: int
    running: int
    slots: int
    due_since: Any
    about: frozenset[str]


@page("/")
def overview(frame: TheFrame, site: TheSite) -> Html:
    with site.reader() as store:
        known = read(store)
        runs = store.runs(limit=RUNS)
    seen, trend = known.seen, site.trend
    trend.take(seen)
    return frame.show(
        "overview.html",
        seen.time,
        seen=seen,
        total=total(seen, known.workers, trend),
        rates={load.name: trend.rates(seen.time, load.name) for load in seen.queues},
        troubles=troubles(known),
        workers=known.workers,
        runs=runs,
    )


def read(store: Store) -> Known:
    """Everything that tells what is wrong."""
    return Known(
        seen=store.glance(),
        workers=store.workers(),
        breakers=store.breakers(),
        schedules=store.schedules(),
        runs=[*store.runs(state="STUCK", limit=5), *store.runs(state="ERROR", limit=5)],
    )


def total(seen: Glance, workers: Sequence[WorkerRow], trend: Trend) -> Total:
    waited = [load.due_since for load in seen.queues if load.due_since is not None]
    return Total(
        rate=sum(load.ended_per_second for load in seen.queues),
        rates=trend.rates(seen.time),
        dead=sum(load.dead for load in seen.queues),
        deaths=spread(seen.deaths, seen.time, LATELY, PARTS_OF_AN_HOUR),
        due=sum(load.ready + load.parked + load.aside for load in seen.queues),
        later=sum(load.waiting for load in seen.queues),
        running=sum(load.running for load in seen.queues),
        slots=sum(worker.concurrency for worker in workers),
        due_since=min(waited, default=None),
        about=frozenset(name for load in seen.queues for name in load.about),
    )


router = Router("/", route_handlers=[overview])
