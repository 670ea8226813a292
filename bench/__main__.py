"""`python -m bench`: measures this machine with a PostgreSQL and SQLite files of its own, prints one table, keeps it in a file.

Runs of one group are interleaved (bare, ours, bare, ours …) and medians are taken: only ratios within a group mean anything.
"""

import argparse
import contextlib
import gc
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct
from rich.console import Console

from bench import (
    beside,
    endurance,
    enqueueing,
    failures,
    flows,
    footprint,
    latency,
    pages,
    throttled,
    volume,
    webhooks,
    workflows,
)
from bench.execution import Run, burst, execution, middle, raw_turns
from bench.places import Place, Postgres, Sqlite
from bench.report import Row, save, show
from holdfast.stores.sqlite.connection import file_system_of


class Scale(Struct, frozen=True):
    """How much of everything."""

    runs: int
    jobs: int
    singles: int
    bulk: int
    latencies: int
    deliveries: int
    beside: int
    idle: float
    in_hand: int
    items: int


FULL = Scale(
    runs=3,
    jobs=100_000,
    singles=2_000,
    bulk=50_000,
    latencies=500,
    deliveries=15,
    beside=1_000_000,
    idle=20,
    in_hand=20_000,
    items=1_000_000,
)
QUICK = Scale(
    runs=1,
    jobs=20_000,
    singles=500,
    bulk=20_000,
    latencies=100,
    deliveries=10,
    beside=200_000,
    idle=5,
    in_hand=5_000,
    items=20_000,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--quick", action="store_true", help="a fifth of the size, each once: under three minutes")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="groups whose name begins so")
    parser.add_argument("--runs", type=int, help="of every measurement (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep the result")
    parser.add_argument("--list", action="store_true", help="the names of the groups")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(name for name, _ in GROUPS))
        return 0
    chosen = [group for group in GROUPS if not arguments.only or group[0].startswith(tuple(arguments.only))]
    if not chosen:
        parser.error(
            f"no group begins with {', '.join(arguments.only)}; there are {', '.join(name for name, _ in GROUPS)}"
        )
    scale = QUICK if arguments.quick else FULL
    if arguments.runs:
        scale = Scale(**{**{name: getattr(scale, name) for name in Scale.__struct_fields__}, "runs": arguments.runs})
    began = time.monotonic()
    with places({name.rpartition("-")[2] for name, _ in chosen}) as found:
        rows = [row for name, group in chosen for row in measured(name, group, found, scale)]
    show(rows, f"Holdfast on this machine ({scale.runs} runs, medians, {time.monotonic() - began:.0f} s)")
    kept = save(
        rows,
        "quick" if arguments.quick else "bench",
        {name: getattr(scale, name) for name in Scale.__struct_fields__},
        arguments.json,
    )
    print(f"Kept in {kept.name}.")
    bad = (row.failed if arguments.quick else row.met is False for row in rows)  # so little says nothing of speed
    return 1 if any(bad) else 0


@contextlib.contextmanager
def places(names: set[str]) -> Iterator[dict[str, Place]]:
    """The databases that are needed, gone afterwards however the run ends."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    folder = real_folder()
    found: dict[str, Place] = {}
    try:
        if "sqlite" in names:
            found["sqlite"] = Sqlite(folder)
        if "postgres" in names:
            found["postgres"] = Postgres(folder)
        yield found
    finally:
        for place in found.values():
            place.close()
        shutil.rmtree(folder, ignore_errors=True)


def real_folder() -> Path:
    """A temporary folder on a disk: in memory a commit would cost nothing."""
    for parent in (tempfile.gettempdir(), "/var/tmp", str(Path.cwd())):
        if file_system_of(str(Path(parent).resolve())) not in ("tmpfs", "ramfs"):
            break
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=parent))
    folder.chmod(0o755)  # the server runs as another user
    return folder


def measured(name: str, group: Callable[..., list[Row]], found: dict[str, Place], scale: Scale) -> list[Row]:
    """A group's rows; if it fails, one that says so."""
    console, began = Console(stderr=True), time.monotonic()
    place = found.get(name.rpartition("-")[2])
    try:
        rows = group(place, scale) if place else group(scale)
    except Exception as error:
        traceback.print_exc()
        rows = [Row(name, "", None, failed=True, note=f"failed: {' '.join(str(error).split())[:300]}")]
    console.print(f"{name}: {time.monotonic() - began:.0f} s", style="dim")
    return rows


