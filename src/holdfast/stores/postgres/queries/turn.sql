-- name: settle
-- Plain success. :ids is sorted, so width_bucket finds a job's place in the other arrays: a join with unnest is planned by statistics
-- that lie (the table was tiny when the plan was made) and then walks the whole table for every job. A row that is not this attempt's is left alone.
-- If one of them may be :keyed, their keys are freed here, and not one by one by the trigger.
with done as (
  update {queue_table} j set state = 'final', outcome = 'success', situation = null, end_time = coalesce(:now::timestamptz, statement_timestamp()),
    update_time = coalesce(:now::timestamptz, statement_timestamp()), execution_time = (:seconds::float8[])[width_bucket(j.id, :ids::bigint[])],
    total_time = j.total_time + (:seconds::float8[])[width_bucket(j.id, :ids::bigint[])], result = (:results::text[])[width_bucket(j.id, :ids::bigint[])]
  where j.id = any(:ids::bigint[]) and (select set_config('holdfast.keys', case when :keyed then 'kept' else '' end, true)) is not null
    and (j.state, j.attempt, j.situation) is not distinct from ('running', (:attempts::int[])[width_bucket(j.id, :ids::bigint[])], 'held')
  returning j.id, j.job_type, j.job_key),
 freed as (delete from {key} where :keyed and ctid = any(array(
  select k.ctid from done cross join lateral (select ctid from {key} where job_type = done.job_type and job_key = done.job_key and id = done.id offset 0) k))),
 noted as (insert into {ended} (end_time, queue, ids)
  select coalesce(:now::timestamptz, statement_timestamp()), :queue, array_agg(id) from done having count(*) > 0)
select count(*), coalesce(:now::timestamptz, statement_timestamp()) as now, set_config('holdfast.keys', '', true) from done;

-- name: settle_all
-- The same for jobs of one type that have keys, for whoever expects none of them to be stale: that is an error. All these keys are theirs then, and
-- are found by one walk through the index. Differs from SQLite, where one statement does for both.
with done as (
  update {queue_table} j set state = 'final', outcome = 'success', situation = null, end_time = coalesce(:now::timestamptz, statement_timestamp()),
    update_time = coalesce(:now::timestamptz, statement_timestamp()), execution_time = (:seconds::float8[])[width_bucket(j.id, :ids::bigint[])],
    total_time = j.total_time + (:seconds::float8[])[width_bucket(j.id, :ids::bigint[])], result = (:results::text[])[width_bucket(j.id, :ids::bigint[])]
  where j.id = any(:ids::bigint[]) and (select set_config('holdfast.keys', 'kept', true)) is not null
    and (j.state, j.attempt, j.situation) is not distinct from ('running', (:attempts::int[])[width_bucket(j.id, :ids::bigint[])], 'held')
  returning j.id),
 freed as (delete from {key} where job_type = :job_type and job_key = any(:keys::text[])),
 noted as (insert into {ended} (end_time, queue, ids)
  select coalesce(:now::timestamptz, statement_timestamp()), :queue, array_agg(id) from done having count(*) > 0)
select set_config('holdfast.keys', '', true), 1 / case when count(*) = cardinality(:ids::bigint[]) then 1 else 0 end from done;

-- name: end_leases
delete from {lease} where id = any(:ids::bigint[]);

-- name: asked_types
-- Goes into claim: what this worker asks for.
job_type = any(:types::text[]);

-- name: asked_or_late_types
-- The same for a worker that leaves some types to others: of those it takes what has been due for so many seconds.
(job_type = any(:types::text[]) or exists (select from unnest(:late::text[], :seconds::float8[]) l (name, seconds)
  where l.name = job_type and ready_time <= coalesce(:now::timestamptz, statement_timestamp()) - make_interval(secs => l.seconds)));

-- name: heard
-- Goes into claim beside them: no answer for a response handler that this worker's code lacks. A probe of a breaker, which stands there
-- under another name, is met all the same: others wait for it.
(job_type <> all(:deaf::text[]) or not exists (select from {queue_table} j where j.id = line.id and j.situation = 'loose'
  and {value_in}(j.answer, array['due']) = 'true'));

-- name: behind
-- Goes into claim beside them: only what stands behind a place. Differs from SQLite, where nothing dead is in the way.
(major, minor, id) > (:major::float8, :minor::float8, :last::bigint);

-- name: before
-- Goes into claim beside them, where it looks at what was stored lately: only what stands before a place.
(major, minor, id) <= (:major::float8, :minor::float8, :last::bigint);

-- name: unlocked
-- Goes into claim, and into the look at a throttled queue, beside them: only what nobody else has locked, and what is found stays ours until the
-- end of the transaction. Differs from SQLite, where who writes has locked everything.
exists (select from {queue_table} j where j.id = line.id for no key update skip locked);

-- name: claimable
-- Goes into the head of a claim.
queue = :queue and {asked} and ready_time <= coalesce(:now::timestamptz, statement_timestamp())
and (closes_time is null or closes_time > coalesce(:now::timestamptz, statement_timestamp()))
and (select not paused and coalesce(set_limit, declared_limit) < 1 and throttler is null from {queue} where name = :queue)
and exists (select from {worker} where id = :worker and gone is null);

