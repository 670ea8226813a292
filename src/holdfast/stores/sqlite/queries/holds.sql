-- name: holds
-- Those in force.
select * from {hold} where releasing is null order by hold_time, level, workflow, trigger;

-- name: hold
select * from {hold} where level = :level and workflow = :workflow and trigger = :trigger;

-- name: holds_of
-- What one run, or with no run new ones of a workflow, are kept back by.
select * from {hold} where releasing is null and (workflow = '' or workflow = :workflow) and (run is null or run = :run)
order by hold_time, level, workflow, trigger;

-- name: knows_workflow
select name from {workflow} where name = :workflow union all select workflow from {trigger} where workflow = :workflow limit 1;

-- name: add_hold
-- The first one counts; one that is just being released is held anew.
insert into {hold} (level, workflow, trigger, run, actor, hold_time) values (:level, :workflow, :trigger, :run, :actor, :now)
on conflict (level, workflow, trigger) do update set actor = excluded.actor, hold_time = excluded.hold_time, releasing = null
where {hold}.releasing is not null;

-- name: release_hold
-- It is in force no more. What it kept back comes in lots after it.
update {hold} set releasing = 0 where level = :level and workflow = :workflow and trigger = :trigger and releasing is null;

-- name: lock_releasing
-- A release that is not done. Differs from PostgreSQL: a write transaction has the whole database, so there is nothing to lock.
select * from {hold} where releasing is not null order by level, workflow, trigger limit 1;

-- name: note_releasing
update {hold} set releasing = :releasing where level = :level and workflow = :workflow and trigger = :trigger;

-- name: drop_hold
delete from {hold} where level = :level and workflow = :workflow and trigger = :trigger and releasing is not null;

-- name: held_tasks
-- Which of these jobs are tasks that a hold keeps from starting.
select j.id, j.run, j.job_type from {queue_table} j join {hold} h on (h.workflow = '' or h.workflow = substr(j.job_type, 1, instr(j.job_type, '.') - 1))
  and (h.run is null or h.run = j.run)
where h.level = 'pick' and h.releasing is null and j.id in (select value from json_each(:ids)) and j.run is not null
  and (j.state in ('initial', 'error') or j.situation = 'loose');

-- name: tasks_in_line
-- Among the first in line; the type of a task has a dot in it.
select * from (select id, job_type, major, minor from {ready} where queue = :queue order by major, minor, id limit :limit) where job_type like '%.%';

-- name: put_held
insert into {held} (workflow, run, id, queue, job_type) values (:workflow, :run, :id, :queue, :job_type) on conflict do nothing;

-- name: drop_held
delete from {held} where id = :id;

-- name: place_back_held
-- What a release lets go on stands in line again, unless another hold covers it.
insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
select j.queue, case q.claim_order when 'priority' then j.priority else j.scheduled_run_time end,
  case q.claim_order when 'priority' then j.scheduled_run_time else j.priority end, j.id, j.job_type, j.throttle_factor, null, :now
from (select t.id from {held} t where (:workflow = '' or t.workflow = :workflow) and (:run is null or t.run = :run)
  and not exists (select 1 from {hold} h where h.level = 'pick' and h.releasing is null and (h.workflow = '' or h.workflow = t.workflow) and (h.run is null or h.run = t.run))
  order by t.workflow, t.run, t.id limit :limit) b
cross join {job} j on j.id = b.id join {queue} q on q.name = j.queue
where j.state in ('initial', 'error') or j.situation = 'loose'
on conflict do nothing;

-- name: take_back_held
-- The same again, in the same transaction.
delete from {held} where (workflow, run, id) in (
  select t.workflow, t.run, t.id from {held} t where (:workflow = '' or t.workflow = :workflow) and (:run is null or t.run = :run)
  and not exists (select 1 from {hold} h where h.level = 'pick' and h.releasing is null and (h.workflow = '' or h.workflow = t.workflow) and (h.run is null or h.run = t.run))
  order by t.workflow, t.run, t.id limit :limit)
returning id;

-- name: keep_creation
-- What keeps the tasks of a run from being made.
select 1 from {hold} h where h.level = 'create' and h.releasing is null and (h.workflow = '' or h.workflow = :workflow) and (h.run is null or h.run = :run);

-- name: runs_to_fill
-- Living runs with steps whose tasks are not all made.
select r.id from {run} r where r.id > :after and r.state in ('UNDONE', 'STUCK') and (:workflow = '' or r.workflow = :workflow) and (:run is null or r.id = :run)
  and exists (select 1 from {step} s where s.run = r.id and s.state = 'START' and not s.all_created)
order by r.id limit :limit;

-- name: steps_to_fill
select name from {step} where run = :run and state = 'START' and not all_created order by position;
