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
select name from {workflow} where name = :workflow union all (select workflow from {trigger} where workflow = :workflow limit 1) limit 1;

-- name: add_hold
-- The first one counts; one that is just being released is held anew.
insert into {hold} (level, workflow, trigger, run, actor, hold_time) values (:level, :workflow, :trigger, :run, :actor, :now)
on conflict (level, workflow, trigger) do update set actor = excluded.actor, hold_time = excluded.hold_time, releasing = null
where {hold}.releasing is not null;

-- name: release_hold
-- It is in force no more. What it kept back comes in lots after it.
update {hold} set releasing = 0 where level = :level and workflow = :workflow and trigger = :trigger and releasing is null;

-- name: lock_releasing
-- A release that is not done; one at a time goes on with it.
select * from {hold} where releasing is not null order by level, workflow, trigger limit 1 for update;

-- name: note_releasing
update {hold} set releasing = :releasing where level = :level and workflow = :workflow and trigger = :trigger;

-- name: drop_hold
delete from {hold} where level = :level and workflow = :workflow and trigger = :trigger and releasing is not null;

-- name: held_tasks
-- Which of these jobs are tasks that a hold keeps from starting. The hold is locked: a release comes before or after us.
select j.id, j.run, j.job_type from {hold} h join {queue_table} j on (h.workflow = '' or h.workflow = split_part(j.job_type, '.', 1))
  and (h.run is null or h.run = j.run)
where h.level = 'pick' and h.releasing is null and j.id = any(:ids::bigint[]) and j.run is not null
  and (j.state in ('initial', 'error') or j.situation = 'loose')
for share of h;

-- name: tasks_in_line
-- Among the first in line; the type of a task has a dot in it. Locked as a claim does it.
select id, job_type, major, minor from {ready} where ctid = any(array(
  select ctid from {ready} where queue = :queue order by major, minor, id limit :limit)) and job_type like '%.%'
for update skip locked;

-- name: put_held
insert into {held} (workflow, run, id, queue, job_type) values (:workflow, :run, :id, :queue, :job_type) on conflict do nothing;

-- name: drop_held
delete from {held} where id = :id;

-- name: place_back_held
-- Differs from SQLite: there it is a statement of its own; here take_back_held does it.
select 1 where :workflow::text is null and :run::bigint is null and :limit::int is null and :now::timestamptz is null;

-- name: take_back_held
-- What a release lets go on stands in line again, unless another hold covers it.
with back as (
  delete from {held} where ctid = any(array(
    select t.ctid from {held} t where (:workflow = '' or t.workflow = :workflow) and (:run::bigint is null or t.run = :run)
      and not exists (select 1 from {hold} h where h.level = 'pick' and h.releasing is null and (h.workflow = '' or h.workflow = t.workflow) and (h.run is null or h.run = t.run))
    order by t.workflow, t.run, t.id limit :limit for update of t))
  returning id, queue),
 placed as (
  insert into {ready} (queue, major, minor, id, job_type, throttle_factor, closes_time, ready_time)
  select j.queue, case q.claim_order when 'priority' then j.priority else extract(epoch from j.scheduled_run_time)::float8 end,
    case q.claim_order when 'priority' then extract(epoch from j.scheduled_run_time)::float8 else j.priority end, j.id, j.job_type, j.throttle_factor, null,
    :now
  from back b join {queue} q on q.name = b.queue
    cross join lateral (select * from {job} where id = b.id and queue = b.queue offset 0) j
  where j.state in ('initial', 'error') or j.situation = 'loose'
  on conflict do nothing)
select id from back;

-- name: keep_creation
-- What keeps the tasks of a run from being made. Locked: a release comes after us, and one that is under way counts as done.
select 1 from {hold} h where h.level = 'create' and h.releasing is null and (h.workflow = '' or h.workflow = :workflow) and (h.run is null or h.run = :run) for share of h skip locked;

-- name: runs_to_fill
-- Living runs with steps whose tasks are not all made.
select r.id from {run} r where r.id > :after and r.state in ('UNDONE', 'STUCK') and (:workflow = '' or r.workflow = :workflow)
  and (:run::bigint is null or r.id = :run) and exists (select 1 from {step} s where s.run = r.id and s.state = 'START' and not s.all_created)
order by r.id limit :limit;

-- name: steps_to_fill
select name from {step} where run = :run and state = 'START' and not all_created order by position;
