"""The checker of the invariants finds what is planted by plain SQL or in the files, and nothing where all is well."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import App
from holdfast.clock import MovableClock
from holdfast.stores.contract import Store
from tests.builds.conftest import repository, yard  # noqa: F401  the fixtures
from tests.builds.yard import QUICK, Yard
from tests.by_hand import WorkerByHand, add
from tests.invariants import check_invariants, final_rows
from tests.raw_sql import RawSql

OTHER_TIME = {False: "scheduled_run_time + 1000000", True: "scheduled_run_time + interval '1 second'"}
PLANTS: dict[str, tuple[str, str]] = {
    "I2": ("held", "delete from {lease}"),
    "I4": ("due", "delete from {key}"),
    "I5": ("throttled", "update {audit} set detail = '1'"),
    "I6: .* before its time": ("held", "update {queue:mail} set scheduled_run_time = LATER"),
    "I6: .* outside": ("held", """update {queue:mail} set time_windows = '["01:00-01:01"]'"""),
    "I6: .* expired": ("held", "update {queue:mail} set expires_time = start_time"),
    "I7": ("due", "delete from {ready}"),
    "I9": ("retried", "delete from {attempt}"),
}


@pytest.mark.parametrize("named", PLANTS)
def test_what_is_planted_in_the_tables_is_found(
    store: Store, sql: RawSql, url: str, instance: str, clock: MovableClock, named: str
) -> None:
    situation, statement = PLANTS[named]
    job = stand(store, situation, clock)
    check_invariants(url, instance, [job])
    sql(statement.replace("LATER", OTHER_TIME[sql.postgres]))
    with pytest.raises(AssertionError, match=named):
        check_invariants(url, instance, [job])


def stand(store: Store, situation: str, clock: MovableClock) -> int:
    """A job in this situation."""
    if situation == "throttled":
        store.limit("mail", 2, "test")
        add(store)
        clock.advance(1)
    job = add(store, job_key="k")
    if situation != "due":
        worker = WorkerByHand(store)
        calls = [*worker.claim(), *worker.claim()]
        if situation == "retried":
            worker.fail(calls[0])
    return job.id


def test_a_job_that_is_gone_and_a_final_one_that_changed_are_found(store: Store, url: str, instance: str) -> None:
    job, worker = add(store), WorkerByHand(store)
    worker.succeed(worker.claim_one())
    before = final_rows(url, instance)
    check_invariants(url, instance, [job.id], before)
    with pytest.raises(AssertionError, match="I1"):
        check_invariants(url, instance, [job.id + 1])
    before[job.id] = {**before[job.id], "result": "another"}
    with pytest.raises(AssertionError, match="I3"):
        check_invariants(url, instance, [job.id], before)


def test_a_step_that_counts_its_tasks_wrongly_is_found(
    app: Callable[..., App], sql: RawSql, url: str, instance: str
) -> None:
    program = app()
    program.workflow("w").step(name="each", shards=3)(print)
    program.workflows["w"].submit("t")
    check_invariants(url, instance)
    sql("update {step} set succeeded = 1")
    with pytest.raises(AssertionError, match="I8"):
        check_invariants(url, instance)


def test_a_limit_that_was_lowered_below_use_is_no_breach(
    store: Store, url: str, instance: str, clock: MovableClock
) -> None:
    store.limit("mail", 3, "test")
    clock.advance(1)
    for _ in range(3):
        add(store)
    worker = WorkerByHand(store)
    calls = [worker.claim_one() for _ in range(3)]
    clock.advance(1)
    store.limit("mail", 1, "test")
    check_invariants(url, instance)
    worker.succeed(*calls[:2])
    check_invariants(url, instance)


def test_a_claim_after_the_limit_was_lowered_is_a_breach(
    store: Store, sql: RawSql, url: str, instance: str, clock: MovableClock
) -> None:
    store.limit("mail", 3, "test")
    clock.advance(1)
    for _ in range(2):
        add(store)
    worker = WorkerByHand(store)
    worker.claim(1)
    clock.advance(1)
    store.limit("mail", 1, "test")
    clock.advance(1)
    sql("update {queue} set set_limit = 3")
    assert len(worker.claim(1)) == 1
    sql("update {queue} set set_limit = 1")
    with pytest.raises(AssertionError, match="I5"):
        check_invariants(url, instance)


def test_a_limit_that_is_raised_later_hides_no_breach(
    store: Store, sql: RawSql, url: str, instance: str, clock: MovableClock
) -> None:
    store.limit("mail", 1, "test")
    clock.advance(10)
    add(store), add(store)
    sql("update {queue} set set_limit = 2")
    worker = WorkerByHand(store)
    assert [len(worker.claim()) for _ in range(2)] == [1, 1]
    clock.advance(10)
    store.limit("mail", 3, "test")
    with pytest.raises(AssertionError, match="I5"):
        check_invariants(url, instance)


BY_STEALTH = {  # a claim past Holdfast, and an end that leaves nothing to see
    "claim": "update {queue:mail} set state = 'running', situation = 'held', attempt = 1, worker = 1, start_time = create_time where id = :id",
    "lease": "insert into {lease} (queue, worker, factor, ids) select 'mail', 1, throttle_factor, IDS from {queue:mail} where id = :id",
    "unlease": "delete from {lease}",
    "line": "delete from {ready}",
    "later": "delete from {waiting}",
    "early": "update {queue:mail} set scheduled_run_time = create_time",
    "end": "update {queue:mail} set state = 'final', situation = null, outcome = 'success', end_time = create_time where id = :id",
}


@pytest.mark.parametrize(("named", "limit", "wait"), [("I5: .* to 2.* of 1", 1, 0), ("I6: .* before its time", 0, 60)])
def test_what_has_gone_again_was_seen(
    store: Store, sql: RawSql, url: str, instance: str, clock: MovableClock, named: str, limit: int, wait: int
) -> None:
    store.limit("mail", limit, "test")
    jobs = [add(store, scheduled_run_time=clock.now() + timedelta(seconds=wait)).id for _ in range(2)]
    check_invariants(url, instance, jobs)
    ids = "array[:id]::bigint[]" if sql.postgres else "json_array(:id)"
    for deed in ("claim", "lease"):
        for job in jobs:
            sql(BY_STEALTH[deed].replace("IDS", ids), id=job)
    for deed in ("unlease", "line", "later", "early"):
        sql(BY_STEALTH[deed])
    for job in jobs:
        sql(BY_STEALTH["end"], id=job)
    with pytest.raises(AssertionError, match=named):
        check_invariants(url, instance, jobs)


BUILD_PLANTS: dict[str, Callable[[Path], object]] = {
    "`generated`": lambda folder: (folder / "generated").rmdir(),
    "completed.*missing": lambda folder: (folder / "completed").unlink(),
    "log.*missing": lambda folder: (folder / "log").unlink(),
    "cannot be read": lambda folder: (folder / "completed").write_text("{"),
    "its files say failed": lambda folder: (folder / "completed").write_text(
        (folder / "completed").read_text().replace('"success"', '"failed"')
    ),
}


@pytest.mark.parametrize("named", BUILD_PLANTS)
def test_a_build_whose_files_were_touched_is_found(
    yard: Callable[..., Yard],  # noqa: F811
    url: str,
    instance: str,
    named: str,
) -> None:
    one = yard()
    build = one.build(one.repository.commit(QUICK))
    check_invariants(url, instance, builds=one.projects.path(build.job_id).parent)
    BUILD_PLANTS[named](one.folder(build))
    with pytest.raises(AssertionError, match=f"I10: .*{named}"):
        check_invariants(url, instance, builds=one.folder(build).parent)


def test_a_folder_of_a_build_that_nobody_began_is_found(
    yard: Callable[..., Yard],  # noqa: F811
    url: str,
    instance: str,
) -> None:
    one = yard()
    received = one.ask(one.repository.commit(QUICK))
    folder = one.folder(received.build)
    check_invariants(url, instance, builds=folder.parent)
    folder.mkdir(parents=True)
    with pytest.raises(AssertionError, match=r"I10: .*never begun"):
        check_invariants(url, instance, builds=folder.parent)
