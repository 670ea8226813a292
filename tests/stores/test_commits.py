"""PostgreSQL answers a statement before it commits it: an enqueue counts only when that is done."""

import psycopg
import pytest

from holdfast.clock import MovableClock
from holdfast.stores.contract import NewJob, QueueDeclared, TypeRow
from holdfast.stores.open import open_store
from tests.raw_sql import RawSql


@pytest.mark.claim("R1")
@pytest.mark.parametrize("count", [1, 2, 50, 600])
def test_what_is_refused_in_its_commit_is_not_acknowledged(
    postgres_url: str, instance: str, clock: MovableClock, count: int
) -> None:
    store, sql = open_store(postgres_url, instance, clock), RawSql(postgres_url, instance)
    store.set_up()
    store.register([QueueDeclared("mail", f"{instance}_mail")], [TypeRow(job_type="send", queue="mail")])
    jobs = [NewJob("mail", "send", "{}")] * count
    for _ in range(2):  # once prepared, a statement goes another way
        store.add(jobs)
    refuse = f"{instance}_refuse()"
    sql(f"create function {refuse} returns trigger language plpgsql as $$ begin raise exception 'too late'; end $$")
    late = "after insert on {queue:mail} deferrable initially deferred"
    sql(f"create constraint trigger refuse {late} for each row execute function {refuse}")
    for _ in range(2):
        with pytest.raises(psycopg.errors.RaiseException, match="too late"):
            store.add(jobs)
    sql("drop trigger refuse on {queue:mail}")
    assert sql.value("select count(*) from {job}") == 2 * count
    store.add(jobs)
    assert sql.value("select count(*) from {job}") == 3 * count
    store.close()
    sql.close()
