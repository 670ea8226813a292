-- name: lock_queue
-- Who claims from a throttled queue has it alone until it commits; a statement of its own, so that the snapshots of the next ones are younger than the lock.
select coalesce(set_limit, declared_limit) as throttle_limit, paused, throttler from {queue} where name = :queue for no key update;

-- name: bucket
-- The tokens as they were when one was taken last, and the time now.
select b.tokens, date_part('epoch', t.now - b.update_time) as elapsed, t.now
from (select coalesce(:now::timestamptz, statement_timestamp()) as now) t left join {bucket} b on b.queue = :queue;

-- name: put_bucket
insert into {bucket} (queue, tokens, update_time) values (:queue, :tokens, :now)
on conflict (queue) do update set tokens = excluded.tokens, update_time = excluded.update_time;

-- name: hands
-- The living workers, and what each can run.
select id, queues, every_queue, types, duties, concurrency, stopping from {worker} where gone is null order by id;

-- name: usage
-- What the leases say: how much each pool of the queue uses and how many jobs each worker has. Where a lease lacks the numbers, its rows are counted.
select worker, pool, sum(factor) filter (where queue = :queue and not (factor is null or (:keyed and pool is null))) as used,
  sum(cardinality(ids)) as held, bool_or(queue = :queue and (factor is null or (:keyed and pool is null))) as bare
from {lease} group by worker, pool;

-- name: bare_usage
-- The held and waiting jobs under leases that do not say what they use: claimed before there was a limit or this throttler.
select j.throttle_factor, {value_in}(j.payload, :path::text[]) as value
from {lease} l cross join unnest(l.ids) i (id)
  cross join lateral (select throttle_factor, payload, situation from {queue_table} where id = i.id offset 0) j
where l.queue = :queue and (l.factor is null or (:keyed and l.pool is null)) and j.situation in ('held', 'waiting');

-- name: candidates
-- The head of the line, and jobs of factor 0 wherever they stand. No row locks, unless it looks for what is unlocked: the queue's lock keeps other
-- claimers out.
(select id, job_type, throttle_factor, major, minor, ready_time, ctid::text as spot from {ready} line
 where queue = :queue and {asked} and ready_time <= coalesce(:now::timestamptz, statement_timestamp())
   and (closes_time is null or closes_time > coalesce(:now::timestamptz, statement_timestamp()))
 order by major, minor, id limit :limit)
union all
(select id, job_type, throttle_factor, major, minor, ready_time, ctid::text as spot from {ready} line
 where queue = :queue and throttle_factor = 0 and {asked} and ready_time <= coalesce(:now::timestamptz, statement_timestamp())
   and (closes_time is null or closes_time > coalesce(:now::timestamptz, statement_timestamp()))
 order by major, minor, id limit :limit);

-- name: candidates_by_key
-- As candidates, with the value of a key in the payload.
select r.*, {value_in}(j.payload, :path::text[]) as value from (
(select id, job_type, throttle_factor, major, minor, ready_time, ctid::text as spot from {ready} line
 where queue = :queue and {asked} and ready_time <= coalesce(:now::timestamptz, statement_timestamp())
   and (closes_time is null or closes_time > coalesce(:now::timestamptz, statement_timestamp()))
 order by major, minor, id limit :limit)
union all
(select id, job_type, throttle_factor, major, minor, ready_time, ctid::text as spot from {ready} line
 where queue = :queue and throttle_factor = 0 and {asked} and ready_time <= coalesce(:now::timestamptz, statement_timestamp())
   and (closes_time is null or closes_time > coalesce(:now::timestamptz, statement_timestamp()))
 order by major, minor, id limit :limit)) r
cross join lateral (select payload from {queue_table} where id = r.id offset 0) j;

-- name: answers_due
-- Which of these stand there for their response handler.
select id from {queue_table} where id = any(:ids::bigint[]) and situation = 'loose' and {value_in}(answer, array['due']) = 'true';

-- name: lanes
-- Behind what jobs of the queue stand aside: each lane once, by hopping from one to the next.
with recursive hops (lane) as (
  (select lane from {aside} where queue = :queue and lane > :after order by lane limit 1)
  union all
  select (select a.lane from {aside} a where a.queue = :queue and a.lane > h.lane order by a.lane limit 1) from hops h where h.lane is not null)
select lane from hops where lane is not null limit :limit;

-- name: lane_heads
-- The first jobs of lanes that are open again.
select a.id, a.job_type, a.throttle_factor, a.major, a.minor, a.ready_time, a.spot, l.lane from unnest(:lanes::text[]) l (lane)
cross join lateral (
  select id, job_type, throttle_factor, major, minor, ready_time, ctid::text as spot from {aside} line
  where queue = :queue and lane = l.lane and {asked}
    and (closes_time is null or closes_time > coalesce(:now::timestamptz, statement_timestamp()))
  order by major, minor, id limit :limit) a
