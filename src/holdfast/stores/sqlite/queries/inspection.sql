-- name: inspect_jobs
-- What may be damaged of the jobs of a queue, or of the archive, newest first.
select id, state, time_windows, payload, result, error, answer, checkpoint from {queue_table} where id < :before order by id desc limit :limit;

-- name: inspect_attempts
select id, job, error, outcome from {attempt} where id < :before order by id desc limit :limit;

-- name: inspect_runs
select id, definition, params, step_params, published, ignore, state from {run} where id < :before order by id desc limit :limit;

-- name: inspect_archived_runs
select id, definition, params, step_params, published, ignore, state from {run_archive} where id < :before order by id desc limit :limit;

-- name: inspect_builds
select id, steps, lines, context, condition_names from {build} where id < :before order by id desc limit :limit;

-- name: inspect_steps
-- Of the newest runs.
select run, name, partition, state, cursor from {step} order by run desc, name limit :limit;

-- name: inspect_archived_steps
-- Of the newest runs.
select run, name, partition, state, cursor from {step_archive} order by run desc, name limit :limit;

-- name: inspect_parts
select routine, part, error, checkpoint from {part} order by routine, part;
