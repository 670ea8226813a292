-- name: add_one
-- One job that is due now and has no key: one statement, one round trip. None if its queue has another order than the caller knew of,
-- a lower limit than the factor, or is gone.
with new as (
  insert into {queue_table} (queue, job_type, create_time, retry_of, priority, throttle_factor, timeout, retries, timeout_named, retries_named,
    payload, scheduled_run_time, update_time)
  select :queue, :job_type, t.now, :retry_of, :priority, :throttle_factor, :timeout, :retries, :timeout_named, :retries_named,
    :payload, t.now, t.now
  from (select coalesce(:now::timestamptz, statement_timestamp()) as now) t, {queue} q
  where q.name = :queue and q.claim_order = :claim_order
    and (coalesce(q.set_limit, q.declared_limit) < 1 or :throttle_factor <= coalesce(q.set_limit, q.declared_limit))
  returning id, create_time),
 line as (
  insert into {ready} (queue, major, minor, id, job_type, throttle_factor, ready_time)
  select :queue, case :claim_order when 'priority' then :priority else extract(epoch from create_time)::float8 end,
    case :claim_order when 'priority' then extract(epoch from create_time)::float8 else :priority end, id, :job_type, :throttle_factor, create_time
  from new)
select id, create_time, case when :tell then pg_notify(:channel, :queue)::text end from new;

-- name: add_plain
-- The same for jobs that differ by their payloads only. Ids are given in their order.
with new as (
  insert into {queue_table} (queue, job_type, create_time, retry_of, priority, throttle_factor, timeout, retries, timeout_named, retries_named,
    payload, scheduled_run_time, update_time)
  select :queue, :job_type, t.now, :retry_of, :priority, :throttle_factor, :timeout, :retries, :timeout_named, :retries_named,
    p.payload, t.now, t.now
  from (select coalesce(:now::timestamptz, statement_timestamp()) as now) t, {queue} q, unnest(:payloads::text[]) p(payload)
  where q.name = :queue and q.claim_order = :claim_order
    and (coalesce(q.set_limit, q.declared_limit) < 1 or :throttle_factor <= coalesce(q.set_limit, q.declared_limit))
  returning id, create_time),
 line as (
  insert into {ready} (queue, major, minor, id, job_type, throttle_factor, ready_time)
  select :queue, case :claim_order when 'priority' then :priority else extract(epoch from create_time)::float8 end,
    case :claim_order when 'priority' then extract(epoch from create_time)::float8 else :priority end, id, :job_type, :throttle_factor, create_time
  from new),
 told as (select case when :tell then pg_notify(:channel, :queue)::text end from new limit 1)
select id, create_time, (select count(*) from told) from new;

-- name: open_savepoint
-- So that an enqueue inside a transaction is undone as a whole when it fails, and the transaction goes on.
savepoint holdfast;

-- name: undo_savepoint
rollback to savepoint holdfast;

-- name: release_savepoint
release savepoint holdfast;

-- name: next_ids
select array(select nextval({job_id_text}) from generate_series(1, :count::int)) as ids, statement_timestamp() as now;

-- name: take_keys
-- Which of these jobs get their keys. A key that another transaction is just taking is waited for.
insert into {key} (job_type, job_key, id) select * from unnest(:types::text[], :keys::text[], :ids::bigint[]) on conflict do nothing returning id;

-- name: key_holder
select id from {key} where job_type = :job_type and job_key = :job_key;

-- name: key_holders
select k.job_type, k.job_key, k.id from unnest(:types::text[], :keys::text[]) p (job_type, job_key)
join {key} k on k.job_type = p.job_type and k.job_key = p.job_key;

