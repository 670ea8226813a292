-- name: old_ended
-- What became final, the oldest end first.
select id, end_time, queue, ids from {ended} where end_time < :before order by end_time limit :limit;

-- name: to_archive
-- Jobs of a run wait for it (F18).
insert into {archive} select *, :now from {queue_table} where id in (select value from json_each(:ids)) and state = 'final' and end_time < :before
  and (run is null or not exists (select 1 from {run} r where r.id = {queue_table}.run)) on conflict do nothing;

-- name: drop_dead
-- Of the jobs that `drop_archived` is about to drop: their rows know the end times by which these are found.
delete from {dead} where (end_time, id) in (select end_time, id from {queue_table} where id in (select value from json_each(:ids)) and state = 'final' and end_time < :before
  and (run is null or not exists (select 1 from {run} r where r.id = {queue_table}.run)));

-- name: drop_archived
delete from {queue_table} where id in (select value from json_each(:ids)) and state = 'final' and end_time < :before
  and (run is null or not exists (select 1 from {run} r where r.id = {queue_table}.run));

-- name: drop_ended
delete from {ended} where id = :id;

-- name: attempts_of
select * from {attempt} where job in (select value from json_each(:ids)) order by job, attempt;

-- name: archive_page
-- Oldest first, from behind an id on.
select * from {archive}
where id > :after and (:job_type is null or job_type = :job_type) and (:queue is null or queue = :queue)
  and (:since is null or end_time >= :since) and (:until is null or end_time < :until)
order by id limit :limit;

-- name: drop_attempts
delete from {attempt} where job in (select value from json_each(:ids));

-- name: drop_audits
delete from {audit} where job in (select value from json_each(:ids));

-- name: old_archived
-- Jobs of an archived run wait for it, and the one that a build has now for that. Differs from PostgreSQL: there whole months are dropped.
select id from {archive} where end_time < :before
  and (run is null or not exists (select 1 from {run_archive} r where r.id = {archive}.run))
  and (queue <> 'builds' or not exists (select 1 from {build} b where b.job = {archive}.id)) order by end_time limit :limit;

-- name: drop_old_archived
delete from {archive} where id in (select value from json_each(:ids));
