-- name: lock_held
-- Which attempts hold these jobs, until the end of the transaction. In the order of ids, as everybody locks them.
select id, attempt from {job} where id = any(:ids::bigint[]) and state = 'running' and situation = 'held' order by id for update;

-- name: lock_free_held
-- The same, but for jobs that somebody else has locked.
select id, attempt from {job} where id = any(:ids::bigint[]) and state = 'running' and situation = 'held' order by id for update skip locked;

-- name: held_attempts
-- The same without a lock: whatever was not among the free ones is locked, or stale.
select id, attempt from {job} where id = any(:ids::bigint[]) and state = 'running' and situation = 'held';

-- name: note
-- What an attempt says of its own job; null leaves what is there.
update {queue_table} set progress = coalesce(:progress::float8, progress),
  progress_text = case when :progress::float8 is null then progress_text else :progress_text::text end,
  checkpoint = coalesce(:checkpoint::text, checkpoint), update_time = :now
where id = :id and state = 'running' and attempt = :attempt and situation = 'held';

-- name: log_ends
-- The last line of each of these jobs.
select l.job, l.id, l.time, l.total from unnest(:ids::bigint[]) i (job)
cross join lateral (select * from {log} where job = i.job order by id desc limit 1) l;

-- name: add_line
insert into {log} (job, id, time, attempt, level, text, total) values (:job, :id, :time, :attempt, :level, :text, :total);

-- name: drop_lines
-- The oldest lines of a log that has grown over its limit.
delete from {log} where job = :job and id < (select id from {log} where job = :job and total > :floor order by id limit 1);

-- name: log
select id, time, attempt, level, text from {log} where job = :job and id > :after order by id limit :limit;

-- name: drop_log
-- The logs of jobs that are forgotten.
delete from {log} where job = any(:ids::bigint[]);
