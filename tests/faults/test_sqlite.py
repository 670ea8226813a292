"""SQLite on disks that fill up, fail or lose their power, and with strangers about: a clear error, and nothing is lost."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

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
LOG_HEADER, FRAME = 32, 24 + 4096  # bytes


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
        at, broke, refused = 1, True, 0
        while broke:
            disk.breaks(at, error)
            try:
                accepted += accepted_ids(app)
                app.run_until_idle()
            except Unavailable as refusal:
                assert_clear(refusal, tmp_path / "jobs.db", error)
                refused += 1
            broke = disk.failed > 0
            disk.heals()
            if broke:
                fault.injected(f"{error.__name__} at the n-th write, and every one after it")
            fault.check(url, NAME, accepted)
            app.run_until_idle()
            at += every
        assert at > 2 * every, "nothing broke"
        assert refused > 0, "nobody was told"
        rows = RawSql(url, NAME)
        found = {row["id"]: row["outcome"] for row in rows("select id, outcome from {job}")}
        rows.close()
        assert found == dict.fromkeys(found, "success")
        assert set(accepted) <= found.keys()
        assert not (found.keys() - set(accepted)), "what was refused was stored all the same"
    fault.check(url, NAME, accepted)


@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError], ids=["disk full", "error"])
@pytest.mark.parametrize("times", [1, 10])
@pytest.mark.parametrize("every", sizes(7, 1))
def test_a_worker_goes_on_unaided_when_some_writes_have_failed(
    tmp_path: Path, fault: Fault, error: type[apsw.Error], times: int, every: int
) -> None:
    """The n-th write, and a few after it, whoever of its threads or of those who enqueue makes them; for every n."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    accepted: list[int] = []
    refused = rounds = 0
    with bad_disk(tmp_path) as disk, make_app(url) as app, app.worker(concurrency=4):
        at, broke = 1, True
        while broke:
            disk.breaks(at, error, times)
            try:
                accepted += accepted_ids(app)
            except Unavailable as refusal:
                assert_clear(refusal, tmp_path / "jobs.db", error)
                refused += 1
            until(all_done(app, accepted), what=f"a worker that met it at write {at} has done all that was accepted")
            broke = disk.failed > 0
            disk.heals()
            fault.check(url, NAME, accepted)
            fault.injected(f"{error.__name__} at the n-th write, {times} times", int(broke))
            at, rounds = at + every, rounds + 1
    assert rounds > 2, "nothing broke"
    fault.measured(jobs=len(accepted), refused=refused)


def all_done(app: App, accepted: list[int]) -> Callable[[], bool]:
    """Nothing else either: what was refused is not stored."""
    return lambda: app.store.counts()["work"] == ({"completed": len(accepted)} if accepted else {})


def assert_clear(refusal: Unavailable, path: Path, error: type[apsw.Error]) -> None:
    """What happened, to which file, and what to do."""
    what = {apsw.FullError: "the disk is full", apsw.IOError: "the disk failed"}[error]
    assert all(words in str(refusal) for words in (f"SQLite file {path}: {what}", "try again")), str(refusal)


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


@pytest.mark.parametrize("step", sizes(397, 1))
def test_whatever_a_power_cut_leaves_of_the_log_holds_all_that_was_acknowledged(
    tmp_path: Path, fault: Fault, step: int
) -> None:
    """It is cut at every byte. What is there then is what was there when the last whole frame was written."""
    luck = fault.luck(20261116)
    here = tmp_path / "jobs.db"
    with make_app(f"sqlite:///{here}") as app:
        acknowledged = some_work(app, here)
        database, written = here.read_bytes(), Path(f"{here}-wal").read_bytes()[: end_of_log(here)]
    folder = tmp_path / "cut"
    folder.mkdir()
    cut = PowerCut(folder / "jobs.db", database, written, luck)
    cuts = 0
    for begin in reversed([0, *range(LOG_HEADER, len(written) + 1, FRAME)]):
        accepted = [job_id for length, ids in acknowledged if length <= begin for job_id in ids]
        check_restored(tmp_path / "checked", database, written[:begin], accepted, fault)
        whole = cut.content_at(begin)
        ends = min(len(written), begin + FRAME - 1 if begin else LOG_HEADER - 1)
        for place in range(ends, begin, -step):
            assert cut.content_at(place) == whole, f"a log of {place} bytes holds something else than one of {begin}"
            cuts += 1
    fault.injected("the log is cut at a byte, sometimes with garbage behind it", cuts)
    fault.measured(log_bytes=len(written))


def some_work(app: App, path: Path) -> list[tuple[int, list[int]]]:
    """What was acknowledged, and where the log ended then. It begins anew, without how the tables were made."""
    app.find()
    apsw.Connection(str(path)).execute("pragma wal_checkpoint(truncate)").fetchall()
    acknowledged = []
    for _ in range(2):
        ids = accepted_ids(app)
        acknowledged.append((end_of_log(path), ids))
        hand = WorkerByHand(app.store, ("quick",), ("work",))
        calls = hand.claim(2, "work")
        hand.succeed(calls[0])  # the other one is held until the end, and a third is in line
    return acknowledged


def check_restored(folder: Path, database: bytes, log: bytes, accepted: list[int], fault: Fault) -> None:
    """What an App finds there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "jobs.db").write_bytes(database)
    (folder / "jobs.db-wal").write_bytes(log)
    with App(f"sqlite:///{folder}/jobs.db", name=NAME) as again:
        again.find(limit=1)
    fault.check(f"sqlite:///{folder}/jobs.db", NAME, accepted)


class PowerCut:
    """A file whose log gets shorter and shorter."""

    def __init__(self, path: Path, database: bytes, log: bytes, luck: Random) -> None:
        self.path, self.log, self.luck = path, Path(f"{path}-wal"), luck
        path.write_bytes(database)
        self.log.write_bytes(log)

    def content_at(self, length: int) -> int:
        """All pages that SQLite finds when it reads what is left of the log."""
        os.truncate(self.log, length)
        with self.log.open("ab") as log:
            log.write(self.luck.randbytes(self.luck.choice((0, 0, 0, 100, 5000))))  # what lay on the disk before
        opened = apsw.Connection(str(self.path))
        opened.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        found = hash(opened.serialize("main"))
        opened.close()
        Path(f"{self.path}-shm").unlink(missing_ok=True)
        return found


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
