-- name: glance_ready
select count(*) as count from (select 1 from {ready} where queue = :queue limit :most) r;

-- name: glance_waiting
select queue, count(*) as count from (select queue from {waiting} order by wake_time, id limit :most) w group by queue;

-- name: glance_parked
select queue, count(*) as count from (select queue from {parked} order by job_type, id limit :most) p group by queue;

-- name: glance_leases
-- The oldest first: the jobs that run longest are in them.
select id, ids from {lease} order by id limit :most;

-- name: glance_running
select id, queue, job_type, job_key, attempt, situation, start_time, worker, progress, progress_text from {job}
where id = any(:ids::bigint[]) and situation in ('held', 'waiting') order by start_time, id;

-- name: glance_ended
select queue, end_time, cardinality(ids) as count from {ended} order by id desc limit :most;
