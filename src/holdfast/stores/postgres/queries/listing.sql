-- name: page
-- Newest first, from behind :before: of the next :budget jobs those that fit. The table is a queue's, or all jobs, or the archive.
select * from (select * from {queue_table} where id < :before order by id desc limit :budget) walked
where (:job_type::text is null or job_type = :job_type) and (:job_key::text is null or job_key = :job_key) and (:queue::text is null or queue = :queue)
  and (:state::text is null or state = :state) and (:outcome::text is null or outcome = :outcome) and (:dead::boolean is null or outcome <> 'success')
  and (:situation::text is null or situation = :situation) and (:worker::bigint is null or (worker = :worker and situation is distinct from 'waiting')) and (:run::bigint is null or run = :run)
  and (:retry_of::bigint is null or retry_of = :retry_of) and (:priority::float8 is null or priority = :priority) and (:attempt::int is null or attempt = :attempt)
  and (:failures::int is null or failures = :failures) and (:error::text is null or (error <> 'NONE' and strpos(error, :error) > 0))
  and (:create_time_since::timestamptz is null or create_time >= :create_time_since) and (:create_time_until::timestamptz is null or create_time < :create_time_until)
  and (:scheduled_run_time_since::timestamptz is null or scheduled_run_time >= :scheduled_run_time_since)
  and (:scheduled_run_time_until::timestamptz is null or scheduled_run_time < :scheduled_run_time_until)
  and (:end_time_since::timestamptz is null or end_time >= :end_time_since) and (:end_time_until::timestamptz is null or end_time < :end_time_until)
order by id desc limit :limit;

-- name: walked
-- How far `page` has looked.
select count(*) as count, min(id) as last from (select id from {queue_table} where id < :before order by id desc limit :budget) walked;

-- name: page_of
-- `page`, of these jobs only.
select * from (select * from {job} where id < :before and id = any(:ids::bigint[])) named
where (:job_type::text is null or job_type = :job_type) and (:job_key::text is null or job_key = :job_key) and (:queue::text is null or queue = :queue)
  and (:state::text is null or state = :state) and (:outcome::text is null or outcome = :outcome) and (:dead::boolean is null or outcome <> 'success')
  and (:situation::text is null or situation = :situation) and (:worker::bigint is null or (worker = :worker and situation is distinct from 'waiting')) and (:run::bigint is null or run = :run)
  and (:retry_of::bigint is null or retry_of = :retry_of) and (:priority::float8 is null or priority = :priority) and (:attempt::int is null or attempt = :attempt)
  and (:failures::int is null or failures = :failures) and (:error::text is null or (error <> 'NONE' and strpos(error, :error) > 0))
  and (:create_time_since::timestamptz is null or create_time >= :create_time_since) and (:create_time_until::timestamptz is null or create_time < :create_time_until)
  and (:scheduled_run_time_since::timestamptz is null or scheduled_run_time >= :scheduled_run_time_since)
  and (:scheduled_run_time_until::timestamptz is null or scheduled_run_time < :scheduled_run_time_until)
  and (:end_time_since::timestamptz is null or end_time >= :end_time_since) and (:end_time_until::timestamptz is null or end_time < :end_time_until)
order by id desc limit :limit;

-- name: ids_running
select unnest(ids) as id from {lease} limit :most;

-- name: ids_unbegun
-- Due, waiting for their time, or in the way of something.
select id from {ready} union all select id from {aside} union all select id from {waiting} union all select id from {parked}
union all select id from {undecided} union all select id from {held} limit :most;

-- name: ids_dead
select id from {dead} order by end_time desc, id desc limit :most;

-- name: ids_of_key
select id from {job} where job_type = :job_type and job_key = :job_key limit :most;

-- name: last_records
select coalesce((select max(id) from {audit}), 0) as audit, coalesce((select max(id) from {attempt}), 0) as attempt;

-- name: audits_after
select id, time, actor, action, job, attempt, queue, detail from {audit} where id > :after order by id limit :limit;

-- name: attempts_after
select id, job, attempt, outcome, state, end_time, error from {attempt} where id > :after order by id limit :limit;

-- name: recent_ends
-- Of the transactions that ended jobs last.
select j.job_type, j.outcome, j.execution_time from (
  select unnest(ids) as id from (select ids from {ended} order by id desc limit :transactions) e limit :limit) i
join {job} j on j.id = i.id where j.outcome is not null;

-- name: size
select pg_database_size(current_database()) as bytes;
