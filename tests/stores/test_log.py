"""The write-ahead log of an SQLite file: known by its inode, and longer than what is in it."""

import errno
import os
import shutil
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from holdfast import App
from holdfast.stores.sqlite import log as logs
from holdfast.stores.sqlite.log import LARGEST, ROOM, Log, Stat, Statx, look_at
from tests.sqlite_log import end_of_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.db-wal"
    file.write_bytes(b"frames")
    return file


def enqueue(app: App, count: int) -> list[int]:
    send = app.job_types["send"]
    return [send.enqueue(to=str(number)).id for number in range(count)]


def declared(path: Path) -> App:
    app = App(f"sqlite:///{path}")

    @app.queue("mail").job()
    def send(to: str) -> None: ...

    return app


@pytest.mark.parametrize("quick", [Stat, Statx])
def test_both_ways_to_look_at_a_file_see_the_same(log: Path, quick: type[Stat | Statx]) -> None:
    if quick is Statx and not isinstance(look_at(str(log)), Statx):
        pytest.skip("this system has no statx")
    found = log.stat()

    assert quick(str(log))() == (found.st_ino, found.st_size)
    log.unlink()
    with pytest.raises(FileNotFoundError):
        quick(str(log))()


def test_where_there_is_no_statx_it_is_stat(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "library", object())

    assert isinstance(look_at(str(log)), Stat)


def test_a_log_that_was_deleted_or_is_another_file_is_gone(log: Path, tmp_path: Path) -> None:
    watched = Log(str(log))
    assert not watched.is_gone()
    log.rename(tmp_path / "elsewhere")
    assert watched.is_gone()
    log.write_bytes(b"another")
    assert watched.is_gone()


def test_a_log_that_a_commit_made_longer_gets_room(log: Path) -> None:
    watched = Log(str(log))
    assert not watched.is_gone()
    assert log.read_bytes() == b"frames", "nothing was written to it yet"
    log.write_bytes(b"frames and more")

    for _ in range(3):  # what we wrote ourselves is no reason to write more
        assert not watched.is_gone()
        assert log.read_bytes() == b"frames and more" + ROOM


def test_room_that_others_made_is_room(log: Path) -> None:
    watched = Log(str(log))
    log.write_bytes(b"frames" + ROOM)

    assert not watched.is_gone()
    assert log.read_bytes() == b"frames" + ROOM


def test_a_log_that_sqlite_begins_anew_gets_no_more_room(log: Path) -> None:
    watched = Log(str(log))
    os.truncate(log, LARGEST)

    assert not watched.is_gone()
    assert log.stat().st_size == LARGEST


def test_room_is_never_made_in_another_file(log: Path, tmp_path: Path) -> None:
    watched = Log(str(log))
    log.rename(tmp_path / "elsewhere")
    log.write_bytes(b"another one")

    assert watched.is_gone()
    assert log.read_bytes() == b"another one"


def test_a_full_disk_is_for_the_next_commit_to_tell_of(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Log(str(log))
    log.write_bytes(b"frames and more")

    def full(descriptor: int, what: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "write", full)
    assert not watched.is_gone()


def test_commits_do_not_make_the_log_longer_but_for_room(path: Path) -> None:
    """Each of them would wait for the journal of the file system."""
    with declared(path) as app:
        enqueue(app, 5)
        sizes = []
        for _ in range(200):
            enqueue(app, 1)
            sizes.append(os.stat(f"{path}-wal").st_size)
        grown = [after - before for before, after in pairwise(sizes) if after != before]

        assert 0 < len(grown) <= 24, "of 600 pages, with room for 63 at a time"
        assert end_of_log(path) < sizes[-1]


@pytest.mark.claim("R1")
def test_a_log_with_room_in_it_is_read_whole_by_any_sqlite(path: Path, tmp_path: Path) -> None:
    """As after a crash: the log is all that has the jobs, and nobody has the index of it."""
    with declared(path) as app:
        ids = enqueue(app, 70)
        assert Path(f"{path}-wal").stat().st_size > end_of_log(path)
        for name in ("jobs.db", "jobs.db-wal"):
            shutil.copyfile(path.with_name(name), tmp_path / f"copy-{name}")
    copy = tmp_path / "copy-jobs.db"
    stranger = apsw.Connection(str(copy))
    assert [row[0] for row in stranger.execute("select id from holdfast_mail order by id")] == ids
    assert stranger.execute("pragma integrity_check").fetchall() == [("ok",)]
    stranger.close()

    with declared(copy) as again:
        assert again.run_until_idle() == 70


def test_a_file_that_is_given_by_a_link_is_the_file(tmp_path: Path) -> None:
    """SQLite has its log beside the file, not beside the link."""
    folder = tmp_path / "data"
    folder.mkdir()
    with declared(folder / "real.db") as app:
        ids = enqueue(app, 1)
    link = tmp_path / "link.db"
    link.symlink_to(folder / "real.db")
    with declared(link) as app, app.worker():
        ids += enqueue(app, 2)
        for job_id in ids:
            app.get(job_id).wait(30)
    assert not (tmp_path / "link.db-wal").exists()


def test_a_program_may_go_to_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with declared(Path("jobs.db")) as app:
        enqueue(app, 1)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        enqueue(app, 1)
        assert len(app.find()) == 2
