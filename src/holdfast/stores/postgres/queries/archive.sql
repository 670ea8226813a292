-- name: old_ended
-- What became final, the oldest end first.
select id, end_time, queue, ids from {ended} where end_time < :before order by end_time limit :limit;

-- name: has_month
select count(*) as found from pg_class where oid = to_regclass({month_text});

-- name: create_month
create table {month} (like {archive} including all);

-- name: attach_month
alter table {archive} attach partition {month} for values from ({first}) to ({next});

-- name: to_archive
-- Jobs of a run wait for it (F18).
insert into {archive} select *, :now::timestamptz from {queue_table} where id = any(:ids::bigint[]) and state = 'final' and end_time < :before
  and (run is null or not exists (select 1 from {run} r where r.id = {queue_table}.run));

-- name: drop_dead
-- Of the jobs that `drop_archived` is about to drop: their rows know the end times by which these are found.
delete from {dead} where (end_time, id) in (select end_time, id from {queue_table} where id = any(:ids::bigint[]) and state = 'final' and end_time < :before
  and (run is null or not exists (select 1 from {run} r where r.id = {queue_table}.run)));

-- name: drop_archived
delete from {queue_table} where id = any(:ids::bigint[]) and state = 'final' and end_time < :before
  and (run is null or not exists (select 1 from {run} r where r.id = {queue_table}.run));

-- name: drop_ended
delete from {ended} where id = :id;

-- name: attempts_of
select * from {attempt} where job = any(:ids::bigint[]) order by job, attempt;

-- name: archive_page
-- Oldest first, from behind an id on.
select * from {archive}
where id > :after and (:job_type::text is null or job_type = :job_type) and (:queue::text is null or queue = :queue)
  and (:since::timestamptz is null or end_time >= :since) and (:until::timestamptz is null or end_time < :until)
order by id limit :limit;

-- name: drop_attempts
delete from {attempt} where job = any(:ids::bigint[]);

-- name: drop_audits
delete from {audit} where job = any(:ids::bigint[]);

-- name: archive_parts
-- The months that the archive has, and those that were taken from it and are still to be dropped. Differs from SQLite: there the archive is one table.
select c.relname as name, exists (select from pg_inherits i where i.inhrelid = c.oid and i.inhparent = to_regclass({archive_text})) as attached
from pg_class c join pg_class a on a.oid = to_regclass({archive_text}) and a.relnamespace = c.relnamespace
where c.relkind = 'r' and starts_with(c.relname, :prefix) order by 1;

-- name: lock_month
-- Nobody archives into it; who reads it does not wait.
lock table {month} in share row exclusive mode;

-- name: month_wanted
-- Whether there are jobs of archived runs in it, which wait for those, or jobs that builds have now; and whether they are too many to be put elsewhere.
select exists (select 1 from {month} j join {run_archive} r on r.id = j.run where j.run is not null)
    or exists (select 1 from {build} b join {month} j on j.id = b.job) as any,
  (select count(*) from (select 1 from {month} j join {run_archive} r on r.id = j.run where j.run is not null limit :most) many)
    + (select count(*) from (select 1 from {build} b join {month} j on j.id = b.job limit :most) many) >= :most as many;

-- name: month_size
select count(*) as count from {month};

-- name: month_unwanted
-- Whether there are others in it.
select exists (select 1 from {month} j where (j.run is null or not exists (select 1 from {run_archive} r where r.id = j.run))
  and not exists (select 1 from {build} b where b.job = j.id)) as found;

-- name: move_wanted
with wanted as (
  delete from {month} j where (j.run is not null and exists (select 1 from {run_archive} r where r.id = j.run))
    or exists (select 1 from {build} b where b.job = j.id)
  returning *)
insert into {kept} select * from wanted;

-- name: detach_month
alter table {archive} detach partition {month};

-- name: rename_month
alter table {month} rename to {forgotten};

-- name: month_ids
select id from {forgotten} where id > :after order by id limit :limit;

-- name: drop_month
drop table {forgotten};
