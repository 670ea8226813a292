-- name: lock_held
-- Which attempts hold these jobs, until the end of the transaction: here a write transaction has the whole database.
select id, attempt from {job} where id in (select value from json_each(:ids)) and state = 'running' and situation = 'held' order by id;

-- name: lock_free_held
-- Who writes has locked all of them.
select id, attempt from {job} where id in (select value from json_each(:ids)) and state = 'running' and situation = 'held' order by id;

-- name: held_attempts
-- The same without a lock.
select id, attempt from {job} where id in (select value from json_each(:ids)) and state = 'running' and situation = 'held';

-- name: note
-- What an attempt says of its own job; null leaves what is there.
update {queue_table} set progress = coalesce(:progress, progress),
  progress_text = case when :progress is null then progress_text else :progress_text end,
  checkpoint = coalesce(:checkpoint, checkpoint), update_time = :now
where id = :id and state = 'running' and attempt = :attempt and situation = 'held';

-- name: log_ends
-- The last line of each of these jobs.
select l.job, l.id, l.time, l.total from json_each(:ids) i
join {log} l on l.job = i.value and l.id = (select max(id) from {log} where job = i.value);

-- name: add_line
insert into {log} (job, id, time, attempt, level, text, total) values (:job, :id, :time, :attempt, :level, :text, :total);

-- name: drop_lines
-- The oldest lines of a log that has grown over its limit.
delete from {log} where job = :job and id < (select id from {log} where job = :job and total > :floor order by id limit 1);

-- name: log
select id, time, attempt, level, text from {log} where job = :job and id > :after order by id limit :limit;

-- name: drop_log
-- The logs of jobs that are forgotten.
delete from {log} where job in (select value from json_each(:ids));