-- name: head
-- Goes into claim: the first of the line.
head as (select ctid from {ready} line where {claimable} order by major, minor, id for update skip locked limit :room);

-- name: head_of_new
-- Goes into claim in its place: the first of what was stored from a page of the table on, without a walk over what is dead in the line.
-- Differs from SQLite, where nothing is.
fresh as materialized (
  select ctid as spot, queue, major, minor, id, job_type, closes_time, ready_time from {ready} where ctid >= :page::tid),
head as (
  select r.ctid from (select spot, major, minor, id from fresh line where {claimable} order by major, minor, id offset 0) line
    join {ready} r on r.ctid = line.spot
  where {lockable} order by line.major, line.minor, line.id for update of r skip locked limit :room);

-- name: line_size
-- In pages. What is stored after this was read is in the last ones, in those behind them, or where there was room before.
select pg_relation_size({ready_text}::regclass) / current_setting('block_size')::bigint as pages, clock_timestamp() as at;

-- name: looked
-- When the claims of a turn that look back had looked.
select clock_timestamp() as at;

-- name: claim
-- The first jobs in claim order that this worker can run enter running. Whoever deletes the ready row owns the job; the row is
-- looked at again: a hint that was wrong is gone and starts nothing. A task that somebody holds is put apart; then a row without id tells of it.
with {head},
 taken as (delete from {ready} where ctid = any(array(select ctid from head)) returning id),
 blocked as materialized (
  select j.id, j.run, j.job_type from {hold} h join {queue_table} j on (h.workflow = '' or h.workflow = split_part(j.job_type, '.', 1))
    and (h.run is null or h.run = j.run)
  where h.level = 'pick' and h.releasing is null and j.id = any(array(select id from taken)) and j.run is not null
    and (j.state in ('initial', 'error') or j.situation = 'loose') and (select exists (select from {hold} where level = 'pick'))
  for share of h),
 put_held as (
  insert into {held} (workflow, run, id, queue, job_type) select split_part(job_type, '.', 1), run, id, :queue, job_type from blocked
  on conflict do nothing),
 started as (
  update {queue_table} j set state = 'running', situation = 'held', attempt = j.attempt + 1, worker = :worker, error = 'NONE',
    start_time = coalesce(:now::timestamptz, statement_timestamp()), update_time = coalesce(:now::timestamptz, statement_timestamp())
  where j.id = any(array(select id from taken)) and j.id <> all(array(select id from blocked)) and (j.state in ('initial', 'error') or j.situation = 'loose')
    and j.scheduled_run_time <= coalesce(:now::timestamptz, statement_timestamp())
  returning j.id, j.attempt, j.job_type, j.job_key, j.payload, j.timeout, j.losses, j.answer, j.checkpoint, j.run, j.priority,
    date_part('epoch', j.scheduled_run_time) as wanted),
 lease as (
  insert into {lease} (queue, worker, pump, ids) select :queue, :worker, :pump, array_agg(id) from started having count(*) > 0 returning id)
select started.*, (select id from lease) from started
union all select null, null, null, null, null, null, null, null, null, null, null, null, null where exists (select from blocked);

-- name: move
-- The one guarded statement for everything that is not plain success: jobs that make the same move. Their values stand in lists in the order of
-- :ids, which is sorted, and are found as in settle; a list that is missing has none.
update {queue_table} j set state = :state, situation = :situation::text, attempt = j.attempt + :raised::int, outcome = :outcome,
  error = coalesce((:errors::text[])[width_bucket(j.id, :ids::bigint[])], j.error), result = coalesce((:results::text[])[width_bucket(j.id, :ids::bigint[])], j.result),
  payload = coalesce((:payloads::text[])[width_bucket(j.id, :ids::bigint[])], j.payload),
  failures = (:failures::int[])[width_bucket(j.id, :ids::bigint[])], losses = (:losses::int[])[width_bucket(j.id, :ids::bigint[])], crashes = (:crashes::int[])[width_bucket(j.id, :ids::bigint[])],
  scheduled_run_time = coalesce((:times::timestamptz[])[width_bucket(j.id, :ids::bigint[])], j.scheduled_run_time),
  worker = case when :situation::text is distinct from 'loose' then j.worker end,  -- whose attempt waits is kept
  deadline_time = (:deadlines::timestamptz[])[width_bucket(j.id, :ids::bigint[])],
  answer = case when :keeps_answer::boolean then j.answer else (:answers::text[])[width_bucket(j.id, :ids::bigint[])] end,
  end_time = case when :ends::boolean then :now::timestamptz end, execution_time = coalesce((:seconds::float8[])[width_bucket(j.id, :ids::bigint[])], j.execution_time),
  total_time = j.total_time + coalesce((:seconds::float8[])[width_bucket(j.id, :ids::bigint[])], 0), update_time = :now
where j.id = any(:ids::bigint[]) and (j.state, j.attempt, j.situation) is not distinct from (:was, (:attempts::int[])[width_bucket(j.id, :ids::bigint[])], :situation_was);

