-- name: pulse
-- What a sweeper has to do, in one question.
select (select (min(deadline_time) - :now) / 1e6 from {lease} where deadline_time is not null) as overdue_in,
  exists (select 1 from {ready} where closes_time <= :now) or exists (select 1 from {parked} where closes_time <= :now)
    or exists (select 1 from {aside} where closes_time <= :now) as shut,
  exists (select 1 from {abort}) as aborts,
  exists (select 1 from {lease} l left join {worker} w on w.id = l.worker where l.worker is not null and (w.id is null or w.gone is not null)) as strays,
  exists (select 1 from {undecided}) as undecided,
  exists (select 1 from {breaker} where state <> 'closed') as tripped,
  exists (select 1 from {run} where aborting is not null) as aborting,
  exists (select 1 from {hold} where releasing is not null) as releasing;

-- name: join
insert into {worker} (name, host, pid, version, queues, every_queue, types, labels, duties, concurrency, lock_path, start_time, beat_time)
values (:name, :host, :pid, :version, :queues, :every_queue, :types, :labels, :duties, :concurrency, :lock_path, :now, :now) returning id;

-- name: beat
-- Answers nothing to a worker that was called lost.
update {worker} set beat = beat + 1, beat_time = :now, stopping = :stopping where id = :id and gone is null returning id;

-- name: leave
-- With a beat: only if its counter still stands there.
update {worker} set gone = :gone, gone_time = :now where id = :id and gone is null and (:beat is null or beat = :beat);

-- name: workers
select * from {worker} where gone is null order by id;

-- name: forget_workers
delete from {worker} where gone_time < :before;

-- name: leases_of
select id, queue, pump, ids from {lease} where worker = :worker;

-- name: stray_leases
-- Leases of workers that are gone: whatever made it so, their jobs must be found.
select l.id, l.queue, l.worker, l.ids from {lease} l left join {worker} w on w.id = l.worker
where l.id > :after and l.worker is not null and (w.id is null or w.gone is not null) order by l.id limit :limit;

-- name: overdue
select id, queue, deadline_time, ids from {lease} where deadline_time <= :now and id > :after order by id limit :limit;

-- name: next_deadline
-- What has passed was looked at, and was left.
select min(deadline_time) as deadline_time from {lease} where deadline_time > :now;

-- name: old_aborts
select job, attempt, actor from {abort} where request_time <= :before and job > :after order by job limit :limit;

-- name: drop_shut
-- Due jobs that may not start any more: expired, or their window has closed.
delete from {ready} where (queue, major, minor, id) in (
  select queue, major, minor, id from {ready} where closes_time <= :now limit :limit) returning id;

-- name: drop_shut_parked
delete from {parked} where (job_type, id) in (select job_type, id from {parked} where closes_time <= :now limit :limit) returning id;

-- name: head_types
select distinct job_type from (select job_type from {ready} where queue = :queue order by major, minor, id limit :limit) line;

-- name: park
insert into {parked} (job_type, id, queue, closes_time)
select job_type, id, queue, closes_time from {ready} where queue = :queue and job_type = :job_type order by major, minor, id limit :limit
on conflict do nothing;

-- name: drop_ready_parked
delete from {ready} where (queue, major, minor, id) in (
  select queue, major, minor, id from {ready} where queue = :queue and job_type = :job_type order by major, minor, id limit :limit);

-- name: parked_types
-- From one type to the next by the index: there may be a million jobs of one.
with recursive found (job_type) as (
  select min(job_type) from {parked}
  union all
  select (select min(job_type) from {parked} where job_type > found.job_type) from found where found.job_type is not null)
select job_type, (select min(id) from {parked} p where p.job_type = found.job_type) as first from found where job_type is not null;

-- name: unpark
insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select j.queue, case q.claim_order when 'priority' then j.priority else j.scheduled_run_time end,
  case q.claim_order when 'priority' then j.scheduled_run_time else j.priority end, j.id, j.job_type, j.throttle_factor, p.closes_time, :now
from (select * from {parked} where job_type = :job_type order by id limit :limit) p
cross join {job} j on j.id = p.id join {queue} q on q.name = j.queue
where j.state in ('initial', 'error') or j.situation = 'loose'
on conflict do nothing;

-- name: drop_unparked
delete from {parked} where (job_type, id) in (select job_type, id from {parked} where job_type = :job_type order by id limit :limit);

-- name: forgotten
-- Living jobs of an id range that nothing beside the row points at. Old enough, so that no transaction is just making their hint.
select j.* from {queue_table} j
where j.id > :after and j.id <= :upto and j.state <> 'final' and j.update_time < :before
  and (j.situation is null or j.situation = 'loose')
  and not exists (select 1 from {ready} r join {queue} q on q.name = r.queue where r.queue = j.queue and r.id = j.id
    and r.major = case q.claim_order when 'priority' then j.priority else j.scheduled_run_time end
    and r.minor = case q.claim_order when 'priority' then j.scheduled_run_time else j.priority end)
  and not exists (select 1 from {waiting} w where w.id = j.id and w.wake_time = j.scheduled_run_time)
  and not exists (select 1 from {parked} p where p.job_type = j.job_type and p.id = j.id)
  and not exists (select 1 from {aside} a where a.id = j.id)
  and not exists (select 1 from {undecided} u where u.job_type = j.job_type and u.id = j.id)
  and (j.run is null or not exists (select 1 from {held} h where h.id = j.id));

-- name: unleased_waits
-- Jobs of an id range that wait for an answer and have lost the lease with their deadline.
select j.* from {queue_table} j where j.id > :after and j.id <= :upto and j.situation = 'waiting' and j.update_time < :before
  and not exists (select 1 from {lease} l where l.job = j.id);

-- name: held_rows
-- Held jobs of an id range, to be compared with the leases.
select * from {queue_table} where id > :after and id <= :upto and situation = 'held' and update_time < :before;

-- name: leased_ids
select value as id from {lease}, json_each(ids);

-- name: last_id
select last from {sequence};

-- name: set_duties
update {worker} set duties = :duties where id = :id and gone is null;

-- name: duty_rules
-- Oldest first.
select * from {duty} order by id;

-- name: add_duty_rule
insert into {duty} (duty, "on", label, host, version, actor, create_time) values (:duty, :on, :label, :host, :version, :actor, :now) returning *;

-- name: drop_duty_rule
delete from {duty} where id = :id;

-- name: drop_same_duty_rule
delete from {duty} where duty = :duty and label is not distinct from :label and host is not distinct from :host
  and version is not distinct from :version;
