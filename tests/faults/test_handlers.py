"""Every kind of handler that misbehaves, at once, in one worker with a thousand others: each gets its end, and nobody else's."""

from pathlib import Path

import psutil
import pytest

from tests.faults import rude_fleet
from tests.faults.fleet import until, worker
from tests.faults.results import Fault, sizes

ENDS = {
    "eats_memory": ("error", "crash"),
    "ignores_cancellation": ("error", "timeout"),
    "forks": ("error", "timeout"),
    "closes_streams": ("success", None),
    "floods": ("success", None),
    "never_returns": ("error", "timeout"),
}
MOST_MEMORY = 300 * 2**20  # that the worker itself may use, whatever it is told


@pytest.mark.fault(7)
@pytest.mark.claim("C1", "C3", "R4", "R7")
@pytest.mark.parametrize("megabytes", sizes(5, 1000))
def test_handlers_that_misbehave_end_as_they_should_and_harm_no_other(
    url: str, instance: str, tmp_path: Path, fault: Fault, megabytes: int
) -> None:
    pids = tmp_path / "pids"
    with rude_fleet.make_app(url, instance) as app:
        rude = rude_fleet.enqueue_all(app, str(pids), megabytes)
        good = app.job_types["good"].enqueue_many([{"i": number} for number in range(1000)])
        assert rude.keys() == ENDS.keys()
        for name in ENDS:
            fault.injected(f"a handler that {name.replace('_', ' ')}")
        with worker(
            url, tmp_path, name=instance, concurrency=50, lost_after=5.0, module="tests.faults.rude_fleet"
        ) as one:
            until(lambda: app.store.counts()["work"].get("completed", 0) >= 1000, 100, "the good ones are done")
            ended = {name: job.wait(600) for name, job in rude.items()}
            memory = psutil.Process(one.process.pid).memory_info().rss
            assert one.process.poll() is None
            assert {name: (job.outcome, job.error and job.error.kind) for name, job in ended.items()} == ENDS
            forked = [int(line) for line in pids.read_text().split()]
            assert len(forked) == 2
            until(lambda: not any(map(psutil.pid_exists, forked)), what="no grandchild is left")
        assert {(app.get(job.id).outcome, app.get(job.id).attempt) for job in good[::50]} == {("success", 1)}
        kept = sum(len(line.text) for line in ended["floods"].log(limit=10_000))
        assert kept <= 2**20
        assert memory < MOST_MEMORY, f"the worker uses {memory >> 20} MB"
        fault.measured(worker_megabytes=memory >> 20, log_kept_bytes=kept, log_said_megabytes=megabytes)
    fault.check(url, instance, [job.id for job in (*good, *rude.values())])
