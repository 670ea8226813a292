"""A watcher inside the database of a test: it sees every claim at its moment, whoever makes it and however the attempt ends.

A look at rows afterwards misses what has gone again: a limit that was exceeded until somebody ended a job, a start before its
time whose attempt failed. The watcher keeps what it finds in a table of its own, `breach`, which the checker of the invariants
reads (I5, I6). It counts by the rows, not by what a claim believes.
"""

from tests.raw_sql import RawSql

TABLE = "breach"

ON_SQLITE = (
    f"create table {TABLE} (told text not null)",
    f"""
    create trigger watch after insert on {{lease}} when new.worker is not null begin
      insert into {TABLE} select 'I6: job ' || j.id || ' began at ' || j.start_time || ', before its time ' || j.scheduled_run_time
      from json_each(new.ids) i join {{job}} j on j.id = i.value where j.situation = 'held' and j.start_time < j.scheduled_run_time;
      insert into {TABLE} select 'I5: a claim lifts queue ' || queue || ' to ' || used || ' of ' || throttle_limit
      from (select q.name as queue, coalesce(q.set_limit, q.declared_limit) as throttle_limit,
              (select sum(j.throttle_factor) from {{lease}} l, json_each(l.ids) i join {{job}} j on j.id = i.value
               where l.queue = q.name and j.situation in ('held', 'waiting')) as used
            from {{queue}} q where q.name = new.queue)
      where throttle_limit >= 1 and new.factor > 0 and used > throttle_limit * (1 + 1e-9);
    end""",
)

ON_POSTGRES = (
    f"create table {TABLE} (told text not null)",
    f"""
    create function watch() returns trigger language plpgsql as $$
    begin
      insert into {TABLE} select 'I6: job ' || j.id || ' began at ' || j.start_time || ', before its time ' || j.scheduled_run_time
      from fresh f cross join unnest(f.ids) i (id)
        cross join lateral (select * from {{job}} where id = i.id and queue = f.queue offset 0) j
      where f.worker is not null and j.situation = 'held' and j.start_time < j.scheduled_run_time;
      insert into {TABLE} select 'I5: a claim lifts queue ' || name || ' to ' || used || ' of ' || throttle_limit
      from (select q.name, coalesce(q.set_limit, q.declared_limit) as throttle_limit,
              (select sum(j.throttle_factor) from {{lease}} l cross join unnest(l.ids) i (id)
                 cross join lateral (select * from {{job}} where id = i.id and queue = l.queue offset 0) j
               where l.queue = q.name and j.situation in ('held', 'waiting')) as used
            from {{queue}} q where q.name in (select queue from fresh where worker is not null and factor > 0)) u
      where throttle_limit >= 1 and used > throttle_limit * (1 + 1e-9);
      return null;
    end $$""",
    "create trigger watch after insert on {lease} referencing new table as fresh for each statement execute function watch()",
)
THERE = {
    False: "select 1 as found from sqlite_master where name = :table",
    True: "select 1 as found from pg_class where relname = :table",
}


def watch(url: str, instance: str) -> None:
    """From now on. The instance is set up."""
    sql = RawSql(url, instance)
    with sql.transaction():
        for statement in ON_POSTGRES if sql.postgres else ON_SQLITE:
            sql.connection.execute(sql.filled(statement))
    sql.close()


def breaches(sql: RawSql) -> list[str]:
    """What the watcher saw, if there is one."""
    if not sql(THERE[sql.postgres], table=TABLE):
        return []
    return [row["told"] for row in sql(f"select told from {TABLE}")]
