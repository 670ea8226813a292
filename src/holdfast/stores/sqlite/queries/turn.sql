-- name: settle
-- Plain success, one statement for all of a turn: apsw gives the interpreter away for every single one. A row that is not this attempt's is
-- left alone and counted as stale.
update {queue_table} as j set state = 'final', outcome = 'success', situation = null, end_time = ?1, update_time = ?1, execution_time = e.value ->> 2,
  total_time = total_time + (e.value ->> 2), result = e.value ->> 3
from json_each(?2) e where j.id = e.value ->> 0 and j.state = 'running' and j.attempt = e.value ->> 1 and j.situation = 'held';

-- name: settle_alike
-- The same where result and attempt are all one: to look into each entry takes longer than its update.
update {queue_table} as j set state = 'final', outcome = 'success', situation = null, end_time = ?1, update_time = ?1, execution_time = e.value,
  total_time = total_time + e.value, result = ?4
from json_each(?2) e where j.id = cast(e.key as integer) and j.state = 'running' and j.attempt = ?3 and j.situation = 'held';

-- name: settle_one
-- The same for one.
update {queue_table} set state = 'final', outcome = 'success', situation = null, end_time = ?1, update_time = ?1, execution_time = ?4,
  total_time = total_time + ?4, result = ?5
where id = ?2 and state = 'running' and attempt = ?3 and situation = 'held';

-- name: add_ended
insert into {ended} (end_time, queue, ids) values (?1, ?2, ?3);

-- name: end_leases
delete from {lease} where id in (select value from json_each(?1));

-- name: asked_types
-- Goes into head and take_head: what this worker asks for.
job_type in (select value from json_each(?2));

-- name: asked_or_late_types
-- The same for a worker that leaves some types to others: of those it takes what has been due since a moment.
(job_type in (select value from json_each(?2)) or exists (select 1 from json_each(?6) l where l.value ->> 0 = job_type and ready_time <= l.value ->> 1));

-- name: heard
-- Goes into head and take_head beside them: no answer for a response handler that this worker's code lacks. A probe of a breaker, which
-- stands there under another name, is met all the same: others wait for it.
(job_type not in (select value from json_each(?7)) or not exists (select 1 from {queue_table} j where j.id = {ready}.id and j.situation = 'loose'
  and json_valid(j.answer) and j.answer ->> 'due'));

-- name: head
-- The first jobs in claim order that this worker can run, as one JSON array.
select json_group_array(id order by major, minor, id) from (select major, minor, id from {ready}
where queue = ?1 and {asked} and ready_time <= ?3 and (closes_time is null or closes_time > ?3)
  and exists (select 1 from {queue} where name = ?1 and not paused and coalesce(set_limit, declared_limit) < 1 and throttler is null)
  and exists (select 1 from {worker} where id = ?5 and gone is null)
order by major, minor, id limit ?4);

-- name: take_head
-- They leave the line: the same choice again, in the same transaction.
delete from {ready} where (queue, major, minor, id) in (select queue, major, minor, id from {ready}
where queue = ?1 and {asked} and ready_time <= ?3 and (closes_time is null or closes_time > ?3)
  and exists (select 1 from {queue} where name = ?1 and not paused and coalesce(set_limit, declared_limit) < 1 and throttler is null)
  and exists (select 1 from {worker} where id = ?5 and gone is null)
order by major, minor, id limit ?4);

-- name: take_few
-- The same for a few that are known by now: a worker may ask for hundreds of types.
delete from {ready} where (queue, major, minor, id) in (select queue, major, minor, id from {ready}
where queue = ?1 and id in (select value from json_each(?2)) order by major, minor, id limit ?3);

-- name: take
delete from {ready} where queue = ?1 and major = ?2 and minor = ?3 and id = ?4;

-- name: startable
-- What is about to enter running, as one JSON array, and whether tasks may be held. The row is looked at again: a hint that was wrong is gone
-- and starts nothing.
select json_group_array(json_array(id, attempt + 1, job_type, job_key, payload, timeout, losses, answer, checkpoint, run)),
  exists (select 1 from {hold} where level = 'pick') from {queue_table}
where id in (select value from json_each(?3)) and (state in ('initial', 'error') or situation = 'loose') and scheduled_run_time <= ?2;

-- name: startable_rows
-- The same as rows, for a job with a text that is not UTF-8. Differs from PostgreSQL, which stores no such text.
select id, attempt + 1 as attempt, job_type, job_key, payload, timeout, losses, answer, checkpoint, run from {queue_table}
where id in (select value from json_each(:ids)) and (state in ('initial', 'error') or situation = 'loose') and scheduled_run_time <= :now;

-- name: start
-- Enter running.
update {queue_table} set state = 'running', situation = 'held', attempt = attempt + 1, worker = ?1, start_time = ?2, update_time = ?2, error = 'NONE'
where id in (select value from json_each(?3)) and (state in ('initial', 'error') or situation = 'loose') and scheduled_run_time <= ?2;

