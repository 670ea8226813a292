"""Commands about jobs, runs, schedules and workers answer, whatever stands in a row."""

import json

import pytest

from holdfast import App
from tests.cli.conftest import Call
from tests.damage import JOB, TEXTS, damage
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("J13")
HALF = TEXTS["half an object"]


@pytest.fixture
def sql(url: str, shop: App) -> RawSql:
    return RawSql(url, "shop")


@pytest.mark.parametrize("column", JOB)
def test_each_command_about_jobs_answers_though_one_is_damaged(
    cli: Call, shop: App, url: str, sql: RawSql, column: str
) -> None:
    """Each column in some of the ways, for people and for programs."""
    ended, sound = (shop.job_types["send"].enqueue(to=to).id for to in ("ann", "bob"))
    shop.run_until_idle()
    waiting = shop.job_types["send"].using(delay=3600).enqueue(to="eve").id
    commands = [("jobs", "list"), ("jobs", "list", "--archive"), ("queues", "list")]
    for verb in ("show", "explain", "history", "attempts", "log"):
        commands += [("jobs", verb, str(job_id)) for job_id in (ended, waiting)]
    for text in [*TEXTS.values()][JOB.index(column) % 3 :: 3]:
        damage(sql, "*", column, text, f"id in ({ended}, {waiting})")
        for form in ((), ("--json",)):
            for command in commands:
                answer = cli(*command, *form, "--url", url)
                assert (answer.code, answer.err) == (0, ""), (text[:20], command, answer)
        listed = {job["id"]: job for job in cli("jobs", "list", "--json", "--url", url).json}
        assert listed[sound]["payload"] == {"to": "bob"}
        if column == "payload":
            assert listed[ended]["payload"]["damaged"]["text"] == text[:10_000]
    assert cli("jobs", "abort", str(waiting), "--url", url).code == 0
    assert shop.get(waiting).final


def test_the_archive_is_exported_with_its_damaged_rows(cli: Call, shop: App, url: str, sql: RawSql) -> None:
    first, second = (shop.job_types["send"].enqueue(to=to).id for to in ("ann", "bob"))
    shop.run_until_idle()
    assert cli("archive", "--older-than", "0", "--url", url).code == 0
    for column in ("payload", "result", "time_windows", "answer"):
        damage(sql, "archive", column, HALF, f"id = {first}")
    answer = cli("archive", "--export", "jobs.jsonl", "--url", url)
    assert answer.code == 0, answer
    with open("jobs.jsonl", encoding="utf-8") as file:
        jobs = {job["id"]: job for job in map(json.loads, file)}
    assert jobs[second]["result"] == "hi bob"
    assert jobs[first]["result"] == {"damaged": {"text": HALF, "reason": "Input data was truncated"}}
