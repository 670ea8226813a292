"""How many jobs a second: the bare turn of our statements, and worker processes with real handlers."""

import signal
import threading
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from bench import marks
from bench.places import UNFINISHED, Place, load
from bench.processes import Stalled, Started, wait_for, workers
from bench.worker import QUEUE, bench_app
from holdfast.stores.contract import Claimed, Done, Store, Turn, Want, WorkerJoin

WARM = 20  # jobs that a worker has seen before a burst


class Run(Struct, frozen=True):
    """What one run showed; CPU in microseconds per job, memory in megabytes."""

    rate: float
    worker_cpu: float = 0.0
    server_cpu: float = 0.0
    memory: float = 0.0


def middle(runs: Sequence[Run]) -> Run:
    """The medians."""
    columns = {name: median(getattr(run, name) for run in runs) for name in Run.__struct_fields__}
    return Run(**columns)


def raw_turns(place: Place, count: int, batch: int, limit: float = 0) -> Run:
    """Settle what was claimed and claim the next, until nothing is left: our statements without any worker."""
    url = place.fresh()
    load(url, count)
    place.settle()
    with bench_app(url) as app:
        app.limit(QUEUE, limit or None)
        store = app.store.another(None)
        server, began, process = place.cpu(), time.monotonic(), time.process_time()
        done = _turn_until_empty(store, batch)
        seconds, process = time.monotonic() - began, time.process_time() - process
        run = Run(done / seconds, process / count * 1e6, (place.cpu() - server) / count * 1e6)
        store.close()
    if done != count:
        raise Stalled(f"raw turns ran {done} of {count} jobs")
    return run


def _turn_until_empty(store: Store, batch: int) -> int:
    worker = store.join(WorkerJoin("raw", "bench", 0, "", (QUEUE,), ("noop",), (), batch))
    held: Sequence[Claimed] = ()
    total, ends = 0, time.monotonic() + 90
    while time.monotonic() < ends:
        done = [Done(call, 0.0, None) for call in held]
        leases = list({call.lease for call in held})
        held = store.exchange(
            Turn(worker, done=done, ended_leases=leases, wants=[Want(QUEUE, batch, batch)], types=("noop",))
        ).claimed
        total += len(done)
        if not held:
            break
    return total


def execution(
    place: Place,
    count: int,
    processes: int = 1,
    job_type: str = "noop",
    source: str = "",
    fixed: Mapping[str, Any] | None = None,
    idle_queues: int = 0,
    **settings: Any,
) -> Run:
    """Jobs are loaded, workers started; measured from the first job begun until the store shows every job final."""
    url = place.fresh(source)
    after = load(url, count, job_type, **(fixed or {}))
    place.settle()
    look = place.look()
    try:
        more = ("--idle-queues", str(idle_queues))
        with workers(url, place.folder, count, processes, *more, **settings) as started:
            run = watch(place, look, UNFINISHED.format(after=after), count, started)
            check_marks(started, count)
            return run
    finally:
        look.close()


def burst(place: Place, count: int) -> Run:
    """The worker stands on an empty queue first, as in life: whatever plans it made there, it meets the jobs with them."""
    url = place.fresh()
    look = place.look()
    try:
        with workers(url, place.folder, count + WARM) as started:
            load(url, WARM)
            wait_for(lambda: look.one(UNFINISHED.format(after=0)) is None, 20, "the first jobs are final", started)
            time.sleep(0.5)  # on SQLite one that is stopped inside a transaction would keep the lock
            started[0].process.send_signal(signal.SIGSTOP)  # it must not begin before all is loaded
            after = load(url, count)
            started[0].process.send_signal(signal.SIGCONT)
            cpu, server, began = started[0].cpu(), place.cpu(), time.monotonic()
            ended = wait_for(
                lambda: look.one(UNFINISHED.format(after=after)) is None, 90, "every job final in the store", started
            )
            costs = (started[0].cpu() - cpu) / count * 1e6, (place.cpu() - server) / count * 1e6
            return Run(count / (ended - began), *costs, started[0].memory())
    finally:
        look.close()


def watch(
    place: Place, look: Any, unfinished: str, count: int, started: Sequence[Started], patience: float = 90
) -> Run:
    """From the first job begun until none is unfinished."""
    each = [process.marks for process in started if process.marks]

    def begun() -> int:
        return sum(one.begun() for one in each)

    first = wait_for(lambda: begun() > 0, 20, "the first job begins", started, every=0.001)
    early, cpu, server = begun(), sum(one.cpu() for one in started), place.cpu()
    wait_for(lambda: begun() >= count, patience, f"{count} jobs begun", started)
    last = wait_for(lambda: look.one(unfinished) is None, 20, "every job final in the store", started, every=0.002)
    cpu, server = sum(one.cpu() for one in started) - cpu, place.cpu() - server
    jobs = count - early
    return Run(jobs / (last - first), cpu / jobs * 1e6, server / jobs * 1e6, sum(one.memory() for one in started))


def check_marks(started: Sequence[Started], count: int) -> None:
    each = [process.marks for process in started if process.marks]
    lost, doubled = marks.lost(each), marks.doubled(each)
    if lost or doubled:
        raise Stalled(f"of {count} jobs {lost} were lost and {doubled} run twice")


def together(count: int, threads: int, action: Any) -> float:
    """Seconds for so many threads to call `action(number)` for every number below `count`."""

    def each(index: int) -> None:
        for number in range(index, count, threads):
            action(number)

    running = [threading.Thread(target=each, args=(index,), daemon=True) for index in range(threads)]
    began = time.monotonic()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    return time.monotonic() - began
