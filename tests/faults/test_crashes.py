"""Workers that are killed, stopped, crashed by a job: nothing is lost, nothing ends twice, a crash is not a failure."""

import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast import App, Job, Unavailable
from tests.faults.fleet import Worker, make_app, until, worker
from tests.faults.results import Fault


def in_state(app: App, state: str, count: int) -> Callable[[], bool]:
    return lambda: len(app.find(state=state, limit=2000)) >= count


@pytest.mark.fault(1, "kill -9 of a worker with 1,000 jobs")
@pytest.mark.claim("R1", "C2", "C3", "C4")
def test_another_worker_finishes_a_thousand_jobs_of_a_killed_one(
    url: str, instance: str, tmp_path: Path, fault: Fault
) -> None:
    with make_app(url, instance) as app:
        gate = tmp_path / "gate"
        jobs = app.job_types["gate"].enqueue_many([{"path": str(gate)} for _ in range(1000)])
        with worker(url, tmp_path, name=instance) as first:
            until(in_state(app, "running", 1000), what="1,000 jobs run")
            first.kill()
            gate.touch()
            with worker(url, tmp_path, name=instance):
                until(in_state(app, "final", 1000), what="all jobs are final")
        found = app.find(limit=2000)
        assert {job.id for job in found} == {job.id for job in jobs}
        assert {(job.outcome, job.failures, job.attempt) for job in found} == {("success", 0, 2)}
        assert [end.outcome for end in found[0].attempts()] == ["lost", "success"]
        fault.injected("kill -9 of a worker with 1,000 jobs")
    fault.check(url, instance, [job.id for job in jobs])


@pytest.mark.fault(1, "kill -9 of a worker with a job that must not be repeated")
@pytest.mark.claim("C3", "J12")
def test_jobs_that_must_not_be_rerun_end_by_their_timeout_after_a_crash(
    url: str, instance: str, tmp_path: Path, fault: Fault
) -> None:
    with make_app(url, instance) as app:
        job = app.job_types["fragile"].enqueue(seconds=1.9)
        with worker(url, tmp_path, name=instance) as first:
            until(lambda: job.refresh().state == "running", what="it runs")
            first.kill()
        with worker(url, tmp_path, name=instance):
            ended = job.wait(30)
        assert (ended.outcome, ended.attempt, ended.error.kind) == ("error", 1, "timeout")
        fault.injected("kill -9 of a worker with a job that must not be repeated")
    fault.check(url, instance, [job.id])


@pytest.mark.fault(2, "SIGSTOP past the lease, then SIGCONT")
@pytest.mark.claim("C2", "J5")
@pytest.mark.parametrize("late", ["when another has finished", "while another is at it"])
def test_the_late_result_of_a_stopped_worker_is_stale(
    url: str, instance: str, tmp_path: Path, fault: Fault, late: str
) -> None:
    with make_app(url, instance) as app:
        gate = tmp_path / "gate"
        job = app.job_types["gate"].enqueue(path=str(gate))
        with worker(url, tmp_path, name=instance) as first:
            until(lambda: job.refresh().state == "running", what="it runs")
            freeze(first, url, instance)
            held = (
                job.refresh().attempt
            )  # the first, unless it was stopped in the middle of a write for so long that it was lost
            with worker(url, tmp_path, name=instance) as second:
                until(lambda: job.refresh().attempt == held + 1, what="another worker took it")
                other, at_it = job.refresh().worker, late == "while another is at it"
                if at_it:
                    freeze(second, url, instance)
                gate.touch()
                ended = None if at_it else job.wait(30)
                first.send(signal.SIGCONT)
                until(lambda: "called lost" in first.log.read_text(), what="the first worker learns that it was lost")
                first.terminate()  # it has told everything then
                if ended is None:
                    assert (job.refresh().state, job.refresh().attempt) == ("running", held + 1)
                    second.send(signal.SIGCONT)
                    ended = job.wait(30)
        assert ended.worker == other
        assert (ended.outcome, ended.attempt) == ("success", held + 1)
        assert job.refresh() == ended
        assert [end.outcome for end in job.attempts()][held - 1 :] == ["lost", "success"]
        fault.injected("SIGSTOP past the lease, then SIGCONT")
    fault.check(url, instance, [job.id])