def interleaved(runs: int, **kinds: Callable[[], Any]) -> dict[str, list[Any]]:
    """Each kind so many times, in turns."""
    samples: dict[str, list[Any]] = {name: [] for name in kinds}
    for _ in range(runs):
        for name, kind in kinds.items():
            gc.collect()
            samples[name].append(kind())
    return samples


def medians(runs: int, **kinds: Callable[[], Run]) -> dict[str, Run]:
    return {name: middle(samples) for name, samples in interleaved(runs, **kinds).items()}


def rate(measure: str, run: Run, reference: Run | None = None, name: str = "", **targets: float) -> Row:
    base = reference.rate if reference else None
    return Row(
        measure,
        "jobs/s",
        run.rate,
        base,
        name,
        worker_cpu=run.worker_cpu,
        server_cpu=run.server_cpu,
        memory=run.memory,
        **targets,
    )


def execute(place: Place, scale: Scale) -> list[Row]:
    count = scale.jobs
    kinds: dict[str, Callable[[], Run]] = {
        "raw": lambda: raw_turns(place, count, 500),
        "one": lambda: execution(place, count),
        "threads": lambda: execution(place, count, job_type="thread_noop"),
        "two": lambda: execution(place, count, 2),
        "burst": lambda: burst(place, count),
        "forty": lambda: execution(place, count, idle_queues=39),
    }
    if isinstance(place, Postgres):
        kinds["one_pump"] = lambda: execution(place, count, pumps=1)
        kinds["two_one_pump"] = lambda: execution(place, count, 2, pumps=1)
    else:
        kinds["raw_100"] = lambda: raw_turns(place, count, 100)
    got, on = medians(scale.runs, **kinds), place.name
    rows = [
        rate(f"{on}: bare turn, batch 500", got["raw"]),
        rate(f"{on}: 1 worker, async no-op", got["one"], got["raw"], "bare turn"),
        rate(f"{on}: 1 worker, burst on an empty queue", got["burst"], got["one"], "loaded before", at_least=0.8),
        rate(f"{on}: 1 worker, thread no-op", got["threads"], got["one"], "async", at_least=0.9),
        rate(f"{on}: 1 worker, 40 queues, one of them busy", got["forty"], got["one"], "1 queue", at_least=0.8),
    ]
    if not isinstance(place, Postgres):
        small = rate(f"{on}: 1 worker, async no-op", got["one"], got["raw_100"], "bare turn, batch 100", at_least=0.4)
        return [*rows, small, rate(f"{on}: 2 workers", got["two"], got["one"], "1 worker")]
    rows += [
        rate(f"{on}: 1 worker, 1 pump", got["one_pump"], got["raw"], "bare turn"),
        rate(f"{on}: 2 workers", got["two"], got["one"], "1 worker", at_least=0.95),
        rate(f"{on}: 2 workers, 1 pump each", got["two_one_pump"], got["one_pump"], "1 worker, 1 pump", at_least=1.15),
        Row(f"{on}: server CPU, 1 worker", "µs/job", got["one"].server_cpu, at_most=20),
    ]
    return rows


def fail(place: Place, scale: Scale) -> list[Row]:
    """What an end other than plain success costs."""
    kinds: dict[str, Callable[[], Run]] = {
        "none": lambda: execution(place, scale.jobs),
        "tenth": lambda: execution(place, scale.jobs, job_type="failing", fixed={"every": 10}),
        "all": lambda: execution(place, scale.jobs, job_type="failing", fixed={"every": 1}),
    }
    got, on = medians(scale.runs, **kinds), place.name
    success, failure = (got[kind].worker_cpu + got[kind].server_cpu for kind in ("none", "all"))
    return [
        rate(f"{on}: 1 worker, every tenth job fails", got["tenth"], got["none"], "none fails"),
        rate(f"{on}: 1 worker, every job fails", got["all"], got["none"], "none fails"),
        Row(f"{on}: CPU of a failure, beyond that of a success", "µs", failure - success, at_most=100),
    ]


