-- name: create_registry
-- Shared by all instances of a database; no instance or queue can have this name.
create table if not exists __holdfast_instance (name text primary key, version int not null, create_time timestamptz not null);

-- name: create_table_registry
create table if not exists __holdfast_table (table_name text primary key, instance text not null, queue text not null);

-- name: has_registry
select count(*) as found from pg_class where oid = to_regclass('__holdfast_instance');

-- name: version
select version from __holdfast_instance where name = :instance;

-- name: set_version
insert into __holdfast_instance (name, version, create_time) values (:instance, :version, :now)
on conflict (name) do update set version = excluded.version;

-- name: instances
select name, version from __holdfast_instance order by name;

-- name: table_owner
select instance, queue from __holdfast_table where table_name = :table_name;

-- name: foreign_table
select count(*) as found from pg_class where oid = to_regclass(quote_ident(:table_name));

-- name: own_table
insert into __holdfast_table (table_name, instance, queue) values (:table_name, :instance, :queue);

-- name: lock_set_up
-- One set-up or migration at a time, over all instances of the database.
select pg_advisory_xact_lock(4801, 1);

-- name: now
select statement_timestamp() as now;

-- name: server
select current_setting('server_version') as version, current_setting('server_version_num')::int as number, pg_is_in_recovery() as standby,
  current_setting('default_transaction_read_only')::boolean as read_only;

-- name: patient_lock
set local lock_timeout = '2s';

-- name: wait_for_locks
-- As long as it takes, in this transaction.
set local lock_timeout = 0;