-- name: add_alike
-- Jobs that differ by key and payload only: one round trip where keys, COPY and a look at the queue would be seven. A job whose key is
-- taken is left out. The keys are kept here, and not once more by the trigger. `is true`: a hashed look-up, and no join.
with asked as materialized (
  select nextval({job_id_text}) as id, job_key, payload from unnest(:keys::text[], :payloads::text[]) a (job_key, payload)
  where (select throttler is null and (coalesce(set_limit, declared_limit) < 1 or :throttle_factor::float8 <= coalesce(set_limit, declared_limit))
    from {queue} where name = :queue) and (select set_config('holdfast.keys', 'kept', true)) = 'kept'),
 taken as (insert into {key} (job_type, job_key, id) select :job_type, job_key, id from asked on conflict do nothing returning id),
 new as (
  insert into {queue_table} (id, queue, job_type, job_key, create_time, run, priority, throttle_factor, timeout, retries, timeout_named,
    retries_named, payload, scheduled_run_time, update_time)
  select id, :queue, :job_type, job_key, t.now, :run, :priority, :throttle_factor, :timeout, :retries, :timeout_named, :retries_named, payload, t.now, t.now
  from asked, (select coalesce(:now::timestamptz, statement_timestamp()) as now) t where (id in (select id from taken)) is true
  returning id, job_key, create_time),
 line as (
  insert into {ready} (queue, major, minor, id, job_type, throttle_factor, ready_time)
  select :queue, case q.claim_order when 'priority' then :priority::float8 else extract(epoch from new.create_time)::float8 end,
    case q.claim_order when 'priority' then extract(epoch from new.create_time)::float8 else :priority::float8 end, new.id, :job_type,
    :throttle_factor, new.create_time
  from new, {queue} q where q.name = :queue)
(select id, job_key from new order by id)
union all select null, null where set_config('holdfast.keys', '', true) is null;

-- name: add_all_alike
-- The same where the keys are likely to be free: a key that is taken is an error. To insert keys that may be taken costs twice as much.
-- None are stored where the queue needs a second look; if :all are to be, that is an error too.
with asked as materialized (
  select nextval({job_id_text}) as id, job_key, payload from unnest(:keys::text[], :payloads::text[]) a (job_key, payload)
  where (select throttler is null and (coalesce(set_limit, declared_limit) < 1 or :throttle_factor::float8 <= coalesce(set_limit, declared_limit))
    from {queue} where name = :queue) and (select set_config('holdfast.keys', 'kept', true)) = 'kept'),
 taken as (insert into {key} (job_type, job_key, id) select :job_type, job_key, id from asked),
 new as (
  insert into {queue_table} (id, queue, job_type, job_key, create_time, run, priority, throttle_factor, timeout, retries, timeout_named,
    retries_named, payload, scheduled_run_time, update_time)
  select id, :queue, :job_type, job_key, t.now, :run, :priority, :throttle_factor, :timeout, :retries, :timeout_named, :retries_named, payload, t.now, t.now
  from asked, (select coalesce(:now::timestamptz, statement_timestamp()) as now) t
  returning id, job_key, create_time),
 line as (
  insert into {ready} (queue, major, minor, id, job_type, throttle_factor, ready_time)
  select :queue, case q.claim_order when 'priority' then :priority::float8 else extract(epoch from new.create_time)::float8 end,
    case q.claim_order when 'priority' then extract(epoch from new.create_time)::float8 else :priority::float8 end, new.id, :job_type,
    :throttle_factor, new.create_time
  from new, {queue} q where q.name = :queue)
select array_agg(id order by id) as ids, 0 as begun, null::bigint as lease, null::int as number, set_config('holdfast.keys', '', true),
  1 / case when not :all or count(*) = cardinality(:keys::text[]) then 1 else 0 end, case when :tell::text is not null and count(*) > 0 then pg_notify(:tell, :queue)::text end
from new;

