"""F12 at length: a step of thousands of items. What the database has seen itself is the proof, not a look now and then."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import App
from tests.raw_sql import RawSql

MOST = 300
TASK = "new.run is not null and new.job_key not like '%.items'"
UNDONE = "select count(*) from {queue:workflows} where state <> 'final' and job_key not like '%.items'"


def bear_witness(sql: RawSql) -> None:
    """From now on it is written down with all new tasks how many are undone then. Who makes tasks has the run's lock."""
    sql("create table {witness} (undone bigint)")
    sql("create index {witness_undone} on {queue:workflows} (job_key) where state <> 'final'")
    if sql.postgres:
        body = f"begin insert into {{witness}} {UNDONE}; return null; end"
        sql(f"create function {{witness_added}}() returns trigger language plpgsql as $$ {body} $$")
        sql("create trigger w after insert on {queue:workflows} for each statement execute function {witness_added}()")
    else:  # which has triggers for rows only, and is left to write it down for the last of many
        last = "new.id = (select last from {sequence})"
        write = f"insert into {{witness}} {UNDONE};"
        sql(f"create trigger {{w}} after insert on {{queue:workflows}} when {TASK} and {last} begin {write} end")


@pytest.mark.claim("F12")
@pytest.mark.parametrize("size", [3000, pytest.param(20_000, marks=pytest.mark.faults)])
def test_of_thousands_of_items_never_more_are_undone_than_allowed(
    app: Callable[..., App], sql: RawSql, size: int
) -> None:
    own = app()
    workflow = own.workflow("w")
    given: list[int] = []
    done = 0

    def numbers(task: Any) -> Iterator[int]:
        for number in range(size):
            given.append(number - done)
            yield number

    @workflow.step(items=numbers, max_undone=MOST)
    async def each(task: Any) -> None:
        nonlocal done
        done += 1

    own.store.queues()
    bear_witness(sql)
    with own.worker(concurrency=100):
        run = workflow.submit("t").wait(100)
    assert (run.state, run.steps["each"].succeeded, done) == ("SUCCESS", size, size)
    assert sql.value("select max(undone) as most from {witness}") == MOST
    assert max(given) <= MOST, "more items were asked for than may be undone"
