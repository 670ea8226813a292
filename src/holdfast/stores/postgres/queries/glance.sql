-- name: glance_ready
select count(*) as count from (select 1 from {ready} where queue = :queue limit :most) r;

-- name: glance_waiting
select queue, count(*) as count from (select queue from {waiting} order by wake_time, id limit :most) w group by queue;

-- name: glance_parked
select queue, job_type, count(*) as count from (select queue, job_type from {parked} order by job_type, id limit :most) p group by queue, job_type;

-- name: glance_aside
select queue, count(*) as count from (select queue from {aside} order by queue, lane, major, minor, id limit :most) a group by queue;

-- name: glance_held
select queue, count(*) as count from (select queue from {held} order by workflow, run, id limit :most) h group by queue;

-- name: glance_first_due
-- The first of each priority, up to so many priorities: the one that has been due longest is among them.
with recursive level (number, major) as (
  select 1, min(major) from {ready} where queue = :queue
  union all
  select number + 1, (select min(major) from {ready} where queue = :queue and major > level.major) from level where level.major is not null and number < :most)
select (select id from {ready} r where r.queue = :queue and r.major = level.major order by minor, id limit 1) as id from level where major is not null;

-- name: glance_first_parked
-- The first of each type that nobody handles.
with recursive level (number, job_type) as (
  select 1, min(job_type) from {parked}
  union all
  select number + 1, (select min(job_type) from {parked} p where p.job_type > level.job_type) from level where level.job_type is not null and number < :most)
select (select min(id) from {parked} p where p.job_type = level.job_type) as id from level where job_type is not null;

-- name: glance_first_aside
select min(id) as id from {aside};

-- name: glance_due_since
-- Since when the oldest of these is wanted, for each queue.
select queue, min(scheduled_run_time) as time from {job} where id = any(:ids::bigint[]) and state <> 'final' and (situation is null or situation = 'loose')
  and scheduled_run_time <= :until group by queue;

-- name: glance_dead
-- Ends that were no success, the newest first.
select queue, end_time from {dead} where end_time > :since order by end_time desc, id desc limit :most;

-- name: glance_leases
-- The oldest first: the jobs that run longest are in them.
select id, ids from {lease} order by id limit :most;

-- name: glance_running
select id, queue, job_type, job_key, attempt, situation, start_time, worker, timeout, throttle_factor, progress, progress_text from {job}
where id = any(:ids::bigint[]) and situation in ('held', 'waiting') order by start_time, id;

-- name: glance_ended
select queue, end_time, cardinality(ids) as count from {ended} order by id desc limit :most;