def freeze(worker: Worker, url: str, instance: str) -> None:
    """Stop it between two writes: who stops in the middle of one keeps an SQLite file locked for everybody."""
    with App(url, name=instance, patience=1.0) as other:
        for _ in range(50):
            worker.send(signal.SIGSTOP)
            try:
                other.limit("work", None)
            except Unavailable:
                worker.send(signal.SIGCONT)
            else:
                return
    raise AssertionError("it was writing whenever it was stopped")


@pytest.mark.fault(3, "a sweeper is stopped between its look and what it does about it")
@pytest.mark.claim("C2", "C4")
def test_what_a_sweeper_saw_long_ago_takes_no_live_workers_jobs(
    url: str, instance: str, tmp_path: Path, fault: Fault
) -> None:
    gate, mark = tmp_path / "gate", tmp_path / "mark"
    late = {"name": instance, "module": "tests.faults.late_sweeper", "more": [str(mark)]}
    with make_app(url, instance) as app, worker(url, tmp_path, name=instance) as one:
        job = app.job_types["gate"].enqueue(path=str(gate))
        until(attempts_of([job], 1), what="it runs")
        with worker(url, tmp_path, **late) as sweeper:
            freeze(one, url, instance)
            until(mark.exists, what="the sweeper has seen it stand still for too long")
            seen = beats(app)
            one.send(signal.SIGCONT)
            until(lambda: beats(app) > seen, what="it was only slow")
            sweeper.send(signal.SIGCONT)
            assert until(mark.read_text, what="the sweeper has gone on") == "None"
            gate.touch()
            ended = job.wait(30)
        assert (ended.outcome, ended.attempt, ended.losses) == ("success", 1, 0)
        assert "called lost" not in one.log.read_text()
        fault.injected("SIGSTOP of a sweeper between its look and what it does about it")
    fault.check(url, instance, [job.id])


@pytest.fixture
def as_process_1() -> tuple[str, ...]:
    """What gives a worker the number that the other has, on the same host; as in containers."""
    within = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("only root can give a process number a second time")
    return within


@pytest.mark.fault(3, "a worker with the host and the process number of one that lives, and of one that was killed")
@pytest.mark.claim("C2", "C3")
def test_a_worker_is_not_taken_for_another_with_its_host_and_process_number(
    url: str, instance: str, tmp_path: Path, fault: Fault, as_process_1: tuple[str, ...]
) -> None:
    alike = {"name": instance, "within": as_process_1, "heartbeat": 0.25, "lost_after": 1.0}
    gate = tmp_path / "gate"
    with make_app(url, instance) as app:
        theirs = app.job_types["gate"].enqueue_many([{"path": str(gate)}] * 2)
        with worker(url, tmp_path, concurrency=2, **alike) as first:
            until(attempts_of(theirs, 1), what="the first has all it can take")
            with worker(url, tmp_path, **alike) as second:
                own = app.job_types["gate"].enqueue_many([{"path": str(gate)}] * 2)
                until(attempts_of(own, 1), what="the second has the others")
                both = app.store.workers()
                assert {(row.name, row.host, row.pid) for row in both} == {(f"{both[0].host}:1", both[0].host, 1)}
                until(lambda: min(beats(app)) > max(row.beat for row in both) + 6, what="they have watched each other")
                assert [row.id for row in app.store.workers()] == [row.id for row in both]
                fault.injected("a worker with the host and the process number of one that lives")
                first.kill()
                until(attempts_of(theirs, 2), what="the second has the first one's jobs")
                assert attempts_of(own, 1)()
                fault.check(url, instance)
                second.kill()
            with worker(url, tmp_path, **alike):
                until(attempts_of(theirs, 3), what="the third has them")
                until(attempts_of(own, 2), what="and the second one's")
                (third,) = app.store.workers()
                assert (third.name, third.id in {row.id for row in both}) == (both[0].name, False)
                gate.touch()
                assert {job.wait(30).outcome for job in (*theirs, *own)} == {"success"}
        assert {tuple(end.outcome for end in job.attempts()) for job in theirs} == {("lost", "lost", "success")}
        assert {tuple(end.outcome for end in job.attempts()) for job in own} == {("lost", "success")}
        fault.injected("a worker with the host and the process number of one that was killed", 2)
    fault.check(url, instance, [job.id for job in (*theirs, *own)])


