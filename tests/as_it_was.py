"""A database on PostgreSQL that can be made again as it was, with its own plain SQL: a fifth of what another copy of it costs.

- `remember` keeps every row and every number of a database, and who may be told when something is defined there.
- `restore` puts them back. It refuses where anything was defined, dropped, set or analysed meanwhile: then only a copy is as it was.
- What it needs stands in a schema of its own, of which nobody knows who does not look for it.
"""

from typing import Any

import psycopg

SCHEMA = "as_it_was"
REMEMBERED = f"""
create schema {SCHEMA};
create table {SCHEMA}.defined (command text);
create function {SCHEMA}.tell() returns event_trigger language plpgsql as $$
begin insert into {SCHEMA}.defined values (tg_tag); end $$;
"""
# Whoever sets `session_replication_role` defines something as well.
TOLD = f"""
create event trigger as_it_was on ddl_command_end execute function {SCHEMA}.tell();
alter event trigger as_it_was enable always;
"""
TABLES = "select quote_ident(tablename) from pg_tables where schemaname = 'public' order by 1"
NUMBERS = """
select quote_ident(sequencename), coalesce(last_value, start_value), last_value is not null
from pg_sequences where schemaname = 'public' order by 1
"""
CHANGED = f"""
select exists (select from {SCHEMA}.defined)
  or exists (select from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase where d.datname = current_database())
  or exists (select from pg_statistic where starelid >= 16384)
"""
OTHERS = """
select bool_and(pg_terminate_backend(pid, 5000)) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


def remember(database: psycopg.Connection[Any]) -> None:
    """What is there now."""
    database.execute(REMEMBERED.encode())
    tables = [name for (name,) in database.execute(TABLES)]
    steps = [f"delete from {table}" for table in tables]
    for number, table in enumerate(tables):
        if database.execute(f"select exists (select from {table})".encode()).fetchone() == (True,):
            database.execute(f"create table {SCHEMA}.rows_{number} as table {table}".encode())
            steps.append(f"insert into {table} select * from {SCHEMA}.rows_{number}")
    steps += [f"perform setval('{name}', {last}, {called})" for name, last, called in database.execute(NUMBERS)]
    # Neither the law nor references look on.
    head = f"create function {SCHEMA}.restore() returns void language plpgsql set session_replication_role = replica"
    database.execute(f"{head} as $$ begin {'; '.join(steps)}; end $$".encode())
    database.execute(TOLD.encode())


def restore(database: psycopg.Connection[Any]) -> None:
    """What was remembered, and nothing else, is there again."""
    database.execute(f"select {SCHEMA}.restore()".encode())


def is_restored(database: psycopg.Connection[Any]) -> bool:
    """Everything is as it was, and nobody else is here any more; False if that cannot be had."""
    database.execute(OTHERS)
    if database.execute(CHANGED.encode()).fetchone() != (False,):
        return False
    restore(database)
    return True
