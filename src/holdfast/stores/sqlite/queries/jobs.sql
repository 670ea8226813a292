-- name: create_one
-- What `add_one` inserts into; it may be there if its making was interrupted. Differs from PostgreSQL, where one statement can write to several tables.
create temp view if not exists {one} as select null as id, null as job_type, null as now, null as retry_of, null as priority, null as throttle_factor, null as timeout,
  null as retries, null as timeout_named, null as retries_named, null as payload, null as major, null as minor;

-- name: create_one_trigger
create temp trigger if not exists {one} instead of insert on {one} begin
  update {sequence} set last = new.id;
  insert into {queue_table} (id, job_type, create_time, retry_of, priority, throttle_factor, timeout, retries, timeout_named, retries_named, payload,
    scheduled_run_time, update_time)
  values (new.id, new.job_type, new.now, new.retry_of, new.priority, new.throttle_factor, new.timeout, new.retries, new.timeout_named, new.retries_named,
    new.payload, new.now, new.now);
  insert into {ready} (queue, major, minor, id, job_type, throttle_factor, ready_time)
  values ({queue_name}, new.major, new.minor, new.id, new.job_type, new.throttle_factor, new.now);
end;

-- name: add_one
-- One job that is due now and has no key, if nothing about its queue needs a second look. Positional: this is the usual enqueue.
insert into {one} (id, job_type, now, retry_of, priority, throttle_factor, timeout, retries, timeout_named, retries_named, payload, major, minor)
select s.last + 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
  case q.claim_order when 'priority' then ?4 else ?2 end, case q.claim_order when 'priority' then ?2 else ?4 end
from {sequence} s, {queue} q
where q.name = {queue_name} and q.throttler is null and (coalesce(q.set_limit, q.declared_limit) < 1 or ?5 <= coalesce(q.set_limit, q.declared_limit))
returning id;

-- name: create_begun_one
-- The same for what `add_begun_one` inserts into.
create temp view if not exists {one} as select null as id, null as job_type, null as now, null as retry_of, null as priority, null as throttle_factor, null as timeout,
  null as retries, null as timeout_named, null as retries_named, null as payload, null as worker, null as pump;

-- name: create_begun_one_trigger
create temp trigger if not exists {one} instead of insert on {one} begin
  update {sequence} set last = new.id, begun = new.id;
  insert into {queue_table} (id, job_type, create_time, retry_of, priority, throttle_factor, timeout, retries, timeout_named, retries_named, payload,
    scheduled_run_time, update_time, state, situation, attempt, worker, start_time)
  values (new.id, new.job_type, new.now, new.retry_of, new.priority, new.throttle_factor, new.timeout, new.retries, new.timeout_named, new.retries_named,
    new.payload, new.now, new.now, 'running', 'held', 1, new.worker, new.now);
  update {sequence} set begun = 0;
  insert into {lease} (queue, worker, pump, ids) values ({queue_name}, new.worker, new.pump, '[' || new.id || ']');
end;

-- name: add_begun_one
-- One job that is due now and has no key, and begins at once (see may_begin); nothing if it may not.
insert into {one} (id, job_type, now, retry_of, priority, throttle_factor, timeout, retries, timeout_named, retries_named, payload, worker, pump)
select s.last + 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12 from {sequence} s
where exists (select 1 from {queue} where name = {queue_name} and not paused and coalesce(set_limit, declared_limit) < 1 and throttler is null)
  and exists (select 1 from {worker} where id = ?11 and gone is null)
  and not exists (select 1 from {ready} where queue = {queue_name} and job_type in (select value from json_each(?13)))
returning id, (select max(id) from {lease});

-- name: open_savepoint
-- So that an enqueue inside a transaction is undone as a whole when it fails, and the transaction goes on.
savepoint holdfast;

-- name: undo_savepoint
rollback to savepoint holdfast;

-- name: release_savepoint
release savepoint holdfast;

-- name: next_ids
-- The last of :count new ids. The first :begun of them may be stored as `running`, until `none_begin`.
update {sequence} set last = last + :count, begun = iif(:begun, last + :begun, 0) returning last;

-- name: none_begin
-- Every other new job is `initial` (law_insert).
update {sequence} set begun = 0;

-- name: key_holder
select id from {key} where job_type = :job_type and job_key = :job_key;

