"""SQLite on disks that fill up, fail or lose their power, and with strangers about: a clear error, and nothing is lost."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast import App, Unavailable
from tests.by_hand import WorkerByHand
from tests.faults.bad_disk import bad_disk
from tests.faults.fleet import make_app, until, worker
from tests.faults.results import Fault, sizes
from tests.raw_sql import RawSql
from tests.sqlite_log import end_of_log

pytestmark = [pytest.mark.fault(6), pytest.mark.claim("R1", "C7")]
NAME = "fleet"


def accepted_ids(app: App, count: int = 3) -> list[int]:
    return [job.id for job in app.job_types["quick"].enqueue_many([{"i": number} for number in range(count)])]


@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError], ids=["disk full", "error"])
@pytest.mark.parametrize("every", sizes(7, 1))
def test_a_write_that_fails_is_told_and_leaves_nothing_half_done(
    tmp_path: Path, fault: Fault, error: type[apsw.Error], every: int
) -> None:
    """Some work, broken off at its n-th write, for every n; then the disk is well again and all is done."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    accepted: list[int] = []
    with bad_disk(tmp_path) as disk, make_app(url) as app:
        accepted += accepted_ids(app)
        app.run_until_idle()
        at, broke = 1, True
        while broke:
            disk.breaks(at, error)
            told = ""
            try:
                accepted += accepted_ids(app)
                app.run_until_idle()
            except Unavailable as refusal:
                told = str(refusal)
            assert not told or "disk is full" in told or error is apsw.IOError
            broke = disk.failed > 0
            disk.heals()
            if broke:
                fault.injected(f"{error.__name__} at the n-th write, and every one after it")
            fault.check(url, NAME, accepted)
            app.run_until_idle()
            at += every
        assert at > 2 * every, "nothing broke"
        rows = RawSql(url, NAME)
        found = {row["id"]: row["outcome"] for row in rows("select id, outcome from {job}")}
        rows.close()
        assert found == dict.fromkeys(found, "success")
        assert set(accepted) <= found.keys()
        assert not (found.keys() - set(accepted)), "what was refused was stored all the same"
    fault.check(url, NAME, accepted)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room; only root can make one."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(app: App, accepted: list[int]) -> None:
    while True:
        accepted += accepted_ids(app, 100)


def test_a_worker_on_a_full_disk_rests_and_goes_on_when_there_is_room_again(
    small_disk: Path, tmp_path: Path, fault: Fault
) -> None:
    url = f"sqlite:///{small_disk}/jobs.db"
    accepted: list[int] = []
    with make_app(url) as app:
        with pytest.raises(Unavailable, match=r"the disk is full"):
            fill(app, accepted)
        fault.injected("a real disk of 3 MB is filled up by jobs")
        with worker(url, tmp_path) as one:
            until(lambda: one.log.read_text().count("disk is full") > 3, what="the worker has met it")
            before = one.log.read_text().count("disk is full")
            time.sleep(2)  # that it does not try all the time is the thing tested
            told = one.log.read_text().count("disk is full") - before
            assert told < 40, f"it told {told} times in 2 s"
            began = time.monotonic()
            subprocess.run(["mount", "-o", "remount,size=200m", small_disk], check=True)
            until(lambda: app.store.counts()["work"] == {"completed": len(accepted)}, what="all jobs are done")
            fault.measured(jobs=len(accepted), recovery=time.monotonic() - began)
    fault.check(url, NAME, accepted)