def attempts_of(jobs: Sequence[Job], attempt: int) -> Callable[[], bool]:
    """Somebody has each of them, for that time."""
    return lambda: all((now.attempt, now.situation) == (attempt, "held") for now in [job.refresh() for job in jobs])


def beats(app: App) -> list[int]:
    return [row.beat for row in app.store.workers()]


@pytest.mark.fault(7, "a segfault among 1,000 others in one process")
@pytest.mark.claim("C3")
def test_a_job_that_kills_its_workers_ends_alone_and_its_neighbours_succeed(
    url: str, instance: str, tmp_path: Path, fault: Fault
) -> None:
    with make_app(url, instance) as app:
        naps = app.job_types["nap"].enqueue_many([{"seconds": 1.0} for _ in range(1000)])
        bad = app.job_types["segfault"].enqueue()
        for _ in range(40):
            with worker(url, tmp_path, name=instance) as one:
                until(lambda: one.process.poll() is not None or bad.refresh().final, what="it crashes or ends")
                if bad.refresh().final:
                    until(in_state(app, "final", 1001), 90, what="all are final")
                    break
        ended = bad.refresh()
        assert (ended.outcome, ended.error.kind, ended.failures) == ("error", "crash", 0)
        outcomes = [app.get(job.id) for job in naps]
        assert {(job.outcome, job.failures) for job in outcomes} == {("success", 0)}
        fault.injected("a segfault of a worker with 1,000 other jobs", bad.refresh().attempt)
    fault.check(url, instance, [job.id for job in (*naps, bad)])


@pytest.mark.fault(7, "a segfault in a child process")
@pytest.mark.claim("C1", "C3")
def test_a_handler_that_segfaults_in_its_own_process_does_not_hurt_the_worker(
    url: str, instance: str, tmp_path: Path, fault: Fault
) -> None:
    with make_app(url, instance) as app, worker(url, tmp_path, name=instance) as one:
        bad = app.job_types["segfault_alone"].enqueue()
        good = app.job_types["quick"].enqueue(i=1)
        ended = bad.wait(30)
        assert good.unwrap(30) == 1
        assert (ended.outcome, ended.error.kind, ended.crashes) == ("error", "crash", 2)
        assert one.process.poll() is None
        fault.injected("a segfault in a child process", ended.crashes)
    fault.check(url, instance, [bad.id, good.id])


@pytest.mark.claim("C5", "C3")
def test_a_worker_that_is_asked_to_stop_hands_back_what_it_cannot_finish(
    url: str, instance: str, tmp_path: Path
) -> None:
    with make_app(url, instance) as app:
        quick, slow = (app.job_types["tells"].enqueue(seconds=seconds) for seconds in (1.0, 50.0))
        stuck = app.job_types["block"].enqueue(seconds=50)
        with worker(url, tmp_path, name=instance) as one:
            until(in_state(app, "running", 3), what="they run")
            until(lambda: quick.refresh().progress and slow.refresh().progress, what="they have begun")
            assert one.terminate() == 0
        assert quick.refresh().outcome == "success"
        for job in (slow, stuck):
            now = job.refresh()
            assert (now.state, now.situation, now.failures, now.losses) == ("running", "loose", 0, 0)
            assert [end.outcome for end in job.attempts()] == ["handed_back"]
        assert app.store.workers() == []