-- name: key_holders
-- Which living jobs hold these (type, key) pairs.
select k.job_type, k.job_key, k.id from json_each(:pairs) p
join {key} k on k.job_type = p.value ->> 0 and k.job_key = p.value ->> 1;

-- name: add_job
-- Positional: this is the statement of every enqueue.
insert into {queue_table} (id, job_type, job_key, create_time, retry_of, run, priority, throttle_factor, timeout, retries, timeout_named, retries_named,
  time_windows, expires_time, payload, scheduled_run_time, update_time)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?4);

-- name: add_ready
insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
on conflict do nothing;

-- name: add_alike
-- Jobs that differ by key and payload only, in one JSON text: apsw gives the interpreter away for every single one. With keys it is an object,
-- without an array of payloads: to look into an array for each takes longer. The first :begun of them enter running as they are stored.
insert into {queue_table} (id, job_type, job_key, create_time, run, priority, throttle_factor, timeout, retries, timeout_named, retries_named,
  payload, scheduled_run_time, update_time, state, situation, attempt, worker, start_time)
select :first + rowid, :job_type, case when :keyed then key end, :now, :run, :priority, :throttle_factor, :timeout, :retries, :timeout_named, :retries_named,
  value, :now, :now, iif(rowid < :begun, 'running', 'initial'), iif(rowid < :begun, 'held', null), rowid < :begun, iif(rowid < :begun, :worker, null),
  iif(rowid < :begun, :now, null)
from json_each(:jobs);

-- name: add_alike_ready
-- But for the first :begun of them.
insert into {ready} (queue, major, minor, id, job_type, throttle_factor, ready_time)
select :queue, :major, :minor, :first + rowid, :job_type, :throttle_factor, :now from json_each(:jobs) where rowid >= :begun;

-- name: add_waiting
insert into {waiting} (wake_time, id, queue, closes_time) values (?1, ?2, ?3, ?4) on conflict do nothing;

-- name: place_ready
insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value ->> 5, e.value ->> 6, :now from json_each(:rows) e where true
on conflict do nothing;

-- name: place_waiting
insert into {waiting} (wake_time, id, queue, closes_time)
select e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3 from json_each(:rows) e where true
on conflict do nothing;

-- name: replace_job
-- `on_duplicate="replace"`: only while nobody has begun (Q5).
update {queue_table} set payload = :payload, priority = :priority, throttle_factor = :throttle_factor, timeout = :timeout, retries = :retries,
  timeout_named = :timeout_named, retries_named = :retries_named, time_windows = :time_windows, expires_time = :expires_time, scheduled_run_time = :scheduled_run_time, update_time = :now
where id = :id and state = 'initial';

-- name: drop_ready
delete from {ready} where queue = :queue and id = :id and major = :major and minor = :minor;

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
select * from {job} where id in (select value from json_each(:ids)) order by id;

-- name: lock_jobs
-- Differs from PostgreSQL: a write transaction has the whole database, so there is nothing to lock.
select id, queue, job_type, job_key, state, situation, attempt, failures, losses, crashes, retries, timeout, priority, throttle_factor, time_windows,
  scheduled_run_time, expires_time, start_time, worker, timeout_named, retries_named, deadline_time, answer, run, update_time
from {job} where id in (select value from json_each(:ids)) order by id;

-- name: lock_free_jobs
-- Who writes has locked all of them.
select * from {job} where id in (select value from json_each(:ids)) order by id;

-- name: find_jobs
-- Newest first.
select * from {job}
where (:job_type is null or job_type = :job_type) and (:job_key is null or job_key = :job_key) and (:queue is null or queue = :queue)
  and (:state is null or state = :state) and (:outcome is null or outcome = :outcome) and (:dead is null or outcome <> 'success')
  and (:before is null or id < :before)
order by id desc limit :limit;

-- name: find_archived
select * from {archive}
where (:job_type is null or job_type = :job_type) and (:job_key is null or job_key = :job_key) and (:queue is null or queue = :queue)
  and (:state is null or state = :state) and (:outcome is null or outcome = :outcome) and (:dead is null or outcome <> 'success')
  and (:before is null or id < :before)
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
select job, context from {trace} where job in (select value from json_each(:ids));

-- name: drop_traces
delete from {trace} where job in (select value from json_each(:ids));
