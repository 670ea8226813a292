-- name: breakers
select * from {breaker} order by job_type;

-- name: breaker
select * from {breaker} where job_type = :job_type;

-- name: add_breaker
insert into {breaker} (job_type, state) values (:job_type, 'closed') on conflict do nothing;

-- name: lock_breakers
-- After job rows and before queues, and by name: everybody locks in this order.
select * from {breaker} where job_type = any(:types::text[]) order by job_type for update;

-- name: lock_tripped
-- Those to be probed, unless somebody else is just about it: nobody waits for them, so that other breakers may be locked already.
select * from {breaker} where job_type = any(:types::text[]) and state <> 'closed' order by job_type for update skip locked;

-- name: keep_breaker
update {breaker} set state = :state, failures = :failures, opened_time = :opened_time, probe_time = :probe_time, probe = :probe,
  successes = :successes, retries = :retries, counted_time = :counted_time
where job_type = :job_type;

-- name: tripped
-- Breakers that are not closed: the seconds until a probe, and whether the one there was is over: neither held nor in line as a probe.
select b.job_type, b.state, extract(epoch from b.probe_time - coalesce(:now::timestamptz, statement_timestamp()))::float8 as probe_in,
  b.state = 'probing' and not exists (
  select 1 from {job} j join {queue} q on q.name = j.queue
  where j.id = b.probe and (j.situation = 'held' or exists (
    select 1 from {ready} r where r.queue = j.queue and r.id = j.id and r.job_type = '!' || b.job_type
      and r.major = case q.claim_order when 'priority' then j.priority else extract(epoch from j.scheduled_run_time)::float8 end
      and r.minor = case q.claim_order when 'priority' then extract(epoch from j.scheduled_run_time)::float8 else j.priority end))) as idle
from {breaker} b where b.state <> 'closed';

-- name: parked_probe
-- The next job after the last probe: an outage is not to use up one job's retries.
select p.id, p.queue, p.closes_time, null as major, null as minor from {parked} p join {queue} q on q.name = p.queue
where p.job_type = :job_type and p.id > :last and not q.paused and (p.closes_time is null or p.closes_time > :now)
order by p.id limit 1;

-- name: ready_probe
-- The first job of the type among the first in line.
select id, queue, closes_time, major, minor from (
  select id, queue, job_type, closes_time, major, minor from {ready}
  where queue = :queue and exists (select 1 from {queue} where name = :queue and not paused) order by major, minor, id limit :limit) r
where job_type = :job_type and (closes_time is null or closes_time > :now) order by major, minor, id limit 1;

-- name: place_probe
-- In line under a name that only the probe of an open breaker has.
insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select j.queue, case q.claim_order when 'priority' then j.priority else extract(epoch from j.scheduled_run_time)::float8 end,
  case q.claim_order when 'priority' then extract(epoch from j.scheduled_run_time)::float8 else j.priority end, j.id, :marked, j.throttle_factor,
  :closes_time, :now
from {job} j join {queue} q on q.name = j.queue
where j.id = :id and (j.state in ('initial', 'error') or j.situation = 'loose') and j.scheduled_run_time <= :now
on conflict (queue, major, minor, id) do update set job_type = excluded.job_type;

-- name: unmark_probe
-- A probe that nobody took before the breaker closed is a job like any other.
update {ready} set job_type = :job_type where job_type = :marked and ctid = any(array(
  select ctid from {ready} where queue = :queue order by major, minor, id limit :limit));
