-- name: queues
-- Every queue of the instance.
select name, table_name, claim_order, declared_limit, throttler, set_limit, paused from {queue} order by name;

-- name: add_queue
insert into {queue} (name, table_name, claim_order, declared_limit, throttler, create_time)
values (:name, :table_name, :claim_order, :declared_limit, :throttler, :now);

-- name: change_queue
-- What the code declares; what an operator set stays (Q2).
update {queue} set claim_order = :claim_order, declared_limit = :declared_limit, throttler = :throttler where name = :name;

-- name: pause_queue
update {queue} set paused = :paused where name = :name;

-- name: limit_queue
update {queue} set set_limit = :set_limit where name = :name;

-- name: reorder_ready
-- The claim order changed: the two numbers change places.
update {ready} set major = minor, minor = major where queue = :queue;

-- name: create_queue_table
-- The job table of one queue, with the law on it. Differs from PostgreSQL: there it is a partition and inherits all this.
create table {queue_table} (
  id integer primary key,
  queue text not null default {queue_name} check (queue = {queue_name}),
  job_type text not null,
  job_key text,
  create_time integer not null,
  retry_of integer,
  run integer, -- whose task it is
  priority real not null,
  throttle_factor real not null check (throttle_factor >= 0),
  timeout real,
  retries integer,
  timeout_named integer not null default 0, -- somebody asked for it; else it is the default
  retries_named integer not null default 0,
  time_windows text,
  expires_time integer,
  payload text not null,
  scheduled_run_time integer not null,
  update_time integer not null,
  start_time integer,
  end_time integer,
  state text not null default 'initial',
  situation text,
  outcome text,
  attempt integer not null default 0,
  failures integer not null default 0,
  losses integer not null default 0,
  crashes integer not null default 0,
  deadline_time integer, -- of a job that waits for an answer
  answer text, -- from outside, kept until the job waits for it
  checkpoint text,
  progress real,
  progress_text text,
  execution_time real,
  total_time real not null default 0,
  worker integer,
  result text,
  error text not null default 'NONE',
  constraint law check (case state
    when 'initial' then error = 'NONE' and outcome is null and situation is null and attempt = 0
    when 'running' then error = 'NONE' and outcome is null and situation in ('held', 'waiting', 'loose') and attempt > 0
    when 'error' then error <> 'NONE' and outcome is null and situation is null and attempt > 0
    when 'final' then outcome in ('success', 'failed', 'error', 'aborted') and (outcome = 'success') = (error = 'NONE') and situation is null
      and end_time is not null and attempt > 0
    else 0 end)
) strict;

-- name: drop_job_view
drop view if exists {job};

-- name: create_job_view
create view {job} as {arms};

-- name: job_view_arm
select * from {queue_table};

-- name: job_view_empty
select *, null as archive_time from {archive} where 0;

-- name: create_queue_index
create index {queue_table_key} on {queue_table} (job_type, job_key, id) where job_key is not null;

-- name: create_queue_index_of_runs
-- A page of a step's tasks costs the same however many jobs, or tasks of it, there are.
create index {queue_table_run} on {queue_table} (run, job_type, id) where run is not null;

-- name: create_law_update
-- AFTER with WHEN: a legal write runs no trigger program. The texts are literals because libraries before 3.47 cannot read
-- a schema in which raise() has anything else, and strangers look at the file with what they have.
create trigger {queue_table_update} after update on {queue_table} when not coalesce(
  old.state <> 'final' and new.id = old.id and new.create_time = old.create_time and new.job_type = old.job_type
  and new.job_key is old.job_key
  and case new.state
    when 'running' then (new.attempt = old.attempt + 1 and new.situation = 'held' and (old.state in ('initial', 'error') or old.situation is 'loose'))
      or (old.state = 'running' and new.attempt = old.attempt and (old.situation = 'held' or new.situation in ('loose', old.situation)))
    when 'error' then new.attempt = old.attempt and (old.state = 'running' or (old.state = 'error' and new.error = old.error))
    when 'final' then new.attempt = old.attempt and old.state = case new.outcome when 'success' then 'running' else 'error' end
    else old.state = 'initial' and new.state = 'initial' end, 0)
begin
  select case old.state || ' ' || new.state
    when 'initial initial' then raise(abort, 'holdfast law: a job in `initial` may not become `initial` that way')
    when 'initial running' then raise(abort, 'holdfast law: a job in `initial` may not become `running` that way')
    when 'initial error' then raise(abort, 'holdfast law: a job in `initial` may not become `error`')
    when 'initial final' then raise(abort, 'holdfast law: a job in `initial` may not become `final`')
    when 'running initial' then raise(abort, 'holdfast law: a job in `running` may not become `initial`')
    when 'running running' then raise(abort, 'holdfast law: a job in `running` may not become `running` that way')
    when 'running error' then raise(abort, 'holdfast law: a job in `running` may not become `error` that way')
    when 'running final' then raise(abort, 'holdfast law: a job in `running` may not become `final` that way')
    when 'error initial' then raise(abort, 'holdfast law: a job in `error` may not become `initial`')
    when 'error running' then raise(abort, 'holdfast law: a job in `error` may not become `running` that way')
    when 'error error' then raise(abort, 'holdfast law: a job in `error` may not become `error` that way')
    when 'error final' then raise(abort, 'holdfast law: a job in `error` may not become `final` that way')
    when 'final initial' then raise(abort, 'holdfast law: a job in `final` may not become `initial`')
    when 'final running' then raise(abort, 'holdfast law: a job in `final` may not become `running`')
    when 'final error' then raise(abort, 'holdfast law: a job in `final` may not become `error`')
    when 'final final' then raise(abort, 'holdfast law: a job in `final` may not become `final`')
    else raise(abort, 'holdfast law: a job is `initial`, `running`, `error` or `final`')
  end;
