-- name: lock_queue
-- Who claims from a throttled queue has it alone: here the write transaction sees to it.
select coalesce(set_limit, declared_limit) as throttle_limit, paused, throttler from {queue} where name = :queue;

-- name: bucket
-- The tokens as they were when one was taken last, and the time now.
select b.tokens, (t.now - b.update_time) / 1e6 as elapsed, t.now from (select :now as now) t left join {bucket} b on b.queue = :queue;

-- name: put_bucket
insert into {bucket} (queue, tokens, update_time) values (:queue, :tokens, :now)
on conflict (queue) do update set tokens = excluded.tokens, update_time = excluded.update_time;

-- name: hands
-- The living workers, and what each can run.
select id, queues, every_queue, types, duties, concurrency, stopping from {worker} where gone is null order by id;

-- name: usage
-- What the leases say: how much each pool of the queue uses and how many jobs each worker has. Where a lease lacks the numbers, its rows are counted.
select worker, pool, sum(factor) filter (where queue = :queue and not (factor is null or (:keyed and pool is null))) as used,
  sum(json_array_length(ids)) as held, max(queue = :queue and (factor is null or (:keyed and pool is null))) as bare
from {lease} group by worker, pool;

-- name: bare_usage
-- The held and waiting jobs under leases that do not say what they use: claimed before there was a limit or this throttler.
select j.throttle_factor, case when json_valid(j.payload) then j.payload -> :path end as value
from {lease} l, json_each(l.ids) i join {queue_table} j on j.id = i.value
where l.queue = :queue and (l.factor is null or (:keyed and l.pool is null)) and j.situation in ('held', 'waiting');

-- name: candidates
-- The head of the line, and jobs of factor 0 wherever they stand.
select * from (select id, job_type, throttle_factor, major, minor, ready_time from {ready}
 where queue = :queue and job_type in (select value from json_each(:types)) and ready_time <= :now and (closes_time is null or closes_time > :now)
 order by major, minor, id limit :limit)
union all
select * from (select id, job_type, throttle_factor, major, minor, ready_time from {ready} indexed by {ready_uncounted}
 where queue = :queue and throttle_factor = 0 and job_type in (select value from json_each(:types)) and ready_time <= :now
   and (closes_time is null or closes_time > :now)
 order by major, minor, id limit :limit);

-- name: candidates_by_key
-- As candidates, with the value of a key in the payload.
select r.*, (select case when json_valid(payload) then payload -> :path end from {queue_table} where id = r.id) as value from (
select * from (select id, job_type, throttle_factor, major, minor, ready_time from {ready}
 where queue = :queue and job_type in (select value from json_each(:types)) and ready_time <= :now and (closes_time is null or closes_time > :now)
 order by major, minor, id limit :limit)
union all
select * from (select id, job_type, throttle_factor, major, minor, ready_time from {ready} indexed by {ready_uncounted}
 where queue = :queue and throttle_factor = 0 and job_type in (select value from json_each(:types)) and ready_time <= :now
   and (closes_time is null or closes_time > :now)
 order by major, minor, id limit :limit)) r;

-- name: answers_due
-- Which of these stand there for their response handler.
select id from {queue_table} where id in (select value from json_each(:ids)) and situation = 'loose' and json_valid(answer) and answer ->> 'due';

-- name: lanes
-- Behind what jobs of the queue stand aside: each lane once, by hopping from one to the next.
with recursive hops (lane) as (
  select min(lane) from {aside} where queue = :queue and lane > :after
  union all
  select (select min(a.lane) from {aside} a where a.queue = :queue and a.lane > h.lane) from hops h where h.lane is not null limit :limit + 1)
select lane from hops where lane is not null limit :limit;

-- name: lane_heads
-- The first jobs of one lane that is open again. Differs from PostgreSQL: asked for each.
select id, job_type, throttle_factor, major, minor, ready_time, lane from {aside}
where queue = :queue and lane = :lanes and job_type in (select value from json_each(:types)) and (closes_time is null or closes_time > :now)
order by major, minor, id limit :limit;

-- name: put_aside
-- Behind what they wait for. Positional: executed for each.
insert into {aside} (queue, lane, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select queue, ?5, major, minor, id, job_type, throttle_factor, closes_time, ready_time from {ready}
where queue = ?1 and major = ?2 and minor = ?3 and id = ?4 on conflict do nothing;

-- name: put_heavier_aside
-- The same at once for a whole stretch of the line: jobs whose factor is above the limit.
insert into {aside} (queue, lane, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select queue, '[null,' || throttle_factor || ']', major, minor, id, job_type, throttle_factor, closes_time, ready_time
from (select * from {ready} where queue = :queue order by major, minor, id limit :limit)
where throttle_factor > :most and job_type not in (select value from json_each(:staying)) on conflict do nothing;

-- name: drop_heavier
-- What put_heavier_aside has copied.
delete from {ready} where queue = :queue and (major, minor, id) in (
  select major, minor, id from (select * from {ready} where queue = :queue order by major, minor, id limit :limit)
  where throttle_factor > :most and job_type not in (select value from json_each(:staying)));

-- name: take_back
-- Everything that stood aside is in line again.
insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time from {aside} where queue = :queue on conflict do nothing;

-- name: drop_taken_back
delete from {aside} where queue = :queue;

-- name: drop_aside
delete from {aside} where id = :id;

-- name: drop_shut_aside
delete from {aside} where id in (select id from {aside} where closes_time <= :now limit :limit) returning id;

-- name: forget_pools
-- Under another throttler they mean nothing.
update {lease} set pool = null where queue = :queue and pool is not null;

-- name: running
-- What a throttler function sees.
select j.id, j.job_type, j.job_key, j.payload, j.throttle_factor, j.priority, j.scheduled_run_time
from {lease} l, json_each(l.ids) i join {queue_table} j on j.id = i.value
where l.queue = :queue and j.situation in ('held', 'waiting') order by j.id;

-- name: single_leases
-- Of one job each: a lease that counts against a limit.
select id, ids from {lease} where worker = :worker and factor is not null;

-- name: fetch
delete from {aside} where queue = ?1 and lane = ?2 and major = ?3 and minor = ?4 and id = ?5;

-- name: add_leases
-- One for each job: its id, factor and pool. Their ids follow one another.
insert into {lease} (queue, worker, pump, factor, pool, ids)
select ?1, ?2, ?3, e.value ->> 1, e.value ->> 2, json_array(e.value ->> 0) from json_each(?4) e order by e.key;
