"""What the overview calls wrong, and what it does not."""

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.jobs.breaker import Breaker, BreakerState
from holdfast.jobs.schedules import Schedule
from holdfast.stores.contract import Glance, QueueLoad, Running, ScheduleRow, WorkerRow
from holdfast.web.trouble import Known, troubles

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def load(**more: Any) -> QueueLoad:
    values = {"name": "mail", "paused": False, "throttle_limit": 0, "ready": 0, "waiting": 0, "parked": 0, "running": 0}
    return QueueLoad(**{**values, "ended_per_second": 0.0, **more})


def worker(silent: float = 1, **more: Any) -> WorkerRow:
    values: dict[str, Any] = {"id": 1, "name": "ada", "host": "here", "pid": 1, "version": "0", "queues": ("mail",)}
    values |= {"types": ("send",), "labels": (), "concurrency": 4, "beat": 1, "lock_path": None, "start_time": NOW}
    return WorkerRow(**{**values, "beat_time": NOW - timedelta(seconds=silent), "stopping": False, **more})


def known(*loads: QueueLoad, workers: Any = None, breakers: Any = (), schedules: Any = (), **glance: Any) -> Known:
    seen = Glance(NOW, loads or (load(),), glance.pop("slowest", ()), glance.pop("in_hand", {}), **glance)
    return Known(seen, [worker()] if workers is None else workers, breakers, schedules, ())


def texts(found: Known) -> list[str]:
    return [trouble.text for trouble in troubles(found)]


def test_nothing_is_wrong_with_an_instance_that_works() -> None:
    assert texts(known(load(ready=3, running=2, due_since=NOW - timedelta(seconds=5)))) == []


def test_no_worker_is_worse_when_jobs_are_due() -> None:
    (idle,), (waiting,) = troubles(known(workers=[])), troubles(known(load(ready=2), workers=[]))
    assert (idle.tone, waiting.tone) == ("warn", "bad")
    assert waiting.text == "No worker is alive; 2 jobs are due."


def test_types_that_nobody_handles_are_named_with_their_jobs() -> None:
    assert texts(known(unhandled={"transcode": 3})) == ["No live worker handles transcode: 3 jobs are waiting."]
    assert texts(known(unhandled={"send": 3})) == []


def test_a_job_past_its_timeout_is_stuck() -> None:
    job = Running(7, "send", None, "mail", 1, NOW - timedelta(minutes=5), "1", None, timeout=30)
    assert texts(known(slowest=(job,))) == [
        "Job 7 (send) is stuck: it has been running for 5 min, past its timeout of 30 s."
    ]


def test_the_dead_of_the_last_hour_are_counted_and_led_to() -> None:
    (trouble,) = troubles(known(load(dead=4)))
    assert trouble.text == "4 jobs of queue mail ended without success in the last hour."
    assert trouble.link == "/jobs?status=dead&queue=mail"


def test_an_open_breaker_says_when_it_is_probed() -> None:
    open_ = Breaker("send", BreakerState.OPEN, failures=5, probe_time=NOW + timedelta(seconds=30))
    assert texts(known(breakers=[open_])) == [
        "The breaker of send is open after 5 failures in a row; one job probes it in 30 s."
    ]


def test_a_paused_queue_is_wrong_only_while_jobs_are_due_in_it() -> None:
    assert texts(known(load(paused=True))) == []
    assert texts(known(load(paused=True, ready=1))) == ["Queue mail is paused, and 1 job is due in it."]


def test_a_job_that_is_due_for_long_is_wrong_unless_the_limit_or_full_hands_say_why() -> None:
    old = {"ready": 1, "due_since": NOW - timedelta(minutes=3)}
    assert len(texts(known(load(**old)))) == 1
    assert texts(known(load(**old, throttle_limit=2, used=2.0))) == []
    assert texts(known(load(**old), in_hand={1: 4})) == []


def test_a_silent_worker_and_a_schedule_in_trouble_are_told() -> None:
    row = ScheduleRow(
        Schedule(name="nightly", job_type="send"), "code", True, False, None, None, None, 0, "no such queue", NOW, NOW
    )
    assert texts(known(workers=[worker(silent=60)], schedules=[row])) == [
        "Worker 1 (ada) has given no sign of life for 60 s; it holds 0 jobs.",
        "Schedule nightly could not fire: no such queue",
    ]
