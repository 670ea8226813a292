"""J11: retrying a final job makes a new job; the old one stays as it is."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import WAIT, App, Conflict, DuplicateJob, Failed, NotFound
from holdfast.clock import MovableClock
from holdfast.jobs.job import State

pytestmark = pytest.mark.claim("J11")
Make = Callable[..., App]


def failing(app: App) -> object:
    @app.queue("mail").job(name="send")
    def send(to: str) -> None:
        if to == "bad":
            raise Failed("no")

    return send


@pytest.mark.claim("J3")
@pytest.mark.parametrize("end", ["failed", "success", "aborted", "archived"])
def test_a_retry_is_a_new_job_with_the_same_type_key_and_payload(app: Make, clock: MovableClock, end: str) -> None:
    holdfast = app()
    send = failing(holdfast)
    old = send.using(job_key="k", priority=7, timeout=8, throttle_factor=0.5, retries=1).enqueue(
        "bad" if end == "failed" else "ok"
    )  # type: ignore[attr-defined]
    if end == "aborted":
        holdfast.abort(old.id)
    holdfast.run_until_idle()
    if end == "archived":
        holdfast.store.archive(-1)
    before = old.refresh()
    assert before.archived == (end == "archived")
    clock.advance(5)

    new = holdfast.retry(old.id)

    assert new.id > old.id
    assert (new.state, new.attempt, new.retry_of, new.duplicate) == (State.INITIAL, 0, old.id, False)
    for name in ("job_type", "job_key", "payload", "queue", "priority", "timeout", "throttle_factor", "retries"):
        assert getattr(new, name) == getattr(before, name)
    assert (new.create_time, new.scheduled_run_time) == (clock.now(), clock.now())
    assert new.refresh() == new
    assert old.refresh() == before
    assert old.history() == before.history()


@pytest.mark.claim("R4")
@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({"timeout": 30}, [30]),  # as long as a handler may take by default
        ({"timeout": 30, "retries": 3}, [30, 30, 30, 30]),
        ({}, [86400]),
    ],
)
def test_what_was_named_counts_as_named_in_a_retry_also_if_it_equals_the_default(
    app: Make, clock: MovableClock, options: dict[str, float], ends: list[float], archived: bool
) -> None:
    holdfast = app()

    @holdfast.queue("mail").job
    def ask() -> Any:
        return WAIT

    old = ask.using(**options).enqueue()
    holdfast.run_until_idle()
    holdfast.abort(old.id)
    if archived:
        holdfast.store.archive(-1)
    new = holdfast.retry(old.id)
    for seconds in ends:
        assert new.refresh().state != "final"
        holdfast.run_until_idle()
        clock.advance(seconds - 1)
        holdfast.store.end_overdue()
        assert new.refresh().situation == "waiting"
        clock.advance(1)
        holdfast.store.end_overdue()
    assert (new.refresh().outcome, new.refresh().failures) == ("error", len(ends))


def test_a_job_that_is_not_final_is_not_retried(app: Make) -> None:
    holdfast = app()
    job = failing(holdfast).enqueue("ok")  # type: ignore[attr-defined]

    with pytest.raises(Conflict, match=rf"Job {job.id} is still `initial`"):
        holdfast.retry(job.id)
    with pytest.raises(NotFound):
        holdfast.retry(job.id + 1)

    assert len(holdfast.find()) == 1


def test_a_retry_is_a_conflict_while_a_living_job_holds_the_key(app: Make) -> None:
    holdfast = app()
    send = failing(holdfast)
    old = send.using(job_key="k").enqueue("bad")  # type: ignore[attr-defined]
    holdfast.run_until_idle()
    living = send.using(job_key="k").enqueue("ok")  # type: ignore[attr-defined]

    with pytest.raises(Conflict) as raised:
        holdfast.retry(old.id)

    assert isinstance(raised.value, DuplicateJob)
    assert raised.value.job.id == living.id
    assert len(holdfast.find()) == 2


def test_a_job_may_be_retried_more_than_once_and_a_retry_of_a_retry_too(app: Make) -> None:
    holdfast = app()
    first = failing(holdfast).enqueue("bad")  # type: ignore[attr-defined]
    holdfast.run_until_idle()
    second, third = holdfast.retry(first.id), holdfast.retry(first.id)
    holdfast.run_until_idle()
    fourth = holdfast.retry(second.id)

    assert [job.retry_of for job in (second, third, fourth)] == [first.id, first.id, second.id]
    assert len({job.id for job in (first, second, third, fourth)}) == 4


@pytest.mark.claim("Q3")
def test_a_retry_stands_in_the_queue_that_its_type_has_now(app: Make) -> None:
    before, after = app(), app()
    old = failing(before).enqueue("bad")  # type: ignore[attr-defined]
    before.run_until_idle()

    @after.queue("post").job(name="send")
    def send(to: str) -> None: ...

    assert after.retry(old.id).queue == "post"
    assert old.refresh().queue == "mail"
