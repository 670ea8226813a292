-- name: one_snapshot
-- Whatever is read in this transaction was true at the same moment.
set transaction isolation level repeatable read, read only;

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
select r.*, {value_in}(j.payload, :path::text[]) as value from (
  select id, job_type, throttle_factor, major, minor from {ready} where queue = :queue and (major, minor, id) < (:major, :minor, :id)
  order by major, minor, id limit :limit) r
cross join lateral (select payload from {queue_table} where id = r.id offset 0) j
order by major, minor, id;

-- name: limit_users
-- The jobs that use the limit of a queue, or a pool of its throttler. offset 0: one look-up for each, whatever the statistics say.
select j.id from {lease} l cross join unnest(l.ids) i (id)
cross join lateral (select id, situation, throttle_factor from {queue_table} where id = i.id offset 0) j
where l.queue = :queue and (:pool::text is null or l.pool = :pool) and j.situation in ('held', 'waiting') and j.throttle_factor > 0 limit :limit;

-- name: leases_in_hand
select worker, queue, ids from {lease} where worker is not null order by id desc limit :limit;

-- name: held_among
select id, worker from {queue_table} where id = any(:ids::bigint[]) and situation = 'held';

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
select time, actor from (select * from {audit} order by id desc limit :limit) a where queue = :queue and action = 'pause' order by id desc limit 1;

-- name: last_ends
-- What became final last in a queue: when, how many together, and some of them.
select end_time, cardinality(ids) as count, ids[1 : :some] as ids
from (select * from {ended} order by id desc limit :limit) e where queue = :queue order by id desc;

-- name: durations_among
select id, execution_time from {queue_table}
where id = any(:ids::bigint[]) and job_type = :job_type and outcome = 'success' and execution_time is not null;

-- name: durations_newest
-- Of a queue in which little happens beside busy ones.
select id, execution_time from (select id, job_type, outcome, execution_time from {queue_table} order by id desc limit :limit) j
where job_type = :job_type and outcome = 'success' and execution_time is not null;

-- name: durations_archived
-- Of a type that is rare beside others. A range, so that the index of types is what gives the order, and not that of ids.
select id, execution_time from (select id, outcome, execution_time from {archive}
  where job_type >= :job_type and job_type <= :job_type order by job_type desc, id desc limit :limit) a
where outcome = 'success' and execution_time is not null;
