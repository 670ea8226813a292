"""Jobs, queues, workflows and schedules over HTTP: what is asked for happens, and lists are whole."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import App
from holdfast.stores import listing
from tests.damage import damage
from tests.raw_sql import RawSql
from tests.web.conftest import Client


def body(**more: Any) -> dict[str, Any]:
    return {"queue": "mail", "job_type": "send", "payload": {"to": "a@b.c"}, **more}


def all_pages(client: Client, path: str, **filters: Any) -> tuple[list[Any], int, list[bool]]:
    items: list[Any] = []
    cursor, pages, complete = None, 0, []
    while True:
        params = {**filters, **({"cursor": cursor} if cursor else {})}
        page = client.get(path, params=params).json()
        items += page["items"]
        complete.append(page["complete"])
        cursor, pages = page["cursor"], pages + 1
        if cursor is None:
            return items, pages, complete


def test_a_job_is_added_with_everything_that_using_knows(client: Client, shop: App) -> None:
    when = shop.clock.now() + timedelta(hours=1)
    options: dict[str, Any] = {"job_key": "k", "priority": 1, "timeout": 5, "throttle_factor": 2, "retries": 0}
    answer = client.post("/api/v1/jobs", json=body(**options, scheduled_run_time=when.isoformat()))
    assert answer.status_code == 201
    job = answer.json()
    assert {name: job[name] for name in options} == options
    assert job["scheduled_run_time"] == "2026-01-01T01:00:00.000000Z"
    assert job["state"] == "initial"
    assert client.get(f"/api/v1/jobs/{job['id']}").json() == job


def test_a_payload_that_is_too_deep_breaks_neither_list_nor_page(client: Client, shop: App, sql: RawSql) -> None:
    job = client.post("/api/v1/jobs", json=body()).json()["id"]
    for levels in (140, 900, 20_000):
        text = '{"to": ' + "[" * levels + "]" * levels + "}"
        damage(sql, "*", "payload", text, f"id = {job}")
        assert [each["id"] for each in client.get("/api/v1/jobs").json()["items"]] == [job]
        assert client.get(f"/api/v1/jobs/{job}").json()["payload"]["to"]
        for page in (f"/jobs/{job}", "/jobs"):
            assert client.get(page).status_code == 200


def test_a_key_that_is_held_answers_200_with_the_living_job(client: Client) -> None:
    first = client.post("/api/v1/jobs", json=body(job_key="k"))
    second = client.post("/api/v1/jobs", json=body(job_key="k"))
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json() | {"duplicate": True}
    third = client.post("/api/v1/jobs", json=body(job_key="k", on_duplicate="raise"))
    assert (third.status_code, third.json()["code"]) == (409, "duplicate_job")


@pytest.mark.parametrize(
    ("wrong", "status", "code"),
    [
        ({"payload": {"too": "x"}}, 400, "invalid"),
        ({"payload": {"to": 1}}, 400, "invalid"),
        ({"payload": [1]}, 400, "invalid"),
        ({"priority": "1"}, 400, "invalid"),
        ({"priority": True}, 400, "invalid"),
        ({"timeout": -1}, 400, "invalid"),
        ({"scheduled_run_time": "2026-01-01T00:00:00"}, 400, "invalid"),
        ({"scheduled_run_time": "tomorrow"}, 400, "invalid"),
        ({"on_duplicate": "ignore"}, 400, "invalid"),
        ({"unknown": 1}, 400, "invalid"),
        ({"queue": "nowhere", "job_type": "other"}, 404, "not_found"),
        ({"queue": "slow"}, 409, "conflict"),
        ({"queue": "'; drop table jobs; --"}, 400, "invalid"),
        ({"job_key": "a\0b"}, 400, "invalid"),
        ({"payload": {"to": "\ud800"}}, 400, "invalid"),
    ],
)
def test_a_wrong_job_is_refused_and_nothing_is_stored(
    client: Client, wrong: dict[str, Any], status: int, code: str
) -> None:
    import json

    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/v1/jobs", content=json.dumps(body(**wrong)), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert client.get("/api/v1/jobs").json()["items"] == []


def test_a_request_with_a_key_is_carried_out_once(client: Client, shop: App) -> None:
    headers = {"Idempotency-Key": "order-7"}
    first = client.post("/api/v1/jobs", json=body(), headers=headers)
    shop.run_until_idle()
    second = client.post("/api/v1/jobs", json=body(), headers=headers)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json()["id"] == first.json()["id"]
    assert second.json()["state"] == "final"
    other = client.post("/api/v1/jobs", json=body(priority=1), headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert len(client.get("/api/v1/jobs").json()["items"]) == 1


def test_a_request_that_was_refused_may_be_made_again_with_its_key(client: Client) -> None:
    headers = {"Idempotency-Key": "order-8"}
    assert client.post("/api/v1/jobs", json=body(payload={}), headers=headers).status_code == 400
    assert client.post("/api/v1/jobs", json=body(), headers=headers).status_code == 201


def test_a_list_is_newest_first_and_whole_over_its_pages(client: Client, shop: App) -> None:
    ids = [shop.enqueue("mail", "send", {"to": str(number)}).id for number in range(25)]
    items, pages, complete = all_pages(client, "/api/v1/jobs", limit=10)
    assert [item["id"] for item in items] == ids[::-1]
    assert (pages, complete) == (3, [True] * 3)


def test_a_page_that_looked_at_enough_says_so_and_the_next_goes_on(
    client: Client, shop: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "BUDGET", 5)
    wanted = shop.enqueue("mail", "send", {"to": "first"}, priority=7)
    for number in range(17):
        shop.enqueue("mail", "send", {"to": str(number)})
    items, pages, complete = all_pages(client, "/api/v1/jobs", priority=7, limit=10)
    assert [item["id"] for item in items] == [wanted.id]
    assert complete == [False] * (pages - 1) + [True]
    assert pages == 4


def test_every_filter_narrows(client: Client, shop: App) -> None:
    done = shop.enqueue("mail", "send", {"to": "a"}, job_key="a", priority=5)
    refused = shop.enqueue("mail", "refuse", {"why": "a strange reason"})
    asked = shop.enqueue("mail", "ask", job_key="q")
    shop.run_until_idle()
    again = shop.retry(done.id)
    later = shop.enqueue("slow", "rest", {}, delay=600)
    expected = {
        "job_type=send": {done.id, again.id},
        "job_key=q": {asked.id},
        "job_type=send&job_key=a": {done.id, again.id},
        "queue=slow": {later.id},
        "queue=nowhere": set(),
        "state=initial": {again.id, later.id},
        "state=running": {asked.id},
        "state=final": {done.id, refused.id},
        "state=error": set(),
        "status=completed": {done.id},
        "status=dead": {refused.id},
        "status=pending": {again.id, later.id},
        "status=dead&state=initial": set(),
        "situation=waiting": {asked.id},
        "situation=waiting&state=running": {asked.id},
        "situation=loose&state=running": set(),
        "outcome=failed": {refused.id},
        "outcome=success&status=dead": set(),
        "priority=5": {done.id, again.id},
        f"retry_of={done.id}": {again.id},
        "attempt=0": {again.id, later.id},
        "failures=0&state=final": {done.id} | ({refused.id} & {each.id for each in shop.find() if each.failures == 0}),
        "error=strange reason": {refused.id},
        "scheduled_run_time_since=2026-01-01T00:05:00Z": {later.id},
        "scheduled_run_time_until=2026-01-01T00:05:00Z": {done.id, refused.id, asked.id, again.id},
        "end_time_since=2026-01-01T00:00:00Z": {done.id, refused.id},
        "create_time_until=2025-12-31T00:00:00Z": set(),
        "create_time_since=2025-12-31T00:00:00Z": {done.id, refused.id, asked.id, again.id, later.id},
    }
    for query, ids in expected.items():
        answer = client.get(f"/api/v1/jobs?{query}")
        assert answer.status_code == 200, (query, answer.text)
        assert {item["id"] for item in answer.json()["items"]} == ids, query


def test_archived_jobs_stand_in_the_list_where_they_belong(client: Client, shop: App) -> None:
    old = [shop.enqueue("mail", "send", {"to": str(number)}).id for number in range(3)]
    shop.run_until_idle()
    shop.clock.advance(8 * 86400)  # type: ignore[attr-defined]
    shop.store.archive(7 * 86400)
    new = [shop.enqueue("mail", "send", {"to": str(number)}).id for number in range(3)]
    assert [each["id"] for each in client.get("/api/v1/jobs").json()["items"]] == new[::-1]
    items, _, _ = all_pages(client, "/api/v1/jobs", archive="true", limit=2)
    assert [each["id"] for each in items] == (old + new)[::-1]
    assert client.get(f"/api/v1/jobs/{old[0]}").json()["archived"] is True


def test_a_waiting_job_is_answered_by_id_and_by_key(client: Client, shop: App) -> None:
    first, second, third = (shop.enqueue("mail", "ask", job_key=key).id for key in ("a", "b", "c"))
    shop.run_until_idle()
    done = client.post(f"/api/v1/jobs/{first}/complete", json={"result": {"ok": True}})
    assert (done.status_code, done.json()["result"]) == (200, {"ok": True})
    failed = client.post("/api/v1/types/ask/fail", json={"job_key": "b", "error": "lost"})
    assert (failed.json()["id"], failed.json()["outcome"]) == (second, "failed")
    assert client.post("/api/v1/types/ask/complete", json={"job_key": "c", "result": 3}).json()["id"] == third
    assert client.post("/api/v1/types/ask/complete", json={"job_key": "c"}).status_code == 409
    assert client.post("/api/v1/types/ask/complete", json={"job_key": "never"}).status_code == 404
    assert client.post(f"/api/v1/jobs/{first}/fail").status_code == 409


def test_a_log_is_paged(client: Client, shop: App) -> None:
    from holdfast import current_job

    @shop.queue("mail").job()
    def talk() -> None:
        for number in range(5):
            current_job().log(f"line {number}")

    job = talk.enqueue()
    shop.run_until_idle()
    lines, pages, _ = all_pages(client, f"/api/v1/jobs/{job.id}/log", limit=2)
    assert [line["text"] for line in lines] == [f"line {number}" for number in range(5)]
    assert pages == 3


def test_a_queue_is_paused_and_limited(client: Client, shop: App) -> None:
    assert client.post("/api/v1/queues/mail/pause").json()["paused"] is True
    changed = client.patch("/api/v1/queues/mail", json={"throttle_limit": 3, "paused": False}).json()
    assert (changed["throttle_limit"], changed["set_limit"], changed["paused"]) == (3, 3, False)
    assert client.patch("/api/v1/queues/mail", json={"throttle_limit": None}).json()["set_limit"] is None
    assert client.patch("/api/v1/queues/mail", json={"order": "schedule"}).status_code == 400
    assert client.post("/api/v1/queues/nowhere/pause").status_code == 404
    shop.enqueue("mail", "send", {"to": "a"})
    counted = client.get("/api/v1/queues/mail?counts=true").json()
    assert counted["jobs"]["pending"] == 1
    assert counted["load"]["ready"] == 1


def test_a_workflow_is_submitted_followed_and_retried(client: Client, shop: App) -> None:
    first = client.post("/api/v1/workflows/report", json={"trigger": "monday", "params": {"day": "monday"}})
    assert (first.status_code, first.json()["state"]) == (201, "UNDONE")
    assert client.post("/api/v1/workflows/report", json={"trigger": "monday"}).status_code == 200
    shop.run_until_idle()
    run = client.get("/api/v1/workflows/report/monday").json()
    assert (run["state"], run["steps"]["count"]["succeeded"]) == ("SUCCESS", 2)
    tasks, pages, _ = all_pages(client, "/api/v1/workflows/report/monday/steps/count/tasks", limit=1)
    assert [task["job_key"] for task in tasks] == ["monday:count.shard-0", "monday:count.shard-1"]
    assert pages == 2
    assert client.post("/api/v1/workflows/report/monday/retry").status_code == 409
    assert client.get("/api/v1/workflows/report/tuesday").status_code == 404
    assert client.post("/api/v1/workflows/nothing", json={"trigger": "x"}).status_code == 404
    assert [each["trigger"] for each in client.get("/api/v1/workflows?state=SUCCESS").json()["items"]] == ["monday"]


def test_what_is_held_is_listed_and_released(client: Client) -> None:
    held = client.post("/api/v1/holds", json={"level": "pick", "workflow": "report"})
    assert (held.status_code, held.json()["actor"]) == (201, "token:tests")
    assert [each["level"] for each in client.get("/api/v1/holds").json()["items"]] == ["pick"]
    assert client.post("/api/v1/holds/release", json={"level": "pick", "workflow": "report"}).status_code == 204
    assert client.post("/api/v1/holds/release", json={"level": "pick", "workflow": "report"}).status_code == 404


def test_a_schedule_is_put_fired_and_removed(client: Client) -> None:
    made = client.put("/api/v1/schedules/often", json={**body(), "every": 60})
    assert (made.status_code, made.json()["source"]) == (200, "operator")
    job = client.post("/api/v1/schedules/often/fire").json()["id"]
    assert [each["job"] for each in client.get("/api/v1/schedules/often/firings").json()["items"]] == [job]
    assert client.delete("/api/v1/schedules/often").status_code == 204
    assert client.get("/api/v1/schedules/often").status_code == 404
    assert client.put("/api/v1/schedules/wrong", json={**body(), "every": 60, "cron": "* * * * *"}).status_code == 400


def test_metrics_say_how_full_everything_is(client: Client, shop: App) -> None:
    shop.enqueue("mail", "send", {"to": "a"})
    shop.enqueue("mail", "refuse", {"why": "no"})
    shop.run_until_idle()
    shop.enqueue("mail", "send", {"to": "b"})
    shop.clock.advance(30)  # type: ignore[attr-defined]
    answer = client.get("/metrics")
    said = answer.text
    assert answer.headers["content-type"].count("charset") == 1  # Prometheus reads nothing of a type with a word twice
    assert 'holdfast_queue_ready{queue="mail"} 1.0' in said
    assert 'holdfast_queue_oldest_due_seconds{queue="mail"} 30.0' in said
    assert 'holdfast_queue_throttle_limit{queue="slow"} 1.0' in said
    assert 'holdfast_recent_ends{job_type="refuse",outcome="failed"} 1.0' in said
    assert 'quantile="0.99"' in said
    for name in ("workers", "sweeper_work", "database_bytes", "queue_ended_per_second", "queue_used", "info"):
        assert f"\nholdfast_{name}" in said
    assert "\nholdfast_database_bytes 0.0" not in said