end;

-- name: create_law_insert
-- BEFORE, because of `insert or replace`: it would delete the row with that id, and no trigger would be asked.
-- A job that begins as it is stored is in its first attempt, and the statement that stores it says so.
create trigger {queue_table_insert} before insert on {queue_table} when exists (select 1 from {queue_table} where id = new.id)
  or (new.state <> 'initial' and not (new.state = 'running' and new.attempt = 1 and new.situation = 'held' and new.id <= (select begun from {sequence})))
  or not json_valid(new.payload)
begin
  select case when json_valid(new.payload) then raise(abort, 'holdfast law: a new job must be `initial` and have an id of its own')
    else raise(abort, 'holdfast law: a payload must be JSON') end;
end;

-- name: drop_law_insert
-- Made anew by a migration.
drop trigger if exists {queue_table_insert};

-- name: create_law_payload
-- A row that is damaged already may go on: only what is written now is checked.
create trigger {queue_table_payload} before update of payload on {queue_table} when new.payload <> old.payload and not json_valid(new.payload)
begin
  select raise(abort, 'holdfast law: a payload must be JSON');
end;

-- name: drop_law_payload
-- Made anew by a migration.
drop trigger if exists {queue_table_payload};

-- name: create_law_delete
create trigger {queue_table_delete} after delete on {queue_table} when old.state <> 'final'
begin
  select case old.state
    when 'initial' then raise(abort, 'holdfast law: a job in `initial` may not be deleted, only one in `final` may')
    when 'running' then raise(abort, 'holdfast law: a job in `running` may not be deleted, only one in `final` may')
    when 'error' then raise(abort, 'holdfast law: a job in `error` may not be deleted, only one in `final` may')
  end;
end;

-- name: create_key_take
-- Looks first: `insert or ignore` and `or replace` hold for what a trigger inserts, too.
create trigger {queue_table_key_take} after insert on {queue_table} when new.job_key is not null
begin
  select raise(abort, 'holdfast law: the job type already has a living job with this key')
  where exists (select 1 from {key} where job_type = new.job_type and job_key = new.job_key);
  insert into {key} (job_type, job_key, id) values (new.job_type, new.job_key, new.id);
end;

-- name: create_key_free
create trigger {queue_table_key_free} after update on {queue_table} when new.job_key is not null and new.state = 'final' and old.state <> 'final'
begin
  delete from {key} where job_type = new.job_type and job_key = new.job_key and id = new.id;
end;

-- name: types
select * from {type} order by job_type;

-- name: types_named
select * from {type} where job_type in (select value from json_each(:names));

-- name: adaptive_types
select * from {type} where retry like '%adaptive%';

-- name: put_type
insert into {type} (job_type, queue, default_timeout, default_priority, default_throttle_factor, default_time_windows, default_retries, timeout_named, retries_named, retry, on_crash,
  max_crashes, has_handler, has_retry_handler, has_response_handler, schema, labels, prefers, prefer_for, secrets, update_time)
values (:job_type, :queue, :default_timeout, :default_priority, :default_throttle_factor, :default_time_windows, :default_retries, :timeout_named, :retries_named, :retry, :on_crash,
  :max_crashes, :has_handler, :has_retry_handler, :has_response_handler, :schema, :labels, :prefers, :prefer_for, :secrets, :now)
on conflict (job_type) do update set queue = excluded.queue, default_timeout = excluded.default_timeout, default_priority = excluded.default_priority,
  default_throttle_factor = excluded.default_throttle_factor, default_time_windows = excluded.default_time_windows,
  default_retries = excluded.default_retries, timeout_named = excluded.timeout_named, retries_named = excluded.retries_named, retry = excluded.retry, on_crash = excluded.on_crash, max_crashes = excluded.max_crashes,
  has_handler = excluded.has_handler, has_retry_handler = excluded.has_retry_handler, has_response_handler = excluded.has_response_handler,
  schema = excluded.schema, labels = excluded.labels, prefers = excluded.prefers, prefer_for = excluded.prefer_for, secrets = excluded.secrets, update_time = excluded.update_time;

-- name: add_type
-- A type met for the first time by creating a job of it by name (Q3).
insert into {type} (job_type, queue, default_timeout, default_priority, default_throttle_factor, default_time_windows, default_retries, timeout_named, retries_named, retry, on_crash,
  max_crashes, has_handler, has_retry_handler, has_response_handler, schema, labels, prefers, prefer_for, update_time)
values (:job_type, :queue, 30, 100, 1, '[]', 3, 0, 0, null, 'rerun', 3, 0, 0, 0, null, '[]', '[]', 5, :now)
on conflict (job_type) do nothing;