-- name: add_begun
-- The same for a worker that has room for :room of them, and now: its share of the first ones begins at once, if the queue is open to it and nothing
-- stands before them that it could run. They are stored as `running` and never stand in line.
with share as materialized (
  select case when not paused and coalesce(set_limit, declared_limit) < 1 and exists (select from {worker} where id = :worker and gone is null)
    and not exists (select from {hold} where level = 'pick') and not exists (select from {ready} where queue = :queue and job_type = any(:types::text[]))
    then least(:room, ceil(cardinality(:keys::text[])::float8 / (select count(*) from {worker} where gone is null))) else 0 end as room
  from {queue} where name = :queue),
 asked as materialized (
  select nextval({job_id_text}) as id, job_key, payload, place <= (select room from share) as begins
  from unnest(:keys::text[], :payloads::text[]) with ordinality a (job_key, payload, place)
  where (select throttler is null and (coalesce(set_limit, declared_limit) < 1 or :throttle_factor::float8 <= coalesce(set_limit, declared_limit))
    from {queue} where name = :queue) and (select set_config('holdfast.keys', 'kept', true)) = 'kept'),
 taken as (insert into {key} (job_type, job_key, id) select :job_type, job_key, id from asked),
 new as (
  insert into {queue_table} (id, queue, job_type, job_key, create_time, run, priority, throttle_factor, timeout, retries, timeout_named,
    retries_named, payload, scheduled_run_time, update_time, state, situation, attempt, worker, start_time)
  select id, :queue, :job_type, job_key, t.now, :run, :priority, :throttle_factor, :timeout, :retries, :timeout_named, :retries_named, payload, t.now, t.now,
    case when begins then 'running' else 'initial' end, case when begins then 'held' end, begins::int, case when begins then :worker::bigint end,
    case when begins then t.now end
  from asked, (select coalesce(:now::timestamptz, statement_timestamp()) as now) t returning id, attempt),
 line as (
  insert into {ready} (queue, major, minor, id, job_type, throttle_factor, ready_time)
  select :queue, case q.claim_order when 'priority' then :priority::float8 else extract(epoch from t.now)::float8 end,
    case q.claim_order when 'priority' then extract(epoch from t.now)::float8 else :priority::float8 end, asked.id, :job_type, :throttle_factor, t.now
  from asked, {queue} q, (select coalesce(:now::timestamptz, statement_timestamp()) as now) t where q.name = :queue and not asked.begins),
 lease as (
  insert into {lease} (queue, worker, pump, ids) select :queue, :worker, :pump, array_agg(id) from asked where begins having count(*) > 0 returning id, pump)
select array_agg(id order by id) as ids, coalesce(sum(attempt), 0)::int as begun, (select id from lease) as lease, (select pump from lease) as number,
  set_config('holdfast.keys', '', true), 1 / case when not :all or count(*) = cardinality(:keys::text[]) then 1 else 0 end,
  case when :tell::text is not null and count(*) > coalesce(sum(attempt), 0) then pg_notify(:tell, :queue)::text end
from new;

-- name: copy_jobs
copy {queue_table} (id, queue, job_type, job_key, create_time, retry_of, run, priority, throttle_factor, timeout, retries, timeout_named, retries_named,
  time_windows, expires_time, payload, scheduled_run_time, update_time) from stdin;

-- name: copy_ready
copy {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time) from stdin;

-- name: copy_waiting
copy {waiting} (wake_time, id, queue, closes_time) from stdin;

-- name: tell
select pg_notify(:channel, :queue);

-- name: place_ready
insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select p.queue, p.major, p.minor, p.id, p.job_type, p.factor, p.closes_time, :now::timestamptz
from unnest(:queues::text[], :majors::float8[], :minors::float8[], :ids::bigint[], :types::text[], :factors::float8[], :closes_times::timestamptz[])
  p (queue, major, minor, id, job_type, factor, closes_time)
on conflict do nothing;

-- name: place_waiting
insert into {waiting} (wake_time, id, queue, closes_time)
select p.wake_time, p.id, p.queue, p.closes_time
from unnest(:wake_times::timestamptz[], :ids::bigint[], :queues::text[], :closes_times::timestamptz[]) p (wake_time, id, queue, closes_time)
on conflict do nothing;

