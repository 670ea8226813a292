"""Workers of workflows that are killed again and again: every task is done, nothing is made twice, all states agree.

A small sample runs with `make sample`, the full size (1 → 10,000 → 1, and a chain of 1,000 steps, 20 kills each) with
`make faults`.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from holdfast import App, Conflict
from holdfast.compose import Run
from tests.faults import dying, workflow_fleet
from tests.faults.fleet import ROOT, Worker, until
from tests.faults.results import Fault, sizes
from tests.faults.workflow_fleet import calls, make_app
from tests.raw_sql import RawSql

pytestmark = pytest.mark.fault(11)
WORKERS = 2
PATIENCE = 600  # seconds; under load everything is slow


class Size(Struct, frozen=True):
    """How many tasks, and how many kills on the way."""

    tasks: int
    kills: int
    seconds: float  # that a task takes at most


class Siege:
    """A run under workers of which one after the other is killed."""

    def __init__(
        self, app: App, run: Run, url: str, folder: Path, size: Size, width: int, length: int, fault: Fault
    ) -> None:
        self.app, self.run, self.size, self.fault, self.url = app, run, size, fault, url
        self.luck = fault.luck(20261116)
        self.sql = RawSql(url, app.name)
        self.start = lambda: workflow_fleet.start(url, app.name, folder, width, length)
        self.fleet: list[Worker] = []
        self.began = time.monotonic()

    def kill_on_the_way(self) -> None:
        """Each time another part of the tasks is done; everything agrees in between."""
        done = sorted(self.luck.sample(range(self.size.tasks * 9 // 10), self.size.kills))
        for index, stage in enumerate(done):
            until(lambda stage=stage: self.done() >= stage, PATIENCE, f"{stage} tasks are done")
            victim = self.with_work_in_hand() if index % 2 else self.luck.choice(self.fleet)
            victim.kill()
            self.fault.injected("kill -9 of a worker")
            self.fleet[self.fleet.index(victim)] = self.start()
            self.check()

    def done(self) -> int:
        found: int = self.sql.value("select sum(succeeded) as done from {step} where run = :run", run=self.run.id)
        return found

    def with_work_in_hand(self) -> Worker:
        """One that is stopped, and holds a task."""
        return until(self._stopped_with_work, PATIENCE, "a worker has work in hand")  # type: ignore[return-value]

    def _stopped_with_work(self) -> Worker | None:
        for worker in self.luck.sample(self.fleet, len(self.fleet)):
            worker.send(signal.SIGSTOP)
            query = "select 1 from {lease} l join {worker} w on w.id = l.worker where w.pid = :pid"
            if self.sql(query, pid=worker.process.pid):
                return worker
            worker.send(signal.SIGCONT)
        return None

    def check(self) -> None:
        self.fault.check(self.url, self.app.name)

    def check_calls(self, ledger: Path) -> int:
        """Every task was called, and no oftener than it had attempts; how many calls were one too many."""
        query = "select job_key, attempt from {job} where run = :run and job_key not like '%.items'"
        attempts = {row["job_key"].partition(":")[2]: row["attempt"] for row in self.sql(query, run=self.run.id)}
        found = calls(ledger)
        assert found.keys() - {"each.items"} == attempts.keys()
        called = {name: found[name] for name in attempts}
        assert [name for name, count in called.items() if not 0 < count <= attempts[name]] == []
        return sum(called.values()) - len(called)

    def abort_and_retry(self, kills: bool) -> bool:
        """From outside; everything agrees in between. Whether tasks were still to be made."""
        if kills:
            victim = self.with_work_in_hand()
            victim.kill()
            self.fault.injected("kill -9 of a worker")
            self.fleet[self.fleet.index(victim)] = self.start()
        with pytest.raises(Conflict):
            self.run.retry()
        run = self.run.abort()
        self.fault.injected("an abort while tasks are made")
        assert (run.state, run.aborted, run.steps["last"].state) == ("ERROR", True, "SKIP_BY_ERROR")
        self.check()
        run = until(self.retried, PATIENCE, "nothing that was aborted is in workers' hands any more")
        self.fault.injected("a retry, asked for until it was heard")
        assert (run.state, run.aborted) == ("UNDONE", False)
        made = self.sql.value(
            "select count(distinct job_key) as made from {job} where run = :run and job_type = 'fan.each'", run=run.id
        )
        self.check()
        assert run.steps["each"].state == ("START" if made < self.size.tasks - 2 else "READY")
        return bool(made < self.size.tasks - 2)

    def retried(self) -> Run | None:
        try:
            return self.run.retry()
        except Conflict:
            return None

    def check_ends(self, ledger: Path) -> None:
        """Each task has succeeded in its last job and in no other, and was called no oftener than its jobs had attempts."""
        jobs: dict[str, list[dict[str, Any]]] = {}
        for row in self.sql(
            "select job_key, attempt, outcome from {job} where run = :run order by id", run=self.run.id
        ):
            jobs.setdefault(row["job_key"].partition(":")[2], []).append(row)
        found, again = calls(ledger), sum(len(each) - 1 for each in jobs.values())
        assert len(jobs) == self.size.tasks
        assert {tuple(row["outcome"] == "success" for row in each[-2:]) for each in jobs.values()} <= {
            (True,),
            (False, True),
        }
        assert {row["outcome"] for each in jobs.values() for row in each[:-1]} == {"aborted"}
        assert found.keys() == jobs.keys()
        assert [name for name, each in jobs.items() if found[name] > sum(row["attempt"] for row in each)] == []
        self.fault.measured(tasks=len(jobs), again=again)

    def report(self, doubled: int) -> None:
        query = "select count(distinct worker) as hit, count(*) as lost from {attempt} where outcome = 'lost'"
        (found,) = self.sql(query)
        seconds = round(time.monotonic() - self.began, 1)
        self.fault.measured(tasks=self.size.tasks, seconds=seconds, lost_attempts=found["lost"], twice=doubled)
        assert found["hit"] > 0, "nobody was killed with a task in hand"


@contextmanager
def besieged(
    url: str, instance: str, folder: Path, name: str, size: Size, fault: Fault, width: int = 1, length: int = 1
) -> Iterator[Siege]:
    """Workers at work on a new run; they are gone at the end, whatever happened."""
    with make_app(url, instance, width, length) as app:
        params = {"ledger": str(folder / "ledger"), "seconds": size.seconds}
        run = app.workflows[name].submit("t", params=params)
        siege = Siege(app, run, url, folder, size, width, length, fault)
        try:
            siege.fleet += [siege.start() for _ in range(WORKERS)]
            yield siege
        finally:
            for worker in siege.fleet:
                worker.process.kill()
                worker.process.wait(30)
            siege.sql.close()


def ends_well(siege: Siege, ledger: Path) -> None:
    siege.kill_on_the_way()
    run = siege.run.wait(PATIENCE)
    assert run.state == "SUCCESS"
    assert {step.state for step in run.steps.values()} == {"SUCCESS"}
    assert sum(step.succeeded for step in run.steps.values()) == siege.size.tasks
    siege.check()
    siege.report(siege.check_calls(ledger))


@pytest.mark.claim("F4", "F12", "R1")
@pytest.mark.parametrize("size", sizes(Size(302, 4, 0.05), Size(10_002, 20, 0.05), 2 * PATIENCE))
def test_a_fan_out_ends_in_success_whoever_is_killed(
    url: str, instance: str, tmp_path: Path, fault: Fault, size: Size
) -> None:
    with besieged(url, instance, tmp_path, "fan", size, fault, width=size.tasks - 2) as siege:
        ends_well(siege, tmp_path / "ledger")


@pytest.mark.claim("F4", "R1")
@pytest.mark.parametrize("size", sizes(Size(40, 4, 0.05), Size(1_000, 20, 0.02), 2 * PATIENCE))
def test_a_chain_ends_in_success_whoever_is_killed(
    url: str, instance: str, tmp_path: Path, fault: Fault, size: Size
) -> None:
    with besieged(url, instance, tmp_path, "chain", size, fault, length=size.tasks) as siege:
        ends_well(siege, tmp_path / "ledger")


@pytest.mark.claim("F12", "R1")
@pytest.mark.parametrize("size", sizes(Size(601, 3, 0.02), Size(10_001, 20, 0.05), 2 * PATIENCE))
def test_items_are_made_once_each_whoever_is_killed(
    url: str, instance: str, tmp_path: Path, fault: Fault, size: Size
) -> None:
    with besieged(url, instance, tmp_path, "list", size, fault, width=size.tasks - 1) as siege:
        ends_well(siege, tmp_path / "ledger")


@pytest.mark.claim("F16", "R1")
def test_a_fan_out_is_retried_and_aborted_whoever_is_killed(
    url: str, instance: str, tmp_path: Path, fault: Fault
) -> None:
    """Broken, it ends in error and is retried; aborted half-way, it is retried again, and then it succeeds."""
    (tmp_path / "broken").touch()
    size, width = Size(302, 1, 0.02), 300
    with besieged(url, instance, tmp_path, "fan", size, fault, width=width) as siege:
        run = siege.run.wait(PATIENCE)
        assert (run.state, run.steps["last"].state) == ("ERROR", "SKIP_BY_ERROR")
        assert run.steps["each"].errors > 0
        siege.check()
        (tmp_path / "broken").unlink()
        before = run.retry().steps["each"].succeeded
        until(lambda: run.refresh().steps["each"].succeeded > before, PATIENCE, "it goes on")
        siege.with_work_in_hand().kill()
        fault.injected("kill -9 of a worker")
        run.abort()
        fault.injected("abort half-way")
        siege.check()
        siege.fleet.append(siege.start())
        until(lambda: not siege.sql("select 1 from {job} where state <> 'final'"), PATIENCE, "all jobs are final")
        siege.check()
        run = run.refresh()
        assert (run.state, run.aborted, run.steps["last"].state) == ("ERROR", True, "SKIP_BY_ERROR")
        run = run.retry().wait(PATIENCE)
        assert (run.state, run.aborted, run.steps["each"].succeeded) == ("SUCCESS", False, width)
        siege.check()


@pytest.mark.claim("F12", "F16", "R1")
@pytest.mark.parametrize("size", sizes(Size(1_202, 3, 0.05), Size(10_002, 8, 0.3), 2 * PATIENCE))
def test_a_fan_out_is_aborted_and_retried_while_its_tasks_are_made(
    url: str, instance: str, tmp_path: Path, fault: Fault, size: Size
) -> None:
    """Tasks that were done stay done, those that were aborted run again, and the rest is made as if nothing had been."""
    width = size.tasks - 2
    with besieged(url, instance, tmp_path, "fan", size, fault, width=width) as siege:
        unmade = []
        for index, stage in enumerate(sorted(siege.luck.sample(range(1, width // 2), size.kills))):
            until(lambda stage=stage: siege.done() >= stage, PATIENCE, f"{stage} tasks are done")
            unmade.append(siege.abort_and_retry(kills=index % 2 == 0))
        assert unmade.count(True) >= size.kills // 2, "it was only aborted when all tasks were made"
        run = siege.run.wait(PATIENCE)
        assert (run.state, run.aborted) == ("SUCCESS", False)
        assert [step.succeeded for step in run.steps.values()] == [1, width, 1]
        until(lambda: not siege.sql("select 1 from {job} where state <> 'final'"), PATIENCE, "all jobs are final")
        siege.check()
        siege.check_ends(tmp_path / "ledger")


@pytest.mark.fault(1)
@pytest.mark.claim("F4", "F12", "R1")
@pytest.mark.parametrize(
    "seed",
    [1, *(pytest.param(seed, marks=[pytest.mark.faults, pytest.mark.timeout(PATIENCE)]) for seed in range(2, 12))],
)
def test_a_run_comes_to_its_end_whatever_statement_its_workers_die_at(
    url: str, instance: str, fault: Fault, seed: int
) -> None:
    with dying.make_app(url, instance) as app:
        run = app.workflows["w"].submit("t")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [sys.executable, "-m", "tests.faults.dying", url, instance, str(seed)]
        ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
        assert ended.returncode == 0, ended.stderr
        assert int(ended.stdout) > 0, "nobody died"
        fault.told.seed = seed
        fault.injected("death in the middle of a statement", int(ended.stdout))
        fault.check(url, instance)
        run = run.refresh()
        assert run.state == "SUCCESS"
        assert [step.succeeded for step in run.steps.values()] == [1, dying.WIDTH // 2, dying.WIDTH, 1, 1]
