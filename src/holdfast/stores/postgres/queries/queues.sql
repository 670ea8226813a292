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

-- name: types
select * from {type} order by job_type;

-- name: types_named
select * from {type} where job_type = any(:names::text[]);

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
values (:job_type, :queue, 30, 100, 1, '[]', 3, false, false, null, 'rerun', 3, false, false, false, null, '[]', '[]', 5, :now)
on conflict (job_type) do nothing;

-- name: create_queue_table
-- A partition made apart and then attached, so that a new queue never stalls the fleet. Differs from SQLite: the law is inherited.
create table {queue_table} (like {job} including defaults including constraints) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- name: create_queue_key
alter table {queue_table} add primary key (id);

-- name: attach_queue
alter table {job} attach partition {queue_table} for values in ({queue_name});

-- name: refuse_truncate
create trigger law_truncate before truncate on {queue_table} for each statement execute function {job_refuse}();
