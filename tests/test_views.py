"""The JSON shapes: their names are relied upon."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast import App, Failed, views
from holdfast.jobs.job import Attempt, AttemptEnd, Job, JobError, Move, Progress, State
from holdfast.stores.contract import QueueRow, WorkerRow

# As the contract has them.
CONTRACT = (
    "id job_type job_key queue state status outcome payload result error attempt failures priority timeout "
    "throttle_factor time_windows scheduled_run_time create_time update_time start_time end_time execution_time "
    "progress duplicate"
)
BESIDES = "answer run situation losses crashes retries expires_time total_time worker retry_of archived"
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def app() -> App:
    app = App("sqlite://:memory:", name="shop")

    @app.queue("mail").job(retries=0, time_windows=["00:00-23:59:59"])
    def send(to: str) -> dict[str, str]:
        if to == "nobody":
            raise Failed("nobody is there")
        return {"sent": to}

    return app


def job_of(app: App, to: str, *, run: bool = True) -> Job:
    job = app.enqueue("mail", "send", {"to": to}, job_key=to, time_windows=[])
    if run:
        app.run_until_idle()
    return app.get(job.id)


def test_a_job_has_the_names_of_the_contract_and_no_others(app: App) -> None:
    assert sorted(views.job(job_of(app, "ann"))) == sorted(f"{CONTRACT} {BESIDES}".split())


def test_a_job_shows_every_field_of_the_value_but_two() -> None:
    """Where it came from is nothing to show, and a damaged column shows in its place that it is damaged."""
    assert set(views.JOB) == set(Job.__struct_fields__) - {"source", "damaged"}


def test_every_shape_is_json(app: App) -> None:
    for to, run in (("ann", True), ("nobody", True), ("bob", False)):
        job = job_of(app, to, run=run)
        shapes: list[dict[str, Any]] = [views.job(job)]
        shapes += [views.move(move) for move in job.history()] + [views.attempt(each) for each in job.attempts()]
        assert json.loads(json.dumps(shapes, allow_nan=False)) == shapes


def test_a_successful_job(app: App) -> None:
    shape = views.job(job_of(app, "ann"))
    assert (shape["state"], shape["status"], shape["outcome"]) == ("final", "completed", "success")
    assert (shape["payload"], shape["result"], shape["error"]) == ({"to": "ann"}, {"sent": "ann"}, None)
    assert (shape["job_key"], shape["time_windows"], shape["duplicate"]) == ("ann", [], False)


def test_an_error_has_a_type_a_message_and_a_kind(app: App) -> None:
    shape = views.job(job_of(app, "nobody"))
    assert shape["error"] == {"type": "Failed", "message": "nobody is there", "kind": "failed"}


def test_moments_are_utc_with_six_decimals_and_a_z() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=2)))
    assert views.move(Move(east, None, State.INITIAL, 0, "enqueued", "app")) == {
        "time": "2026-11-15T12:00:00.000000Z",
        "from_state": None,
        "to_state": "initial",
        "attempt": 0,
        "cause": "enqueued",
        "actor": "app",
    }


def test_an_attempt() -> None:
    error = JobError("ValueError", "no", "exception")
    assert views.attempt(Attempt(2, NOON, None, AttemptEnd.TIMEOUT, error, "Traceback …", "7")) == {
        "attempt": 2,
        "start_time": "2026-11-15T12:00:00.000000Z",
        "end_time": None,
        "outcome": "timeout",
        "error": {"type": "ValueError", "message": "no", "kind": "exception"},
        "traceback": "Traceback …",
        "worker": "7",
    }


def test_progress_is_a_fraction_and_a_text(app: App) -> None:
    assert views._plain(Progress(0.4, "nearly")) == {"fraction": 0.4, "text": "nearly"}


def test_a_queue_counts_its_jobs_in_every_status() -> None:
    row = QueueRow("mail", "shop_mail", "schedule", 10, '{"kind":"rate","count":1,"per":60,"burst":1}', 5, True)
    assert views.queue(row, {"pending": 3}) == {
        "name": "mail",
        "order": "schedule",
        "throttle_limit": 5,
        "declared_limit": 10,
        "set_limit": 5,
        "paused": True,
        "table_name": "shop_mail",
        "throttler": {"kind": "rate", "count": 1, "per": 60, "burst": 1},
        "jobs": {"pending": 3, "running": 0, "failed": 0, "completed": 0, "dead": 0},
        "load": None,
    }


def test_a_worker() -> None:
    row = WorkerRow(7, "w", "host", 12, "1.0", ("mail",), ("send",), ("gpu",), 8, 4, "/lock", NOON, NOON, False)
    assert views.worker(row, 3) == {
        "id": 7,
        "name": "w",
        "host": "host",
        "pid": 12,
        "version": "1.0",
        "queues": ["mail"],
        "job_types": ["send"],
        "labels": ["gpu"],
        "duties": ["run", "sweep", "schedule", "serve"],
        "concurrency": 8,
        "start_time": "2026-11-15T12:00:00.000000Z",
        "beat_time": "2026-11-15T12:00:00.000000Z",
        "stopping": False,
        "jobs": 3,
    }
