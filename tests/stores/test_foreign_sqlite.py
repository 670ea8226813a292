"""R1, Q6: other SQLite libraries on Holdfast's file. From outside they are welcome; in our process they are dangerous.

When the standard library's sqlite3 closes the file in our process, it drops our locks and deletes our write-ahead log
(fault 6). An acknowledged job must survive that, or the enqueue must say that it did not happen.
"""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, Unavailable

pytestmark = pytest.mark.claim("R1", "Q6")
SOURCES = str(Path(holdfast.__file__).parent.parent)


def elsewhere(code: str, path: Path) -> Any:
    """What another process prints as JSON; it has `app` on the file, and `json`."""
    head = f"import json, holdfast; app = holdfast.App('sqlite:///{path}'); app.queue('mail'); "
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    done = subprocess.run(
        [sys.executable, "-c", head + code], capture_output=True, text=True, check=True, env=environment
    )
    return json.loads(done.stdout)


def stranger_looks(path: Path) -> sqlite3.Connection:
    stranger = sqlite3.connect(path)
    assert stranger.execute("select count(*) from holdfast_mail").fetchone()[0] > 0
    return stranger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.mark.fault(6, "stdlib sqlite3 opens and closes the file in our process")
@pytest.mark.parametrize("closes", ["before the enqueue", "after the enqueue"])
def test_no_acknowledged_job_is_lost_to_another_library_in_our_process(path: Path, closes: str) -> None:
    accepted: list[int] = []
    refused: list[str] = []
    with App(f"sqlite:///{path}") as own:
        own.queue("mail")
        accepted.append(own.enqueue("mail", "send", {}).id)
        for _ in range(3):
            stranger = stranger_looks(path)
            if closes == "before the enqueue":
                stranger.close()
            try:
                accepted.append(own.enqueue("mail", "send", {}).id)
            except Unavailable as error:
                refused.append(str(error))
            stranger.close()

    assert set(accepted) <= set(elsewhere("print(json.dumps([job.id for job in app.find()]))", path))
    assert len(refused) == (3 if closes == "before the enqueue" else 2)  # the log was gone, and it was noticed
    assert all("another SQLite library in this process" in text for text in refused)


@pytest.mark.fault(6, "the WAL is deleted under us")
def test_what_others_stored_after_our_log_was_deleted_is_not_overwritten_when_we_close(path: Path) -> None:
    own = App(f"sqlite:///{path}")
    own.queue("mail")
    ours = own.enqueue("mail", "send", {}).id
    stranger_looks(path).close()
    with pytest.raises(Unavailable):
        own.enqueue("mail", "send", {})
    theirs = elsewhere("print(json.dumps([app.enqueue('mail', 'send', {}).id for _ in range(20)])); app.close()", path)

    own.close()

    found = elsewhere(
        "print(json.dumps([[job.id for job in app.find()], [good for _, good, _ in app.store.check()]]))", path
    )
    assert set(found[0]) >= {ours, *theirs}
    assert all(found[1])


@pytest.mark.fault(6, "the WAL is deleted under us")
def test_a_store_whose_log_was_deleted_accepts_nothing_more(path: Path) -> None:
    with App(f"sqlite:///{path}") as own:
        own.queue("mail")
        own.enqueue("mail", "send", {})
        os.unlink(f"{path}-wal")
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"was deleted while Holdfast had it open.* restart this process"):
                own.enqueue("mail", "send", {})


@pytest.mark.claim("J2")
@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 37), reason="this library does not know strict tables")
def test_from_another_process_any_current_library_can_read_the_file_and_is_held_to_the_law(path: Path) -> None:
    """Also an older one: the schema uses nothing that SQLite of 2021 cannot read."""
    with App(f"sqlite:///{path}") as own:
        own.queue("mail")
        job = own.enqueue("mail", "send", {"to": "a"}, job_key="k")
        code = f"""
import sqlite3, sys
connection = sqlite3.connect({str(path)!r}, isolation_level=None)
print(connection.execute("select id, state, payload from holdfast__job").fetchall())
for write in sys.argv[1:]:
    try:
        connection.execute(write)
        print("accepted")
    except sqlite3.IntegrityError as error:
        print(error)
"""
        writes = [
            "update holdfast_mail set state = 'error', error = '{}', attempt = 1",
            "delete from holdfast_mail",
            "insert or ignore into holdfast_mail select * from holdfast_mail",
            "insert or replace into holdfast_mail select * from holdfast_mail",
            "update holdfast_mail set job_key = 'other'",
        ]
        said = subprocess.run(
            [sys.executable, "-c", code, *writes], capture_output=True, text=True, check=True
        ).stdout.splitlines()

        assert said[0] == str([(job.id, "initial", '{"to":"a"}')])
        assert said[1:] == [
            "holdfast law: a job in `initial` may not become `error`",
            "holdfast law: a job in `initial` may not be deleted, only one in `final` may",
            "holdfast law: a new job must be `initial` and have an id of its own",
            "holdfast law: a new job must be `initial` and have an id of its own",
            "holdfast law: a job in `initial` may not become `initial` that way",
        ]
        assert job.refresh() == job
        assert own.enqueue("mail", "send", {}).id > job.id
