-- name: moves
-- At most one as the source and one as the target.
select * from {move};

-- name: lock_moves
-- Until the end of the transaction, which has the whole file.
select * from {move};

-- name: owned_tables
select table_name from __holdfast_table where instance = :instance;

-- name: begin_move
insert into {move} (side, stage, mark, other, start_time) values (:side, :stage, :mark, :other, :now);

-- name: move_on
update {move} set stage = :stage,
  drain_time = case :stage when 'draining' then :now else drain_time end,
  seal_time = case :stage when 'sealed' then :now else seal_time end,
  end_time = case when :stage in ('moved', 'open') then :now else end_time end
where side = :side;

-- name: end_move
delete from {move} where side = 'source';

-- name: still_working
-- Workers that take jobs, and those that have some.
select (select count(*) from {worker} where gone is null and duties like '%"run"%')
  + (select count(*) from {lease} where worker is not null) as found;

-- name: catalog
-- Every table that is called like those of the instance, with its columns. Differs from PostgreSQL: types say nothing of times and flags.
select m.name as table_name, c.name as column_name, c.type as type, c.pk as key_place
from sqlite_master m join pragma_table_info(m.name) c
where m.type = 'table' and (substr(m.name, 1, length(:prefix)) = :prefix
  or m.name in (select table_name from __holdfast_table where instance = :instance))
order by m.name, c.cid;

-- name: catalog_parents
-- Which tables must be there before which.
select m.name as table_name, f."table" as parent from sqlite_master m join pragma_foreign_key_list(m.name) f
where m.type = 'table' and substr(m.name, 1, length(:prefix)) = :prefix;

-- name: catalog_guards
-- The triggers on a table.
select name from sqlite_master where type = 'trigger' and tbl_name = :table_name;

-- name: count_rows
select count(*) as count from {table};

-- name: digest_rows
-- Of rows that never change: which ones there are.
select count(*) as count, coalesce(sum(({first} % 1000003) * 31 + {second} % 1000003), 0) as total
from {table} where {first} > :after and {first} <= :upto;

-- name: digest_jobs
-- Of rows that change: also how they are. Every change moves the time of the last one.
select count(*) as count, coalesce(sum((update_time % 1000003 + attempt * 7 + length(coalesce(situation, '')) * 5
  + case state when 'initial' then 1 when 'running' then 2 when 'error' then 3 else 4 end) * (1 + id % 1009)), 0) as total
from {table} where id > :after and id <= :upto;

-- name: range_end
-- Where a stretch of so many rows ends.
select max(place) as place from (select {first} as place from {table} where {first} > :after and {first} <= :upto order by {first} limit :limit);

-- name: read_range
select {columns} from {table} where {first} > :after and {first} <= :upto order by {key};

-- name: read_all
select {columns} from {table} order by {key};

-- name: write_rows
insert into {table} ({columns}) values ({marks});

-- name: clear_table
delete from {table};

-- name: drop_row
delete from {table} where {first} = :first and {second} = :second;

-- name: id_sequences
-- The last id that each table gave out, whatever has become of it. Differs from PostgreSQL: SQLite keeps them in a table.
select name as table_name, seq as last from sqlite_sequence where substr(name, 1, length(:prefix)) = :prefix;

-- name: set_id_sequence
-- Differs from PostgreSQL: the row is there only after the first insert.
insert into sqlite_sequence (name, seq) select :table_name, :last where not exists (select 1 from sqlite_sequence where name = :table_name);

-- name: raise_id_sequence
update sqlite_sequence set seq = max(seq, :last) where name = :table_name;

-- name: skip_ids
update sqlite_sequence set seq = seq + :count where name = :table_name;

-- name: job_sequence
select last from {sequence};

-- name: set_job_sequence
update {sequence} set last = max(last, :last), begun = 0;

-- name: create_seal
-- Differs from PostgreSQL: there the text is in a function.
create trigger {seal} before {event} on {table} begin select raise(abort, {message}); end;

-- name: drop_seal
drop trigger if exists {seal};

-- name: lay_down_law
-- For rows that come as they were. Differs from PostgreSQL: there the triggers are switched off.
drop trigger {guard};

-- name: drop_table
drop table {table};

-- name: drop_rest
-- What is left of an instance without its tables.
drop view if exists {job};

-- name: disown_tables
delete from __holdfast_table where instance = :instance;

-- name: forget_instance
delete from __holdfast_instance where name = :instance;