def wait(place: Place, scale: Scale) -> list[Row]:
    kinds: dict[str, Callable[[], Any]] = {
        "another process": lambda: latency.from_another_process(place, scale.latencies)
    }
    targets: dict[str, dict[str, float]] = {"another process": {}}
    notes: dict[str, str] = {}
    if not isinstance(place, Postgres):
        kinds["the same process"] = lambda: latency.from_the_same_process(place, scale.latencies)
        bare = latency.bare_commit(place, scale.latencies)
        notes["the same process"] = f"a bare commit takes {bare.p50:.2f}"
        targets = {"another process": {"at_most": 3}, "the same process": {"at_most": 1}}
    rows = []
    for name, samples in interleaved(scale.runs, **kinds).items():
        rows.append(
            Row(
                f"{place.name}: latency from {name}, p50",
                "ms",
                median(sample.p50 for sample in samples),
                note=notes.get(name, ""),
                **targets[name],
            )
        )
        rows.append(Row(f"{place.name}: latency from {name}, p99", "ms", median(sample.p99 for sample in samples)))
    return rows


def enqueue(place: Place, scale: Scale) -> list[Row]:
    got = medians(
        scale.runs,
        bare=lambda: enqueueing.bare_one_at_a_time(place, scale.singles),
        one=lambda: enqueueing.one_at_a_time(place, scale.singles),
        threads=lambda: enqueueing.from_threads(place, scale.singles * 5, 50),
        tasks=lambda: enqueueing.from_tasks(place, scale.singles * 5, 50),
        copy=lambda: enqueueing.bare_many(place, scale.bulk),
        many=lambda: enqueueing.many(place, scale.bulk),
    )
    bulk = "COPY" if isinstance(place, Postgres) else "executemany"
    return [
        rate(f"{place.name}: enqueue, one at a time", got["one"], got["bare"], "INSERT", at_least=0.85),
        rate(f"{place.name}: enqueue, 50 threads", got["threads"], got["one"], "one thread", at_least=5),
        rate(f"{place.name}: enqueue, 50 tasks", got["tasks"], got["one"], "one thread", at_least=5),
        rate(f"{place.name}: enqueue, 1,000 at a time", got["many"], got["copy"], bulk, at_least=0.6),
    ]


def stand_beside(place: Place, scale: Scale) -> list[Row]:
    count = scale.jobs * 2 // 5
    for kind in beside.KINDS:
        beside.load_beside(place, kind, scale.beside, count)

    def beside_of(kind: str) -> Callable[[], Run]:
        return lambda: execution(place, count, source=kind)

    got = medians(scale.runs, empty=lambda: execution(place, count), **{kind: beside_of(kind) for kind in beside.KINDS})
    if isinstance(place, Postgres):
        for kind in beside.KINDS:
            place.drop(kind)
    rows = [rate(f"{place.name}: {count:,} jobs, nothing beside", got["empty"])]
    for kind in beside.KINDS:
        rows.append(
            rate(f"{place.name}: beside {scale.beside:,} {kind}", got[kind], got["empty"], "empty", at_least=0.9)
        )
    return rows