order by a.major, a.minor, a.id limit :limit;

-- name: put_aside
-- Out of the line, behind what they wait for. :ids is sorted; see settle.
with moved as (
  delete from {ready} where ctid = any(:spots::tid[]) and queue = :queue and (:ids::bigint[])[width_bucket(id, :ids::bigint[])] = id returning *)
insert into {aside} (queue, lane, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select queue, (:lanes::text[])[width_bucket(id, :ids::bigint[])], major, minor, id, job_type, throttle_factor, closes_time, ready_time from moved
on conflict do nothing;

-- name: put_heavier_aside
-- The same at once for a whole stretch of the line: jobs whose factor is above the limit.
with head as (select ctid, throttle_factor, job_type from {ready} where queue = :queue order by major, minor, id limit :limit),
 moved as (
  delete from {ready} where ctid = any(array(
    select ctid from {ready} where ctid = any(array(select ctid from head where throttle_factor > :most and job_type <> all(:staying::text[])))
    for update skip locked))
  returning *)
insert into {aside} (queue, lane, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select queue, '[null,' || throttle_factor || ']', major, minor, id, job_type, throttle_factor, closes_time, ready_time from moved
on conflict do nothing;

-- name: drop_heavier
-- Differs from SQLite: there it is a statement of its own; here put_heavier_aside has done it.
select 1 where :queue::text is null and :limit::int is null and :most::float8 is null and :staying::text[] is null;

-- name: take_back
-- Everything that stood aside is in line again.
with moved as (delete from {aside} where queue = :queue returning *)
insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time from moved
on conflict do nothing;

-- name: drop_taken_back
-- Differs from SQLite: there it is a statement of its own; here take_back has done it.
select 1 where :queue::text is null;

-- name: drop_aside
delete from {aside} where ctid = any(array(select ctid from {aside} where id = :id for update skip locked));

-- name: drop_shut_aside
delete from {aside} where ctid = any(array(
  select a.ctid from {aside} a left join lateral (select true as free from {job} where id = a.id and queue = a.queue for update skip locked) j on true
    left join lateral (select true as there from {job} where id = a.id and queue = a.queue offset 0) k on true
  where a.closes_time <= :now and (j.free or k.there is null)
  limit :limit for update of a skip locked)) returning id;

-- name: forget_pools
-- Under another throttler they mean nothing.
update {lease} set pool = null where queue = :queue and pool is not null;

-- name: running
-- What a throttler function sees.
select j.id, j.job_type, j.job_key, j.payload, j.throttle_factor, j.priority, j.scheduled_run_time from {lease} l cross join unnest(l.ids) i (id)
  cross join lateral (select * from {queue_table} where id = i.id offset 0) j
where l.queue = :queue and j.situation in ('held', 'waiting') order by j.id;

-- name: single_leases
-- Of one job each: a lease that counts against a limit.
select id, ids from {lease} where worker = :worker and factor is not null;

-- name: claim_these
-- As claim, but of chosen jobs and with a lease for each. By their place in the table: a join on the key is planned as quadratic. :ids is sorted.
-- What closed between the look and :now stays where it is.
with taken as (
  delete from {ready} where ctid = any(:spots::tid[]) and queue = :queue and (:ids::bigint[])[width_bucket(id, :ids::bigint[])] = id
    and ready_time <= :now and (closes_time is null or closes_time > :now) returning id),
 fetched as (
  delete from {aside} where ctid = any(:aside::tid[]) and queue = :queue and (:ids::bigint[])[width_bucket(id, :ids::bigint[])] = id
    and (closes_time is null or closes_time > :now) returning id),
 started as (
  update {queue_table} j set state = 'running', situation = 'held', attempt = j.attempt + 1, worker = :worker, start_time = :now, update_time = :now,
    error = 'NONE'
  where j.id = any(array(select id from taken union all select id from fetched))
    and (j.state in ('initial', 'error') or j.situation = 'loose') and j.scheduled_run_time <= :now
  returning j.id, j.attempt, j.job_type, j.job_key, j.payload, j.timeout, j.losses, j.answer, j.checkpoint, j.run, j.priority,
    j.scheduled_run_time, j.throttle_factor),
 numbered as (select started.*, nextval({lease_id_seq_text}) as lease from started),
 leased as (
  insert into {lease} (id, queue, worker, pump, factor, pool, ids) overriding system value
  select lease, :queue, :worker, :pump, throttle_factor, (:pools::text[])[width_bucket(id, :ids::bigint[])], array[id] from numbered)
select id, attempt, job_type, job_key, payload, timeout, losses, answer, checkpoint, run, priority, date_part('epoch', scheduled_run_time), lease from numbered;