@pytest.mark.parametrize("seconds", sizes(1.5, 60.0))
def test_a_file_that_a_stranger_keeps_locked_is_waited_for_by_workers_and_told_to_callers(
    tmp_path: Path, fault: Fault, seconds: float
) -> None:
    url, stop = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "stop"
    code = (
        "import apsw, os, sys, time; c = apsw.Connection(sys.argv[1]); c.set_busy_timeout(30000); c.execute('begin immediate')\n"
        "open(sys.argv[2] + '.locked', 'w').close()\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.02)\n"
        "c.execute('commit')"
    )
    with make_app(url) as app, App(url, name=NAME, patience=0.5) as caller, worker(url, tmp_path) as one:
        before = accepted_ids(app, 50)
        until(lambda: app.store.counts()["work"].get("completed") == 50, what="the worker works")
        gate = tmp_path / "gate"
        held = app.job_types["gate"].enqueue(path=str(gate))
        until(lambda: held.refresh().state == "running", what="a job is in hand")
        stranger = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "jobs.db"), str(stop)])
        try:
            until(lambda: (tmp_path / "stop.locked").exists(), what="the stranger has it")
            locked = time.monotonic()
            with pytest.raises(Unavailable, match="another process has kept it locked"):
                caller.enqueue("work", "quick", {"i": 1})
            gate.touch()
            time.sleep(max(0.0, seconds - (time.monotonic() - locked)))  # the lock is the thing tested
            stop.touch()
            stranger.wait(30)
            fault.injected(f"a stranger's lock of {seconds:g} s")
            freed = time.monotonic()
            ended = held.wait(60)
            fault.measured(recovery=time.monotonic() - freed)
        finally:
            stranger.kill()
            stranger.wait(30)
        after = accepted_ids(app, 50)
        until(lambda: app.store.counts()["work"] == {"completed": 101}, what="all jobs are done")
        assert (ended.outcome, ended.attempt) == ("success", 1)
        assert one.process.poll() is None
    fault.check(url, NAME, [*before, held.id, *after])


@pytest.mark.parametrize("cuts", sizes(25, 600))
def test_whatever_a_power_cut_leaves_of_the_log_holds_all_that_was_acknowledged(
    tmp_path: Path, fault: Fault, cuts: int
) -> None:
    luck = fault.luck(20261116)
    here, there = tmp_path / "jobs.db", tmp_path / "cut" / "jobs.db"
    acknowledged: list[tuple[int, list[int]]] = []  # where the log ended then
    log = Path(f"{here}-wal")
    with make_app(f"sqlite:///{here}") as app:
        app.find()
        for _ in range(6):
            acknowledged.append((end_of_log(here), accepted_ids(app)))
            acknowledged.append((end_of_log(here), []))
            hand = WorkerByHand(app.store, ("quick",), ("work",))
            calls = hand.claim(2, "work")
            hand.succeed(calls[0])  # the other one is held until the end, and a third is in line
        database, written = here.read_bytes(), log.read_bytes()
    known = [(length, ids) for (_, ids), (length, _) in zip(acknowledged[::2], acknowledged[1::2], strict=True)]
    places = {length + step for length, _ in known for step in (-1, 0, 1)}
    places |= {luck.randrange(known[-1][0] + 5000) for _ in range(cuts)}
    for place in sorted(luck.sample(sorted(places), min(cuts, len(places)))):
        shutil.rmtree(there.parent, ignore_errors=True)
        there.parent.mkdir()
        there.write_bytes(database)
        garbage = luck.randbytes(luck.choice((0, 0, 100, 5000)))  # what lay on the disk before
        Path(f"{there}-wal").write_bytes(written[:place] + garbage)
        fault.injected("the log is cut at a byte, sometimes with garbage behind it")
        accepted = [job_id for length, ids in known if length <= place for job_id in ids]
        with App(f"sqlite:///{there}", name=NAME) as again:
            if accepted:
                again.find(limit=1)
        fault.check(f"sqlite:///{there}", NAME, accepted)
    fault.measured(log_bytes=len(written))


@pytest.mark.parametrize("backups", sizes(1, 12))
def test_a_backup_taken_under_load_restores_clean(tmp_path: Path, fault: Fault, backups: int) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    accepted: list[int] = []
    with make_app(url) as app, worker(url, tmp_path, concurrency=20):
        for number in range(backups):
            accepted += accepted_ids(app, 300)
            sure = list(accepted)
            copy = tmp_path / f"backup-{number}.db"
            command = [sys.executable, "-m", "apsw", str(tmp_path / "jobs.db"), f".backup main {copy}"]
            taking = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            while taking.poll() is None:
                accepted += accepted_ids(app, 10)
            assert taking.returncode == 0, taking.stderr.read() if taking.stderr else ""
            fault.injected("a backup under load")
            restored = f"sqlite:///{copy}"
            fault.check(restored, NAME, sure)
            with make_app(restored) as again:
                for row in again.store.workers():
                    again.store.lose(row.id)
                again.run_until_idle()
                assert set(again.store.counts()["work"]) == {"completed"}
            fault.check(restored, NAME, sure)
        until(lambda: app.store.counts()["work"] == {"completed": len(accepted)}, what="all jobs are done")
    fault.measured(jobs=len(accepted))
    assert os.path.exists(tmp_path / "jobs.db")
