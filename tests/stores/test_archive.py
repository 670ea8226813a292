"""E4, J3: finished jobs move to the archive whole, and are read there as before."""

from collections.abc import Callable

import pytest

from holdfast import App, NotFound
from holdfast.clock import MovableClock
from holdfast.stores.contract import Done, Filter, QueueDeclared, Store, TypeRow
from tests.by_hand import WorkerByHand, add
from tests.invariants import check_invariants, final_rows
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("E4")
WEEK = 7 * 86400.0


def one_of_each(store: Store) -> list[int]:
    """Jobs that ended in every way, each with a story."""
    worker = WorkerByHand(store)
    ids = []
    for end in (worker.succeed, lambda call: worker.fail(call, "failed"), worker.fail):
        ids.append(add(store, job_key=f"k{len(ids)}", retries=0, payload='{"to":"é\\\\\\t"}').id)
        end(worker.claim_one())
    ids.append(store.abort(add(store).id, "ann").id)
    call = add(store)
    worker.hand_back(worker.claim_one())
    worker.succeed(worker.claim_one(), result='{"n":[1.5,null]}')
    ids.append(call.id)
    return ids


@pytest.mark.claim("J3")
def test_jobs_of_every_outcome_move_a_week_after_their_end(
    store: Store, sql: RawSql, clock: MovableClock, url: str, instance: str
) -> None:
    ids = one_of_each(store)
    living = add(store)
    before = {job_id: (store.get(job_id), store.history(job_id), store.attempts(job_id)) for job_id in ids}
    rows = final_rows(url, instance)
    clock.advance(WEEK)
    assert store.archive(WEEK) == 0
    clock.advance(1)

    assert store.archive(WEEK) == len(ids)

    assert [row["id"] for row in sql("select id from {job}")] == [living.id]
    for job_id in ids:
        job, history, attempts = before[job_id]
        found = store.get(job_id)
        assert found.archived
        assert {name: getattr(found, name) for name in found.__struct_fields__ if name != "archived"} == {
            name: getattr(job, name) for name in job.__struct_fields__ if name != "archived"
        }
        assert store.history(job_id) == history
        assert store.attempts(job_id) == attempts
    check_invariants(url, instance, accepted=[*ids, living.id], final_before=rows)
    assert store.archive(WEEK) == 0
    for name in ("dead", "ended"):
        assert sql(f"select * from {{{name}}}") == []


def test_the_archive_is_found_only_when_it_is_asked_for(store: Store, clock: MovableClock) -> None:
    old = one_of_each(store)
    store.archive(-1)
    new = add(store, job_key="k0")

    assert [job.id for job in store.find(Filter())] == [new.id]
    assert [job.id for job in store.find(Filter(archive=True))] == [new.id, *reversed(old)]
    assert [job.archived for job in store.find(Filter(archive=True))] == [False] + [True] * len(old)
    assert [job.id for job in store.find(Filter(archive=True, limit=2))] == [new.id, old[-1]]
    assert [job.id for job in store.find(Filter(archive=True, job_key="k0"))] == [new.id, old[0]]
    assert [job.id for job in store.find(Filter(archive=True, status="dead"))] == [old[3], old[2], old[1]]
    assert [job.id for job in store.find(Filter(archive=True, status="completed"))] == [old[4], old[0]]
    assert [job.id for job in store.find(Filter(archive=True, state="initial"))] == [new.id]
    assert [job.id for job in store.find(Filter(archive=True, before=old[2]))] == [old[1], old[0]]


@pytest.mark.claim("J3")
def test_an_archived_row_cannot_be_changed_by_sql(store: Store, sql: RawSql) -> None:
    one_of_each(store)
    store.archive(-1)
    before = sql("select * from {archive} order by id")

    for table in ["{archive}", "{archive_2026_01}"] if sql.postgres else ["{archive}"]:
        for column in before[0]:
            with sql.refused("an archived job never changes"):
                sql(f"update {table} set {column} = {column}")

    assert sql("select * from {archive} order by id") == before


def test_each_month_has_a_partition_of_its_own(store: Store, clock: MovableClock, sql: RawSql) -> None:
    """So that letting go of a month is a DROP (PostgreSQL)."""
    worker = WorkerByHand(store)
    for _ in range(3):
        add(store)
        worker.succeed(worker.claim_one())
        clock.advance(31 * 86400)
    assert store.archive(0) == 3
    if sql.postgres:
        months = sql("select tableoid::regclass::text as month from {archive} order by id")
        assert [row["month"].strip('"').rpartition("__")[2] for row in months] == [
            "archive_2026_01",
            "archive_2026_02",
            "archive_2026_03",
        ]


def test_a_job_is_not_archived_for_an_end_that_was_only_reported(store: Store, clock: MovableClock) -> None:
    """A late success of an older attempt was noted, but the job ended a week later."""
    job = add(store)
    worker = WorkerByHand(store)
    call = worker.claim_one()
    worker.snooze(call, WEEK)
    assert worker.turn(done=[Done(call, 1.0, None)]).stale == 1
    clock.advance(WEEK)
    worker.succeed(worker.claim_one())
    clock.advance(1)

    assert store.archive(WEEK) == 0
    assert not store.get(job.id).archived
    clock.advance(WEEK)
    assert store.archive(WEEK) == 1


def test_the_key_of_an_archived_job_is_free_and_its_id_is_not_given_again(store: Store) -> None:
    ids = one_of_each(store)
    store.archive(-1)

    again = add(store, job_key="k0")

    assert not again.duplicate
    assert again.id > max(ids)


def test_archiving_goes_over_every_queue_in_bounded_lots(store: Store, instance: str) -> None:
    store.register([QueueDeclared("post", f"{instance}_post")], [TypeRow("scan", "post")])
    worker = WorkerByHand(store, ["send", "scan"])
    for queue, job_type in [("mail", "send"), ("post", "scan")] * 3:
        add(store, job_type, queue)
        worker.succeed(worker.claim_one(queue))

    assert store.archive(-1, limit=2) == 2
    assert store.archive(-1) == 4
    assert {job.queue for job in store.find(Filter(archive=True))} == {"mail", "post"}


def test_an_app_archives_by_itself_and_keeps_what_it_is_told_to(app: Callable[..., App], clock: MovableClock) -> None:
    holdfast = app(archive_after=60)

    @holdfast.queue("mail").job
    def send() -> str:
        return "sent"

    job = send.enqueue()
    holdfast.run_until_idle()
    clock.advance(61)
    holdfast.run_until_idle()

    assert holdfast.find() == []
    (found,) = holdfast.find(archive=True)
    assert (found.id, found.archived, found.result) == (job.id, True, "sent")
    assert job.refresh() == found
    assert [move.to_state.value for move in job.history()] == ["initial", "running", "final"]
    assert len(job.attempts()) == 1
    assert app().archive_after == WEEK
    with pytest.raises(NotFound):
        holdfast.get(job.id + 1)