-- name: replace_job
-- `on_duplicate="replace"`: only while nobody has begun (Q5).
update {queue_table} set payload = :payload, priority = :priority, throttle_factor = :throttle_factor, timeout = :timeout, retries = :retries,
  timeout_named = :timeout_named, retries_named = :retries_named, time_windows = :time_windows, expires_time = :expires_time, scheduled_run_time = :scheduled_run_time, update_time = :now
where id = :id and state = 'initial';

-- name: drop_ready
-- Not one that a claim is just taking: it is going to look at the job, which may be locked by us. Differs from SQLite, as drop_aside does.
delete from {ready} where ctid = any(array(
  select ctid from {ready} where queue = :queue and id = :id and major = :major and minor = :minor for update skip locked));

-- name: drop_waiting
delete from {waiting} where id = :id and wake_time = :wake_time;

-- name: drop_parked
delete from {parked} where id = :id and job_type = :job_type;

-- name: drop_undecided
delete from {undecided} where id = :id and job_type = :job_type;

-- name: job
select * from {job} where id = :id;

-- name: archived_job
select * from {archive} where id = :id;

-- name: jobs_by_id
select * from {job} where id = any(:ids::bigint[]) order by id;

-- name: lock_jobs
-- In the order of ids, as everybody locks them.
select id, queue, job_type, job_key, state, situation, attempt, failures, losses, crashes, retries, timeout, priority, throttle_factor, time_windows,
  scheduled_run_time, expires_time, start_time, worker, timeout_named, retries_named, deadline_time, answer, run, update_time
from {job} where id = any(:ids::bigint[]) order by id for update;

-- name: lock_jobs_of
-- The same for jobs of these queues: other tables are not looked into. Differs from SQLite, which would look into them all the same.
select id, queue, job_type, job_key, state, situation, attempt, failures, losses, crashes, retries, timeout, priority, throttle_factor, time_windows,
  scheduled_run_time, expires_time, start_time, worker, timeout_named, retries_named, deadline_time, answer, run, update_time
from {job} where id = any(:ids::bigint[]) and queue = any(:queues::text[]) order by id for update;

-- name: lock_free_jobs
-- Without those that somebody else has locked.
select * from {job} where id = any(:ids::bigint[]) order by id for update skip locked;

-- name: find_jobs
-- Newest first.
select * from {job}
where (:job_type::text is null or job_type = :job_type) and (:job_key::text is null or job_key = :job_key) and (:queue::text is null or queue = :queue)
  and (:state::text is null or state = :state) and (:outcome::text is null or outcome = :outcome) and (:dead::boolean is null or outcome <> 'success')
  and (:before::bigint is null or id < :before)
order by id desc limit :limit;

-- name: find_archived
select * from {archive}
where (:job_type::text is null or job_type = :job_type) and (:job_key::text is null or job_key = :job_key) and (:queue::text is null or queue = :queue)
  and (:state::text is null or state = :state) and (:outcome::text is null or outcome = :outcome) and (:dead::boolean is null or outcome <> 'success')
  and (:before::bigint is null or id < :before)
order by id desc limit :limit;

-- name: attempts
select * from {attempt} where job = :id order by attempt;

-- name: audits
select * from {audit} where job = :id order by id;

-- name: add_audit
insert into {audit} (time, actor, action, job, attempt, queue, detail) values (:now, :actor, :action, :job, :attempt, :queue, :detail);

-- name: counts
-- Jobs of each queue by state. Counts rows: for people, not for the worker.
select queue, state, outcome, count(*) as count from {job} group by 1, 2, 3;

-- name: add_trace
insert into {trace} (job, context) values (:job, :context) on conflict do nothing;

-- name: traces
select job, context from {trace} where job = any(:ids::bigint[]);

-- name: drop_traces
delete from {trace} where job = any(:ids::bigint[]);