-- name: add_attempts
insert into {attempt} (job, attempt, start_time, end_time, outcome, state, error, traceback, seconds, worker)
select a.job, a.attempt, a.start_time, :now::timestamptz, a.outcome, a.state, a.error, a.traceback, a.seconds, a.worker
from unnest(:jobs::bigint[], :attempts::int[], :start_times::timestamptz[], :outcomes::text[], :states::text[], :errors::text[], :tracebacks::text[],
  :seconds::float8[], :workers::text[]) a (job, attempt, start_time, outcome, state, error, traceback, seconds, worker)
on conflict do nothing;

-- name: add_dead
insert into {dead} (end_time, id, queue) select :now::timestamptz, d.id, d.queue from unnest(:ids::bigint[], :queues::text[]) d (id, queue);

-- name: add_undecided
insert into {undecided} (job_type, id) select u.job_type, u.id from unnest(:types::text[], :ids::bigint[]) u (job_type, id) on conflict do nothing;

-- name: undecided
-- Errors that wait for a retry handler which this worker has, and those of types that have none any more.
select id from {undecided} where job_type = any(array(select unnest(:types::text[]) union all select job_type from {type} where not has_retry_handler))
order by id limit :limit;

-- name: promote
-- Jobs whose time has come take their place in the claim order.
with due as (
  delete from {waiting} where ctid = any(array(
    select ctid from {waiting} where wake_time <= coalesce(:now::timestamptz, statement_timestamp()) order by wake_time, id limit :limit for update skip locked))
  returning id, queue, closes_time),
 placed as (
  insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
  select j.queue, case q.claim_order when 'priority' then j.priority else extract(epoch from j.scheduled_run_time)::float8 end,
    case q.claim_order when 'priority' then extract(epoch from j.scheduled_run_time)::float8 else j.priority end, j.id, j.job_type, j.throttle_factor,
    w.closes_time, coalesce(:now::timestamptz, statement_timestamp())
  from due w join {queue} q on q.name = w.queue
    cross join lateral (select * from {job} where id = w.id and queue = w.queue offset 0) j  -- offset 0: one look-up for each, whatever the statistics say
  where j.state in ('initial', 'error') or j.situation = 'loose'
  on conflict do nothing)
select count(*) as promoted, (select date_part('epoch', min(wake_time) - coalesce(:now::timestamptz, statement_timestamp())) from {waiting}
  where wake_time > coalesce(:now::timestamptz, statement_timestamp())) as wake_in
from due;

-- name: add_abort
insert into {abort} (job, attempt, worker, actor, request_time) values (:job, :attempt, :worker, :actor, :now) on conflict do nothing;

-- name: aborts_of
-- Wishes to end jobs that this worker holds.
select job, attempt, actor from {abort} where worker = :worker;

-- name: aborts_among
select job, attempt, actor from {abort} where job = any(:ids::bigint[]);

-- name: drop_aborts
delete from {abort} where job = any(:ids::bigint[]);

-- name: note_ended
insert into {ended} (end_time, queue, ids) values (:now, :queue, :ids);

-- name: lease_until
-- Held by nobody until a deadline: a lost job under on_crash="timeout".
insert into {lease} (queue, deadline_time, ids) values (:queue, :deadline, :ids);

-- name: lease_waits
-- Of jobs that wait for an answer: they count against the limit, and no worker has them.
insert into {lease} (queue, factor, pool, deadline_time, job, ids)
select w.queue, w.factor, (select pool from {lease} where id = w.lease), w.deadline, w.job, array[w.job]
from unnest(:queues::text[], :factors::float8[], :leases::bigint[], :deadlines::timestamptz[], :jobs::bigint[]) w (queue, factor, lease, deadline, job);

-- name: drop_waits
delete from {lease} where job = any(:ids::bigint[]);

-- name: keep_answer
-- It came before the job waits. The first one wins (R3).
update {queue_table} set answer = :answer, update_time = :now where id = :id and state <> 'final' and answer is null;

-- name: drop_lease
delete from {lease} where id = :id;

-- name: vacuum_ready
vacuum (truncate off, parallel 0, skip_locked) {ready};

-- name: vacuum_lease
vacuum (truncate off, parallel 0, skip_locked) {lease};

-- name: oldest_snapshot
-- Whose dead rows nobody may remove, and how many stand in the line. An open transaction that has written holds them too.
select held.pid, held.oldest::text, coalesce(pg_stat_get_dead_tuples({ready_text}::regclass), 0) as dead
from (values (1)) one (row) left join (
  select pid, backend_xmin as oldest from pg_stat_activity where pid <> pg_backend_pid() and backend_xmin is not null and (datname is null or datname = current_database())
  union all select pid, backend_xid from pg_stat_activity where pid <> pg_backend_pid() and backend_xid is not null and datname = current_database()
  union all select null, xmin from pg_replication_slots where xmin is not null
  union all select null, transaction from pg_prepared_xacts where database = current_database()) held on true
order by age(held.oldest) desc nulls last limit 1;
