-- name: one_snapshot
-- Differs from PostgreSQL: a read transaction sees one state of the file anyway.
select 1;

-- name: place_of
-- Which of the tables beside the rows knows the job, and behind what it stands aside.
select (select lane from {aside} where id = :id) as lane,
  (select ready_time from {ready} where queue = :queue and major = :major and minor = :minor and id = :id) as ready_time, case
  when exists (select 1 from {undecided} where job_type = :job_type and id = :id) then 'undecided'
  when exists (select 1 from {ready} where queue = :queue and major = :major and minor = :minor and id = :id) then 'ready'
  when exists (select 1 from {waiting} where wake_time = :wake_time and id = :id) then 'waiting'
  when exists (select 1 from {parked} where job_type = :job_type and id = :id) then 'parked'
  when exists (select 1 from {aside} where id = :id) then 'aside'
  when exists (select 1 from {held} where id = :id) then 'held' end as place;

-- name: line_before
-- Who stands before a job in the claim order, from the head on.
select id, job_type, throttle_factor, major, minor from {ready} where queue = :queue and (major, minor, id) < (:major, :minor, :id)
order by major, minor, id limit :limit;

-- name: line_before_by_key
-- As line_before, with the value of a key in the payload.
select r.*, (select case when json_valid(payload) then payload -> :path end from {queue_table} where id = r.id) as value from (
  select id, job_type, throttle_factor, major, minor from {ready} where queue = :queue and (major, minor, id) < (:major, :minor, :id)
  order by major, minor, id limit :limit) r
order by major, minor, id;

-- name: limit_users
-- The jobs that use the limit of a queue, or a pool of its throttler.
select j.id from (select value as id from {lease}, json_each(ids) where queue = :queue and (:pool is null or pool = :pool)) i join {queue_table} j on j.id = i.id
where j.situation in ('held', 'waiting') and j.throttle_factor > 0 limit :limit;

-- name: leases_in_hand
select worker, queue, ids from {lease} where worker is not null order by id desc limit :limit;

-- name: held_among
select id, worker from {queue_table} where id in (select value from json_each(:ids)) and situation = 'held';

-- name: worker_by_id
-- Also one that is gone.
select * from {worker} where id = :id;

-- name: abort_of
select actor, request_time from {abort} where job = :job and attempt = :attempt;

-- name: last_attempt
select * from {attempt} where job = :job order by attempt desc limit 1;

-- name: last_retry_by_hand
select detail from {audit} where job = :job and action = 'retry' order by id desc limit 1;

-- name: last_pause
-- Among the last things that were done from outside.
select time, actor from (select * from {audit} order by id desc limit :limit) where queue = :queue and action = 'pause' order by id desc limit 1;

-- name: last_ends
-- What became final last in a queue: when, how many together, and some of them.
select end_time, json_array_length(ids) as count, (select json_group_array(value) from (select value from json_each(ids) limit :some)) as ids
from (select * from {ended} order by id desc limit :limit) where queue = :queue order by id desc;

-- name: durations_among
select id, execution_time from {queue_table}
where id in (select value from json_each(:ids)) and job_type = :job_type and outcome = 'success' and execution_time is not null;

-- name: durations_newest
-- Of a queue in which little happens beside busy ones.
select id, execution_time from (select id, job_type, outcome, execution_time from {queue_table} order by id desc limit :limit)
where job_type = :job_type and outcome = 'success' and execution_time is not null;

-- name: durations_archived
-- Of a type that is rare beside others. Differs from PostgreSQL: there a range keeps the plan to the index of types.
select id, execution_time from (select id, outcome, execution_time from {archive} where job_type = :job_type order by id desc limit :limit)
where outcome = 'success' and execution_time is not null;
