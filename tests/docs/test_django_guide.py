"""The file of the guide to Django, in a program with a worker: lost sessions cost no later job, and children have their own."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import DOCS, blocks, python
from tests.docs.test_guides import URL

ROUNDS = 4
PROGRAM = f"""
import json, os
import shop_jobs
from asgiref.sync import sync_to_async
from django.db import close_old_connections, connection
from shop_jobs import app, reports

KILL = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity "
    "where application_name = 'shop' and datname = current_database() and pid <> pg_backend_pid()"
)

def ask(statement="select pg_backend_pid()"):
    with connection.cursor() as cursor:
        return cursor.execute(statement).fetchone()[0]

@reports.job(retries=0)
def in_thread():
    return [os.getpid(), ask()]

@reports.job(retries=0, isolation="process")
def in_child():
    return [os.getpid(), ask()]

@reports.job(retries=0)
async def on_loop():
    await sync_to_async(close_old_connections)()
    try:
        return [os.getpid(), await sync_to_async(ask)()]
    finally:
        await sync_to_async(close_old_connections)()

@reports.job(retries=0)
def broken():
    ask("select pg_terminate_backend(pg_backend_pid())")

own = ask()  # the parent has a session before it forks
found = {{"parent": [os.getpid(), own], "ended": [], "killed": 0, "broken": []}}
with app.worker(concurrency=2):
    for _ in range({ROUNDS}):
        jobs = [each.enqueue() for each in (in_thread, in_child, on_loop) * 3]
        ends = [job.wait(timeout=90) for job in jobs]
        found["ended"] += [[job.job_type, job.outcome, str(job.error), job.result] for job in ends]
        found["broken"].append(broken.enqueue().wait(timeout=90).outcome)
        found["killed"] += ask(KILL)
found["parent after"] = ask()
print(json.dumps(found))
"""


def files(folder: Path, url: str, age: int) -> None:
    for block in blocks(DOCS / "guides" / "use-django.md"):
        if block.file:
            text = block.text.replace(URL, url).replace('"CONN_MAX_AGE": 600', f'"CONN_MAX_AGE": {age}')
            (folder / block.file).write_text(text)
    (folder / "program.py").write_text(PROGRAM)


@pytest.mark.long
@pytest.mark.parametrize("age", [600])
def test_jobs_succeed_after_sessions_are_killed_and_children_leave_the_parents_alone(
    tmp_path: Path, postgres_url: str, age: int
) -> None:
    files(tmp_path, postgres_url, age)

    found: dict[str, Any] = json.loads(python(["program.py"], tmp_path))

    assert [each for each in found["ended"] if each[1] != "success"] == []
    assert len(found["ended"]) == 9 * ROUNDS
    assert found["broken"] == ["error"] * ROUNDS, "an attempt whose session is killed fails"
    process, session = found["parent"]
    assert found["parent after"] == session, "no child has ended the session of the parent"
    assert {each[3][0] == process for each in found["ended"] if each[0] == "in_child"} == {False}
    assert session not in {each[3][1] for each in found["ended"]}
    if age:
        assert found["killed"] >= ROUNDS, "sessions are kept, and were killed"