-- name: may_begin
-- How many workers live, if new jobs of a queue may begin at once: that is open to this one, and nothing stands before them that it could run.
select (select count(*) from {worker} where gone is null)
where exists (select 1 from {queue} where name = ?1 and not paused and coalesce(set_limit, declared_limit) < 1 and throttler is null)
  and exists (select 1 from {worker} where id = ?2 and gone is null) and not exists (select 1 from {hold} where level = 'pick')
  and not exists (select 1 from {ready} where queue = ?1 and job_type in (select value from json_each(?3)));

-- name: add_lease
insert into {lease} (queue, worker, pump, factor, deadline_time, ids) values (?1, ?2, ?3, ?4, ?5, ?6) returning id;

-- name: move
-- The one guarded statement for everything that is not plain success: jobs that make the same move. Of each there are id, attempt, error, result,
-- payload, failures, losses, crashes, the time it is wanted, deadline, answer, seconds.
update {queue_table} as j set state = :state, situation = :situation, attempt = j.attempt + :raised, outcome = :outcome,
  error = coalesce(e.value ->> 2, j.error), result = coalesce(e.value ->> 3, j.result), payload = coalesce(e.value ->> 4, j.payload),
  failures = e.value ->> 5, losses = e.value ->> 6, crashes = e.value ->> 7, scheduled_run_time = coalesce(e.value ->> 8, j.scheduled_run_time),
  worker = case when :situation is not 'loose' then j.worker end, -- whose attempt waits is kept
  deadline_time = e.value ->> 9, answer = case when :keeps_answer then j.answer else e.value ->> 10 end,
  end_time = case when :ends then :now end, execution_time = coalesce(e.value ->> 11, j.execution_time),
  total_time = j.total_time + coalesce(e.value ->> 11, 0), update_time = :now
from json_each(:rows) e where j.id = e.value ->> 0 and j.state = :was and j.attempt = e.value ->> 1 and j.situation is :situation_was;

-- name: add_attempts
insert into {attempt} (job, attempt, start_time, end_time, outcome, state, error, traceback, seconds, worker)
select e.value ->> 0, e.value ->> 1, e.value ->> 2, :now, e.value ->> 3, e.value ->> 4, e.value ->> 5, e.value ->> 6, e.value ->> 7, e.value ->> 8
from json_each(:rows) e where true
on conflict do nothing;

-- name: add_dead
insert into {dead} (end_time, id, queue) select :now, e.value ->> 0, e.value ->> 1 from json_each(:rows) e;

-- name: add_undecided
insert into {undecided} (job_type, id) select e.value ->> 0, e.value ->> 1 from json_each(:rows) e where true on conflict do nothing;

-- name: undecided
-- Errors that wait for a retry handler which this worker has, and those of types that have none any more.
select id from {undecided} where job_type in (select value from json_each(:types) union all select job_type from {type} where not has_retry_handler)
order by id limit :limit;

-- name: promote
-- Jobs whose time has come take their place in the claim order. They are few: `cross` has SQLite begin with them, whatever
-- a stranger's `analyze` has told it.
insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select j.queue, case q.claim_order when 'priority' then j.priority else j.scheduled_run_time end,
  case q.claim_order when 'priority' then j.scheduled_run_time else j.priority end, j.id, j.job_type, j.throttle_factor, w.closes_time, :now
from (select * from {waiting} where wake_time <= :now order by wake_time, id limit :limit) w
cross join {job} j on j.id = w.id join {queue} q on q.name = j.queue
where j.state in ('initial', 'error') or j.situation = 'loose'
on conflict do nothing;

-- name: drop_promoted
delete from {waiting} where (wake_time, id) in (select wake_time, id from {waiting} where wake_time <= :now order by wake_time, id limit :limit);

-- name: next_wake
select min(wake_time) as wake_time from {waiting};

-- name: add_abort
insert into {abort} (job, attempt, worker, actor, request_time) values (:job, :attempt, :worker, :actor, :now) on conflict do nothing;

-- name: aborts_of
-- Wishes to end jobs that this worker holds.
select job, attempt, actor from {abort} where worker = :worker;

-- name: aborts_among
select job, attempt, actor from {abort} where job in (select value from json_each(:ids));

-- name: drop_aborts
delete from {abort} where job in (select value from json_each(:ids));

-- name: note_ended
insert into {ended} (end_time, queue, ids) values (:now, :queue, :ids);

-- name: lease_until
-- Held by nobody until a deadline: a lost job under on_crash="timeout".
insert into {lease} (queue, deadline_time, ids) values (:queue, :deadline, :ids);

-- name: lease_waits
-- Of jobs that wait for an answer: they count against the limit, and no worker has them.
insert into {lease} (queue, factor, pool, deadline_time, job, ids)
select e.value ->> 0, e.value ->> 1, (select pool from {lease} where id = e.value ->> 2), e.value ->> 3, e.value ->> 4, json_array(e.value ->> 4)
from json_each(:rows) e;

-- name: drop_waits
delete from {lease} where job in (select value from json_each(:ids));

-- name: keep_answer
-- It came before the job waits. The first one wins (R3).
update {queue_table} set answer = :answer, update_time = :now where id = :id and state <> 'final' and answer is null;

-- name: drop_lease
delete from {lease} where id = :id;
