"""J1, J2: one machine. Every pair of state and event does the same in the pure table, in the stores, and in plain SQL."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import IllegalMove
from holdfast.jobs.job import JobError, Situation, State
from holdfast.jobs.states import MOVES, TARGET, Decided, Event, HandedBack, Happening, Raised, Succeeded, move
from holdfast.stores.contract import QueueDeclared, Report, Store
from tests.by_hand import WorkerByHand, add, declare, error
from tests.raw_sql import RawSql

PAIRS = list(itertools.product(State, Event))
ILLEGAL = [pair for pair in PAIRS if pair not in MOVES]

# Each event as a stranger would write it. LOOSEN and WAIT leave `attempt`, CLAIM raises it.
ERROR = '{"type":"E","message":"m","kind":"exception"}'
AS_SQL = {
    Event.CLAIM: "state = 'running', situation = 'held', attempt = attempt + 1, error = 'NONE', outcome = null, worker = 1",
    Event.SUCCEED: "state = 'final', situation = null, outcome = 'success', error = 'NONE', end_time = update_time",
    Event.FAIL: f"state = 'error', situation = null, outcome = null, error = '{ERROR}'",
    Event.END: f"state = 'final', situation = null, outcome = 'error', error = '{ERROR}', end_time = update_time",
    Event.LOOSEN: "state = 'running', situation = 'loose', outcome = null, error = 'NONE', worker = null",
    Event.WAIT: "state = 'running', situation = 'waiting', outcome = null, error = 'NONE', worker = null",
    Event.CHANGE: "state = 'initial', situation = null, outcome = null, error = 'NONE', payload = '[1]'",
}
# What a running row allows beyond MOVES: a claim only of a loose one (J2, J12).
REFUSED_IN = {(Situation.HELD, Event.CLAIM), (Situation.WAITING, Event.CLAIM), (Situation.LOOSE, Event.WAIT)}


def bring(store: Store, worker: WorkerByHand, state: State, situation: Situation | None = None) -> int:
    """A new job in that state."""
    job = add(store)
    if state is not State.INITIAL:
        call = next(call for call in worker.claim(100) if call.id == job.id)
        if situation is Situation.LOOSE:
            worker.hand_back(call)
        elif state is State.ERROR:
            worker.fail(call, retry_delay=3600.0)
        elif state is State.FINAL:
            worker.succeed(call)
    found = store.get(job.id)
    assert found.state is state
    return job.id


@pytest.mark.claim("J2")
@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_the_pure_table_has_the_seven_moves_of_the_law_and_no_others(state: State, event: Event) -> None:
    legal = {
        ("initial", "running"),
        ("running", "error"),
        ("running", "final"),
        ("error", "running"),
        ("error", "final"),
    }
    stays = {
        ("running", "running"),
        ("initial", "initial"),
    }  # a new attempt, and a job that is replaced before it began

    if (state, event) in MOVES:
        assert (state, move(state, event)) in legal | stays
    else:
        with pytest.raises(IllegalMove) as refused:
            move(state, event, 7)
        assert all(word in str(refused.value) for word in (f"`{state}`", f"`{TARGET[event]}`", "Job 7"))


HAPPENINGS: dict[Event, Callable[[], Happening]] = {
    Event.SUCCEED: lambda: Succeeded(seconds=1.0),
    Event.FAIL: lambda: Raised(error()),
    Event.END: lambda: Decided(error(), give_up=True),
    Event.LOOSEN: lambda: HandedBack(1.0),
}


@pytest.mark.claim("J2", "J3")
def test_an_illegal_move_is_refused_by_the_store_names_both_states_and_changes_nothing(
    store: Store, sql: RawSql
) -> None:
    worker = WorkerByHand(store)
    tried = 0
    for state, event in ILLEGAL:
        if event not in HAPPENINGS or (state, event) == (State.RUNNING, Event.END):  # that one goes by way of `error`
            continue
        job_id = bring(store, worker, state)
        before, moves = sql.row(job_id), store.history(job_id)

        with pytest.raises(IllegalMove) as refused:
            store.report([Report(job_id, HAPPENINGS[event]())])

        assert f"`{state}`" in str(refused.value)
        assert f"`{TARGET[event]}`" in str(refused.value)
        assert str(job_id) in str(refused.value)
        assert sql.row(job_id) == before
        assert store.history(job_id) == moves
        tried += 1
    assert tried == 11


@pytest.mark.claim("J2")
def test_a_legal_move_ends_where_the_table_says(store: Store) -> None:
    worker = WorkerByHand(store)
    for (state, event), target in MOVES.items():
        if event not in HAPPENINGS:
            continue
        declare(store, has_retry_handler=event is Event.END)
        job_id = bring(store, worker, state)

        store.report([Report(job_id, HAPPENINGS[event](), store.get(job_id).attempt)])

        assert store.get(job_id).state is target


@pytest.mark.claim("J2")
def test_one_refused_report_undoes_the_others_of_its_transaction(store: Store, sql: RawSql) -> None:
    worker = WorkerByHand(store)
    running, final = bring(store, worker, State.RUNNING), bring(store, worker, State.FINAL)
    before = sql.row(running)

    with pytest.raises(IllegalMove):
        store.report([Report(running, Succeeded()), Report(final, Succeeded())])

    assert sql.row(running) == before


@pytest.mark.claim("J2")
@pytest.mark.parametrize("limit", [0, 1000])
@pytest.mark.parametrize("state", [State.RUNNING, State.FINAL])
def test_a_wrong_hint_starts_nothing_and_disappears(
    store: Store, sql: RawSql, instance: str, state: State, limit: float
) -> None:
    store.register([QueueDeclared("mail", f"{instance}_mail", throttle_limit=limit)], [])
    worker = WorkerByHand(store)
    job_id = bring(store, worker, state)
    before = sql.row(job_id)
    sql(
        "insert into {ready} (queue, major, minor, id, job_type, throttle_factor, ready_time) "
        "select queue, 100, 0, id, job_type, 1, create_time from {job} where id = :id",
        id=job_id,
    )

    assert worker.claim(10) == []

    assert sql.row(job_id) == before
    assert sql("select * from {ready}") == []


@pytest.mark.claim("J2", "J3", "J4")
@pytest.mark.broken_on_purpose  # rows are moved by plain SQL, without their hints and records
def test_plain_sql_can_do_exactly_what_the_table_allows(store: Store, sql: RawSql) -> None:
    worker = WorkerByHand(store)
    situations: list[tuple[State, Situation | None]] = [(state, None) for state in State if state is not State.RUNNING]
    situations += [(State.RUNNING, situation) for situation in Situation]
    for (state, situation), event in itertools.product(situations, Event):
        job_id = bring(store, worker, state, situation)
        if situation is Situation.WAITING:
            sql(f"update {{queue:mail}} set {AS_SQL[Event.WAIT]} where id = :id", id=job_id)
        before = sql.row(job_id)
        write = f"update {{queue:mail}} set {AS_SQL[event]} where id = :id"

        if (state, event) in MOVES and (situation, event) not in REFUSED_IN:
            sql(write, id=job_id)
            assert sql.row(job_id)["state"] == MOVES[state, event], (state, situation, event)
        else:
            with sql.refused():
                sql(write, id=job_id)
            assert sql.row(job_id) == before, (state, situation, event)


ROW_CHANGES = {
    "the attempt alone": "attempt = attempt + 1",
    "two attempts at once": "attempt = attempt + 2, state = 'running', situation = 'held', error = 'NONE'",
    "an attempt back": "attempt = attempt - 1",
    "another key": "job_key = 'other'",
    "no key any more": "job_key = null",
    "another type": "job_type = 'print'",
    "another id": "id = id + 1000",
    "another birthday": "create_time = update_time",
    "another queue": "queue = 'post'",
    "a state that does not exist": "state = 'paused'",
    "no state": "state = null",
    "no error word": "error = null",
    "an outcome too early": "outcome = 'success'",
}


@pytest.mark.claim("J2", "J4", "J6")
@pytest.mark.parametrize(
    ("state", "situation"), [("initial", None), ("running", "held"), ("running", "loose"), ("error", None)]
)
def test_what_belongs_to_a_job_for_life_cannot_be_changed_by_sql(
    store: Store, sql: RawSql, clock: Any, state: str, situation: str | None
) -> None:
    job = add(store, job_key="k")
    worker = WorkerByHand(store)
    clock.advance(1)  # so that update_time and create_time differ
    if state != "initial":
        call = worker.claim_one()
        if situation == "loose":
            worker.hand_back(call)
        elif state == "error":
            worker.fail(call)
    else:
        sql("update {queue:mail} set update_time = scheduled_run_time where id = :id", id=job.id)
    before = sql.row(job.id)
    tables = ["{queue:mail}", "{job}"] if sql.postgres else ["{queue:mail}"]

    for table, (name, change) in itertools.product(tables, ROW_CHANGES.items()):
        if name == "another birthday" and state == "initial":
            continue
        with sql.refused():
            sql(f"update {table} set {change} where id = :id", id=job.id)
        assert sql.row(job.id) == before, name


@pytest.mark.claim("J2")
def test_a_held_job_cannot_be_stolen_by_sql_nor_a_loose_one_taken_without_a_new_attempt(
    store: Store, sql: RawSql
) -> None:
    worker = WorkerByHand(store)
    held, loose = (bring(store, worker, State.RUNNING, situation) for situation in (Situation.HELD, Situation.LOOSE))
    steal = "update {queue:mail} set attempt = attempt + 1, worker = 99 where id = :id"
    take = "update {queue:mail} set situation = 'held', worker = 99 where id = :id"

    with sql.refused("`running`.* may not become `running`"):
        sql(steal, id=held)
    with sql.refused("`running`.* may not become `running`"):
        sql(take, id=loose)

    assert sql.row(held)["attempt"] == 1
    assert sql.row(loose)["situation"] == "loose"


@pytest.mark.claim("J2")
def test_sql_that_breaks_the_law_is_told_both_states(store: Store, sql: RawSql) -> None:
    worker = WorkerByHand(store)
    for old, new in itertools.product(State, State):
        job_id = bring(store, worker, old)
        change = next(AS_SQL[event] for event, target in TARGET.items() if target is new)
        attempt = "attempt = 0, job_type = 'other'" if new is State.INITIAL else "attempt = attempt + 2"
        with sql.refused(f"`{old}`.* may not become `{new}`"):
            sql(
                f"update {{queue:mail}} set {change.replace('attempt = attempt + 1, ', '')}, {attempt} where id = :id",
                id=job_id,
            )
    job = add(store)
    with sql.refused("`initial` may not be deleted, only .*`final` may"):
        sql("delete from {queue:mail} where id = :id", id=job.id)


@pytest.mark.claim("J3")
@pytest.mark.parametrize("end", ["success", "failed"])
def test_no_column_of_a_final_row_can_be_changed_by_sql(store: Store, sql: RawSql, end: str) -> None:
    job = add(store, job_key="k", expires_time=store.now().replace(year=2030))
    worker = WorkerByHand(store)
    call = worker.claim_one()
    worker.succeed(call, result='"x"') if end == "success" else worker.fail(call, "failed")
    before = sql.row(job.id)
    other = add(store, job_key="other", priority=1)
    tables = ["{queue:mail}", "{job}"] if sql.postgres else ["{queue:mail}"]

    for table, column in itertools.product(tables, before):
        with sql.refused():
            sql(
                f"update {table} set {column} = (select {column} from {{queue:mail}} where id = {other.id}) where id = :id",
                id=job.id,
            )
        with sql.refused():  # not even to what it is
            sql(f"update {table} set {column} = {column} where id = :id", id=job.id)
    assert sql.row(job.id) == before


@pytest.mark.claim("J2")
@pytest.mark.parametrize("state", [State.INITIAL, State.RUNNING, State.ERROR])
def test_a_living_row_cannot_be_deleted(store: Store, sql: RawSql, state: State) -> None:
    job_id = bring(store, WorkerByHand(store), state)
    before = sql.row(job_id)

    for table in ["{queue:mail}", "{job}"] if sql.postgres else ["{queue:mail}"]:
        with sql.refused("may not be deleted"):
            sql(f"delete from {table} where id = :id", id=job_id)
        with sql.refused("may not be deleted"):
            sql(f"delete from {table}")

    assert sql.row(job_id) == before


@pytest.mark.claim("J2")
def test_jobs_cannot_be_truncated_away(store: Store, sql: RawSql) -> None:
    job = add(store)
    if sql.postgres:
        for table in ("{queue:mail}", "{job}"):
            for more in ("", " restart identity cascade"):
                with sql.refused("may not be truncated"):
                    sql(f"truncate {table}{more}")
    assert store.get(job.id).state is State.INITIAL


INSERT = (
    "insert into {table} (id, queue, job_type, job_key, create_time, priority, throttle_factor, payload, scheduled_run_time, update_time{columns}) "
    "select id + 1000, queue, job_type, {key}, create_time, 100, 1, '{{}}', create_time, create_time{values} from {{queue:mail}} where id = :id"
)
NOT_NEW = {
    "running": (", state, situation, attempt", ", 'running', 'held', 1"),
    "loose": (", state, situation, attempt", ", 'running', 'loose', 1"),
    "error": (", state, error, attempt", f", 'error', '{ERROR}', 1"),
    "final": (", state, outcome, end_time, attempt", ", 'final', 'success', create_time, 1"),
    "an attempt already": (", attempt", ", 1"),
    "an error already": (", error", f", '{ERROR}'"),
    "an outcome already": (", outcome", ", 'success'"),
    "a factor below nothing": (", timeout", ", 1"),
}


@pytest.mark.claim("J2", "J4", "J5")
def test_a_row_that_is_not_new_cannot_be_inserted(store: Store, sql: RawSql) -> None:
    job = add(store)
    for table in ["{queue:mail}", "{job}"] if sql.postgres else ["{queue:mail}"]:
        for name, (columns, values) in NOT_NEW.items():
            text = INSERT.format(table=table, columns=columns, values=values, key="null")
            if name == "a factor below nothing":
                text = text.replace("100, 1,", "100, -1,")
            with sql.refused():
                sql(text, id=job.id)
    assert sql.value("select count(*) from {job}") == 1


@pytest.mark.claim("J3", "J4")
@pytest.mark.parametrize("outcome", ["failed", "error", "aborted"])
def test_a_row_cannot_end_badly_without_an_error_nor_well_with_one(store: Store, sql: RawSql, outcome: str) -> None:
    worker = WorkerByHand(store)
    held, failed = bring(store, worker, State.RUNNING), bring(store, worker, State.ERROR)
    before = sql.row(held), sql.row(failed)
    end = "update {queue:mail} set state = 'final', situation = null, end_time = update_time, "

    with sql.refused():
        sql(end + f"outcome = '{outcome}', error = 'NONE' where id = :id", id=failed)
    with sql.refused():
        sql(end + f"outcome = 'success', error = '{ERROR}' where id = :id", id=held)
    with sql.refused():
        sql(
            end + f"outcome = '{outcome}', error = '{ERROR}' where id = :id", id=held
        )  # it was not in `error` before (J7)
    with sql.refused():
        sql("update {queue:mail} set state = 'error', situation = null, error = 'NONE' where id = :id", id=held)

    assert (sql.row(held), sql.row(failed)) == before


@pytest.mark.claim("J1")
def test_ids_are_positive_grow_and_are_not_given_out_again(store: Store) -> None:
    ids = [add(store).id for _ in range(3)]
    worker = WorkerByHand(store)
    worker.succeed(*worker.claim(10))
    store.archive(-1)

    ids += [add(store).id, add(store, "print").id]

    assert all(job_id > 0 for job_id in ids)
    assert ids == sorted(set(ids))


@pytest.mark.claim("J1")
def test_a_state_is_always_one_of_four(store: Store, sql: RawSql) -> None:
    worker = WorkerByHand(store)
    for state in State:
        assert sql.row(bring(store, worker, state))["state"] == state
    assert list(State) == ["initial", "running", "error", "final"]


def test_an_error_that_is_told_twice_is_one_error(store: Store) -> None:
    """A worker that lost its connection tells again what it has told before."""
    worker = WorkerByHand(store)
    add(store)
    call = worker.claim_one()

    assert worker.fail(call) is not None
    assert worker.fail(call) is None

    job = store.get(call.id)
    assert (job.failures, len(store.attempts(job.id)), job.error) == (
        1,
        1,
        JobError("ValueError", "it broke", "exception"),
    )