def throttle(place: Place, scale: Scale) -> list[Row]:
    count, on, limit = scale.jobs // 2, place.name, throttled.LIMIT
    throttled.load_clogged(place, scale.beside)
    got = medians(
        scale.runs,
        bare=lambda: raw_turns(place, count, limit),
        turns=lambda: throttled.limited_turns(place, count, limit),
        bare_small=lambda: raw_turns(place, count // 4, 50),
        small=lambda: throttled.limited_turns(place, count // 4, 50),
        free=lambda: execution(place, count, concurrency=limit),
        one=lambda: throttled.limited(place, count),
        four=lambda: throttled.limited(place, count, 4),
        clogged=lambda: throttled.limited(place, count, source=throttled.CLOGGED),
    )
    if isinstance(place, Postgres):
        place.drop(throttled.CLOGGED)
    return [
        rate(f"{on}: bare turn, limit 50", got["small"], got["bare_small"], "no limit", at_least=1 / 3),
        rate(f"{on}: bare turn, limit {limit}", got["turns"], got["bare"], "no limit", at_least=0.6),
        rate(f"{on}: 1 worker, limit {limit}", got["one"], got["free"], "no limit", at_least=1 / 3),
        rate(f"{on}: 4 workers, limit {limit}", got["four"], got["one"], "1 worker", at_least=1),
        rate(f"{on}: behind {scale.beside:,} above the limit", got["clogged"], got["one"], "none", at_least=0.5),
    ]


def flow(place: Place, scale: Scale) -> list[Row]:
    """Each sample is a median of three runs already."""
    got = interleaved(scale.runs, bare=lambda: workflows.bare(place, 3), ours=lambda: workflows.ours(place, 3))
    rows = []
    step = 1.3 if isinstance(place, Postgres) else 1.0
    for name, what, most in (
        ("fan", "fan-out 1 → 998 → 1, for each task", 0.15),
        ("chain", "chain of 200 steps", step),
    ):
        bare, ours = (median(getattr(sample, name) for sample in got[kind]) for kind in ("bare", "ours"))
        rows.append(Row(f"{place.name}: {what}", "ms", ours, at_most=most, note=f"the bare database takes {bare:.3f}"))
    return rows


def items(place: Place, scale: Scale) -> list[Row]:
    """Once: it is long, and the plain queue stands beside it: filled before, and filled meanwhile as items are."""
    count, on = scale.items, place.name
    plain = execution(place, min(count, scale.jobs))
    filled, keyless = (workflows.kept_filled(place, min(count, scale.jobs), keyed) for keyed in (True, False))
    found = workflows.items(place, count)
    grown = f"{found.memory_early:.1f} MB when a tenth was done"
    return [
        Row(
            f"{on}: a step of {count:,} items",
            "tasks/s",
            found.rate,
            plain.rate,
            "plain queue",
            at_least=0.6,
            worker_cpu=found.worker_cpu,
            server_cpu=found.server_cpu,
            memory=found.memory,
            note=grown,
        ),
        Row(
            f"{on}: a step of {count:,} items",
            "tasks/s",
            found.rate,
            filled.rate,
            "queue filled meanwhile",
            at_least=0.6,
            worker_cpu=filled.worker_cpu,
            server_cpu=filled.server_cpu,
            note=f"CPU of that queue; keys, lots of 500, as many undone; without keys it does {keyless.rate:,.0f}",
        ),
        Row(f"{on}: most of them undone at a time", "tasks", found.most_undone, at_most=flows.MOST_UNDONE),
        Row(f"{on}: memory at the end", "MB", found.memory, found.memory_early, "at a tenth", at_most=1.2),
    ]


def last(place: Place, scale: Scale) -> list[Row]:
    """Once: half a million claims in a row tell enough."""
    on, found = place.name, endurance.steady(place, scale.jobs * 5, scale.latencies // 2)
    slow = median(endurance.sleepers(place, scale.jobs // 2, 200).rate for _ in range(scale.runs))
    return [
        Row(
            f"{on}: {scale.jobs * 5:,} claims in a row, the last fifth",
            "jobs/s",
            found.last,
            found.first,
            "the first fifth",
            at_least=0.8,
        ),
        Row(f"{on}: latency right after, p50", "ms", found.after.p50, found.before.p50, "before", at_most=2),
        Row(f"{on}: handlers that sleep 10 ms, 200 at once", "jobs/s", slow, 20_000, "possible", at_least=0.8),
    ]


def rest(place: Place, scale: Scale) -> list[Row]:
    found = footprint.idle(place, scale.idle)
    per_job = footprint.memory_per_job(place, scale.in_hand)
    bare = f"a bare task that sleeps takes {footprint.memory_per_bare_task(scale.in_hand):,.0f}"
    rows = [
        Row(f"{place.name}: idle worker, memory", "MB", found.memory, at_most=60, memory=found.memory),
        Row(f"{place.name}: idle worker, CPU", "% of a core", found.cpu, at_most=1),
        Row(f"{place.name}: memory per job in hand", "bytes", per_job, at_most=2048, note=bare),
    ]
    if isinstance(place, Postgres):
        rows.append(Row(f"{place.name}: idle worker, queries", "per s", found.transactions, at_most=2))
    return rows


def served(place: Place, scale: Scale) -> list[Row]:
    """Pages, lists and metrics of a store that is full, idle and beside a busy worker."""
    url = place.fresh()
    known = pages.fill(url, scale.beside)
    place.settle()
    idle = pages.measure(url, known)
    with pages.working(url):
        busy = pages.measure(url, known)
    rows = []
    for beside_worker, found in (("", idle), (", busy worker", busy)):
        for what, paths, most in (
            ("page", pages.PAGES, 200),
            ("list", pages.LISTS, 50),
            ("metrics", (pages.METRICS,), 50),
        ):
            asked = [each for each in found if each.path in paths]
            worst = max(asked, key=lambda each: each.median)
            usual, longest = median(each.median for each in asked), max(each.worst for each in asked)
            note = f"{worst.path}; the usual one {usual:.1f}, the longest answer {longest:.1f}"
            name = f"{place.name}: slowest {what} of {len(asked)}, {scale.beside:,} jobs{beside_worker}"
            rows.append(Row(name, "ms", worst.median, at_most=most, note=note))
    return rows


def take_over(place: Place, scale: Scale) -> list[Row]:
    times = [failures.take_over(place) for _ in range(scale.runs)]
    return [
        Row(
            f"{place.name}: take-over after kill -9",
            "s",
            median(times),
            at_most=3 if isinstance(place, Postgres) else 1,
        )
    ]


def webhook(place: Place, scale: Scale) -> list[Row]:
    """Once: it is a median of its own."""
    found = webhooks.waits(place, scale.deliveries)
    apart = f"answered after {found.answered:.0f}, the log began after {found.begun:.0f}"
    return [Row(f"{place.name}: webhook to the first line of its build", "ms", found.printed, at_most=200, note=apart)]


def restart(place: Postgres, scale: Scale) -> list[Row]:
    times = [failures.restart(place, max(100_000, scale.jobs)) for _ in range(scale.runs)]
    return [Row(f"{place.name}: full rate after a restart", "s", median(times), at_most=2)]


def bytes_of(place: Postgres, scale: Scale) -> list[Row]:
    found = volume.volume(place, scale.bulk)
    told = {
        "log of an enqueue in bulk": found.log_of_enqueue,
        "log of a run": found.log_of_run,
        "log of archiving": found.log_of_archiving,
        "live tables": found.live,
        "archive": found.archived,
    }
    rows = [Row(f"{place.name}: {name}", "bytes/job", value) for name, value in told.items()]
    return [*rows, Row(f"{place.name}: connections of an app with a worker", "", found.connections)]


def start(scale: Scale) -> list[Row]:
    runs = max(5, scale.runs)
    helped = footprint.help_time(runs)
    rows = [
        Row("import holdfast, beyond a bare start", "ms", footprint.start_time("import holdfast", runs), at_most=80)
    ]
    if helped is None:
        return [*rows, Row("holdfast --help", "ms", None, note="there is no command line yet")]
    return [*rows, Row("holdfast --help", "ms", helped, at_most=300)]


PER_PLACE = {
    "exec": execute,
    "fail": fail,
    "latency": wait,
    "enqueue": enqueue,
    "beside": stand_beside,
    "throttled": throttle,
    "workflows": flow,
    "items": items,
    "last": last,
    "idle": rest,
    "takeover": take_over,
    "webhook": webhook,
    "pages": served,
}
GROUPS: list[tuple[str, Callable[..., list[Row]]]] = [
    *((f"{name}-{place}", group) for name, group in PER_PLACE.items() for place in ("postgres", "sqlite")),
    ("restart-postgres", restart),
    ("bytes-postgres", bytes_of),
    ("start", start),
]

if __name__ == "__main__":
    sys.exit(main())
