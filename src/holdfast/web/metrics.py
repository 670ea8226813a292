"""`/metrics`: what goes on, for Prometheus. It costs the same however many jobs there are."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from litestar import Response, Router
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from holdfast.stores.contract import Glance, RecentEnd, Store
from holdfast.version import VERSION
from holdfast.web.routes import look
from holdfast.web.site import TheSite

BREAKER_STATES = ("closed", "open", "probing")
QUEUE = {
    "ready": "Due jobs in line.",
    "waiting": "Jobs whose time has not come.",
    "parked": "Due jobs of types that no live worker handles.",
    "aside": "Due jobs that stand aside while their pool is full.",
    "held": "Tasks of workflows that somebody keeps from starting.",
    "running": "Jobs that run or wait for an answer.",
    "dead": "Jobs that ended otherwise than in success in the last hour.",
    "used": "Throttle factors of the jobs that run.",
    "throttle_limit": "The limit in force; below 1: none.",
    "ended_per_second": "Jobs that ended in a second, over the last few.",
}
QUANTILES = (0.5, 0.9, 0.99)


@look("/metrics", include_in_schema=False)
def metrics(site: TheSite) -> Response[bytes]:
    """Everything at this moment."""
    registry = CollectorRegistry()
    with site.reader() as store:
        registry.register(Families(list(families(store))))
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class Families(Collector):
    """Metrics that are known already."""

    def __init__(self, known: list[Metric]) -> None:
        self.known = known

    def collect(self) -> Iterator[Metric]:
        yield from self.known


def families(store: Store) -> Iterator[Metric]:
    glance = store.glance()
    yield gauge("info", "The version that serves.", [({"version": VERSION}, 1)])
    yield from of_queues(glance)
    yield from of_workers(store, glance)
    yield from of_ends(store.recent_ends())
    pulse = store.pulse()
    words = {"shut": pulse.shut, "aborts": pulse.aborts, "strays": pulse.strays, "undecided": pulse.undecided}
    yield gauge(
        "sweeper_work",
        "1 where a sweeper has something to do.",
        [({"kind": kind}, int(is_)) for kind, is_ in words.items()],
    )
    yield gauge(
        "breaker_state",
        "1 for the state that the breaker of a job type is in.",
        [
            ({"job_type": each.job_type, "state": state}, int(each.state == state))
            for each in store.breakers()
            for state in BREAKER_STATES
        ],
    )
    yield gauge("database_bytes", "What the database takes on disk.", [({}, store.size())])


def of_queues(glance: Glance) -> Iterator[Metric]:
    for name, means in QUEUE.items():
        unit = "ended_per_second" if name == "ended_per_second" else name
        yield gauge(f"queue_{unit}", means, [({"queue": load.name}, getattr(load, name)) for load in glance.queues])
    yield gauge(
        "queue_paused", "1 if it is paused.", [({"queue": load.name}, int(load.paused)) for load in glance.queues]
    )
    ages = [
        ({"queue": load.name}, max(0.0, (glance.time - load.due_since).total_seconds()) if load.due_since else 0.0)
        for load in glance.queues
    ]
    yield gauge("queue_oldest_due_seconds", "For how long the oldest job that could start has been due.", ages)


def of_workers(store: Store, glance: Glance) -> Iterator[Metric]:
    found = [({"worker": str(row.id), "name": row.name}, row) for row in store.workers()]
    yield gauge("workers", "Live workers.", [({}, len(found))])
    yield gauge("worker_slots", "Most jobs at once.", [(labels, row.concurrency) for labels, row in found])
    yield gauge("worker_jobs", "Jobs in its hands.", [(labels, glance.in_hand.get(row.id, 0)) for labels, row in found])
    beats = [(labels, max(0.0, (glance.time - row.beat_time).total_seconds())) for labels, row in found]
    yield gauge("worker_beat_age_seconds", "Since its last sign of life.", beats)


def of_ends(ends: Sequence[RecentEnd]) -> Iterator[Metric]:
    """What the jobs that ended last tell about their types."""
    durations: dict[str, list[float]] = {}
    outcomes: dict[tuple[str, str], int] = {}
    for end in ends:
        outcomes[end.job_type, end.outcome] = outcomes.get((end.job_type, end.outcome), 0) + 1
        if end.execution_time is not None:
            durations.setdefault(end.job_type, []).append(end.execution_time)
    yield gauge(
        "recent_ends",
        "Of the jobs that ended last, those of a type and outcome.",
        [
            ({"job_type": job_type, "outcome": outcome}, count)
            for (job_type, outcome), count in sorted(outcomes.items())
        ],
    )
    yield gauge(
        "recent_duration_seconds",
        "How long the last attempts of the jobs that ended last took.",
        [
            ({"job_type": job_type, "quantile": f"{quantile:g}"}, _quantile(found, quantile))
            for job_type, found in sorted(durations.items())
            for quantile in QUANTILES
        ],
    )


def _quantile(values: list[float], quantile: float) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[round(quantile * 100) - 1]


def gauge(name: str, means: str, samples: list[tuple[dict[str, str], Any]]) -> Metric:
    labels = list(samples[0][0]) if samples else []
    family = GaugeMetricFamily(f"holdfast_{name}", means, labels=labels)
    for values, value in samples:
        family.add_metric([values[label] for label in labels], float(value))
    return family


router = Router("/", route_handlers=[metrics])
