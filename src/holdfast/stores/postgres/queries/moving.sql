-- name: moves
-- At most one as the source and one as the target.
select * from {move};

-- name: lock_moves
-- Until the end of the transaction.
select * from {move} for update;

-- name: owned_tables
select table_name from __holdfast_table where instance = :instance;

-- name: begin_move
insert into {move} (side, stage, mark, other, start_time) values (:side, :stage, :mark, :other, :now);

-- name: move_on
update {move} set stage = :stage,
  drain_time = case :stage when 'draining' then :now::timestamptz else drain_time end,
  seal_time = case :stage when 'sealed' then :now::timestamptz else seal_time end,
  end_time = case when :stage in ('moved', 'open') then :now::timestamptz else end_time end
where side = :side;

-- name: end_move
delete from {move} where side = 'source';

-- name: still_working
-- Workers that take jobs, and those that have some.
select (select count(*) from {worker} where gone is null and duties like '%"run"%')
  + (select count(*) from {lease} where worker is not null) as found;

-- name: same_schema
-- Two schemas of one database are two databases to us.
select coalesce((select relnamespace from pg_class where oid = to_regclass('__holdfast_instance'))::regnamespace::text, current_schema()) as name;

-- name: lock_move
-- Until the connection ends, and seen from every connection to this database. Differs from SQLite: there a file is locked.
select pg_try_advisory_lock(:space, :number) as taken;

-- name: impatient_lock
-- Shorter than the server takes to see a deadlock: then it is us who give way and try again.
set local lock_timeout = '300ms';

-- name: lock_everything
-- Waits for those who write and lets nobody begin to.
lock table {tables} in share row exclusive mode;

-- name: catalog
-- Every table that is called like those of the instance, with its columns; in the schema in which instances are. Of the jobs each queue's table, of the archive the whole.
select c.relname as table_name, a.attname as column_name, format_type(a.atttypid, a.atttypmod) as type,
  coalesce(array_position(i.indkey::int2[], a.attnum), -1) + 1 as key_place
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  left join pg_index i on i.indrelid = c.oid and i.indisprimary
where c.relnamespace = (select relnamespace from pg_class where oid = to_regclass('__holdfast_instance')) and c.relkind in ('r', 'p')
  and (starts_with(c.relname, :prefix) or c.relname in (select table_name from __holdfast_table where instance = :instance))
order by c.relname, a.attnum;

-- name: catalog_parents
-- Which tables must be there before which.
select c.relname as table_name, p.relname as parent from pg_constraint f join pg_class c on c.oid = f.conrelid join pg_class p on p.oid = f.confrelid
where f.contype = 'f' and c.relnamespace = (select relnamespace from pg_class where oid = to_regclass('__holdfast_instance')) and starts_with(c.relname, :prefix);

-- name: count_rows
select count(*) as count from {table};

-- name: digest_rows
-- Of rows that never change: which ones there are.
select count(*) as count, coalesce(sum(({first} % 1000003) * 31 + {second} % 1000003), 0)::bigint as total
from {table} where {first} > :after and {first} <= :upto;

-- name: digest_jobs
-- Of rows that change: also how they are. Every change moves the time of the last one.
select count(*) as count, coalesce(sum(((extract(epoch from update_time) * 1000000)::bigint % 1000003 + attempt * 7 + length(coalesce(situation, '')) * 5
  + case state when 'initial' then 1 when 'running' then 2 when 'error' then 3 else 4 end) * (1 + id % 1009)), 0)::bigint as total
from {table} where id > :after and id <= :upto;

-- name: range_end
-- Where a stretch of so many rows ends.
select max(place) as place from (select {first} as place from {table} where {first} > :after and {first} <= :upto order by {first} limit :limit) stretch;

-- name: read_range
select {columns} from {table} where {first} > :after and {first} <= :upto order by {key};

-- name: read_all
select {columns} from {table} order by {key};

-- name: write_rows
-- Differs from SQLite: all rows at once, in PostgreSQL's own form.
copy {table} ({columns}) from stdin (format binary);

-- name: clear_table
delete from {table};

-- name: drop_row
delete from {table} where {first} = :first and {second} = :second;

-- name: id_sequences
-- The last id that each table gave out, whatever has become of it.
select c.relname as table_name, coalesce(pg_sequence_last_value(pg_get_serial_sequence(quote_ident(c.relname), 'id')::regclass), 0) as last
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'id' and a.attidentity <> ''
where c.relnamespace = (select relnamespace from pg_class where oid = to_regclass('__holdfast_instance')) and starts_with(c.relname, :prefix);

-- name: set_id_sequence
select setval(pg_get_serial_sequence(quote_ident(:table_name), 'id')::regclass, :last) where :last > 0;

-- name: skip_ids
select setval(s.name, coalesce(pg_sequence_last_value(s.name), 0) + :count)
from (select pg_get_serial_sequence(quote_ident(:table_name), 'id')::regclass as name) s;

-- name: job_sequence
select case when is_called then last_value else 0 end as last from {job_id};

-- name: set_job_sequence
select setval({job_id_text}, :last) where :last > 0;

-- name: create_seal
create trigger {seal} before {event} on {table} for each statement execute function {sealed}();

-- name: create_seal_text
create function {sealed}() returns trigger language plpgsql as $$ begin raise exception using message = {message}; end $$;

-- name: drop_seal
drop trigger if exists {seal} on {table};

-- name: drop_seal_text
drop function if exists {sealed}();

-- name: lay_down_law
-- For rows that come as they were.
alter table {table} disable trigger user;

-- name: take_up_law
-- Differs from SQLite: there the triggers are made again.
alter table {table} enable trigger user;

-- name: drop_table
drop table if exists {table} cascade;

-- name: drop_rest
-- What is left of an instance without its tables.
drop sequence if exists {job_id} cascade;

-- name: drop_functions
drop function if exists {job_refuse}, {job_take}, {key_free}, {archive_refuse}, {sealed}, {value_in} cascade;

-- name: disown_tables
delete from __holdfast_table where instance = :instance;

-- name: forget_instance
delete from __holdfast_instance where name = :instance;
