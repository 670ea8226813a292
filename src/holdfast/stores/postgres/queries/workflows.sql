-- name: workflows
select name, definition from {workflow} order by name;

-- name: put_workflow
insert into {workflow} (name, definition, update_time) values (:name, :definition, :now)
on conflict (name) do update set definition = excluded.definition, update_time = excluded.update_time;

-- name: add_trigger
-- Whoever stores it has the run (F14); a second one waits here for the first.
insert into {trigger} (workflow, trigger, run) values (:workflow, :trigger, 0) on conflict do nothing;

-- name: name_trigger
update {trigger} set run = :run where workflow = :workflow and trigger = :trigger;

-- name: has_trigger
select run from {trigger} where workflow = :workflow and trigger = :trigger;

-- name: add_run
insert into {run} (workflow, trigger, definition, params, step_params, ignore, priority, unique_alive, create_time, update_time)
values (:workflow, :trigger, :definition, :params, :step_params, :ignore, :priority, :unique_alive, :now, :now) returning id;

-- name: add_step
insert into {step} (run, name, position, partition) values (:run, :name, :position, :partition);

-- name: lock_living
-- Who makes a run of a workflow that allows only one living run has that to itself until it commits.
select pg_advisory_xact_lock(4802, hashtext('{run}' || :workflow));

-- name: living_run
select id, trigger from {run} where workflow = :workflow and state in ('UNDONE', 'STUCK') limit 1;

-- name: run
select * from {run} where id = :id;

-- name: run_of
select * from {run} where workflow = :workflow and trigger = :trigger;

-- name: run_head
-- Without the definition, which may be long and never changes.
select id, trigger, state, params, step_params, published, publication, ignore, priority, progress, aborted, phase, phase_undone, phase_erred, undone,
  started, failed, erred from {run} where id = :id;

-- name: lock_run
-- Who advances a run has it alone until it commits.
select id, trigger, state, params, step_params, published, publication, ignore, priority, progress, aborted, phase, phase_undone, phase_erred, undone,
  started, failed, erred from {run} where id = :id for update;

-- name: definition_of
select definition from {run} where id = :id;

-- name: runs
-- Newest first.
select * from {run} where (:workflow::text is null or workflow = :workflow) and (:state::text is null or state = :state)
  and (:before::bigint is null or id < :before) order by id desc limit :limit;

-- name: steps
select s.*, exists (select 1 from {hold} h where h.level = 'create' and h.releasing is null and (h.run is null or h.run = :run)
    and (h.workflow = '' or h.workflow = (select workflow from {run} where id = :run))) as creation_held
from {step} s where s.run = :run order by s.position;

-- name: steps_named
select s.*, exists (select 1 from {hold} h where h.level = 'create' and h.releasing is null and (h.run is null or h.run = :run)
    and (h.workflow = '' or h.workflow = (select workflow from {run} where id = :run))) as creation_held
from {step} s where s.run = :run and s.name = any(:names::text[]);

-- name: put_step
update {step} set state = :state, partition = :partition, created = :created, undone = :undone, succeeded = :succeeded, failed = :failed, errors = :errors,
  all_created = :all_created, start_time = coalesce(start_time, case when :began then coalesce(:now::timestamptz, statement_timestamp()) end),
  end_time = case when :done then coalesce(:now::timestamptz, statement_timestamp()) end
where run = :run and name = :name;

-- name: put_items
-- Which job makes the next items, and where it is to go on.
update {step} set items_job = :items_job, cursor = :cursor where run = :run and name = :name;

-- name: count_made
-- Items that were stored just now, for a maker that expects the run, which is locked, and its step as it left them: how many are done. Anything
-- else is an error. Differs from SQLite, where nothing is gained by that.
with counted as (
  update {step} set created = created + :made, undone = undone + :made, cursor = coalesce(:cursor, cursor)
  where run = :run and name = :name and state = 'START' and created = :produced and undone + :made <= :most_undone
    and exists (select from {run} r where r.id = :run and r.publication = :publication
      and not exists (select from {hold} h where h.level = 'create' and h.releasing is null and (h.run is null or h.run = r.id) and (h.workflow = '' or h.workflow = r.workflow)))
  returning created - undone as done)
select sum(done)::bigint as done, 1 / count(*) from counted;

-- name: count_ended
-- Items that ended in plain success, where nothing follows from it, because somebody makes more of them. Anything else is an error, as in count_made.
with counted as (
  update {step} set undone = undone - :ended, succeeded = succeeded + :ended
  where run = :run and name = :name and state = 'START' and items_job is not null and failed = 0 and errors = 0
    and exists (select from {run} where id = :run and not phase_erred)
  returning created - undone as done)
select sum(done)::bigint as done, 1 / count(*) from counted;

-- name: touch_run
-- And lock it.
update {run} set update_time = coalesce(:now::timestamptz, statement_timestamp()) where id = :run;

-- name: put_run
update {run} set state = :state, progress = :progress, phase = :phase, phase_undone = :phase_undone, phase_erred = :phase_erred, undone = :undone,
  started = :started, failed = :failed, erred = :erred, published = :published, publication = :publication, aborted = :aborted,
  end_time = case when :done then coalesce(:now::timestamptz, statement_timestamp()) end, update_time = coalesce(:now::timestamptz, statement_timestamp()) where id = :id;

-- name: put_published
-- Of a run that is over: if it is retried, it goes on with that.
update {run} set published = :published, publication = :publication where id = :id;

-- name: add_publication
insert into {publication} (run, number, params) values (:run, :number, :params);

-- name: publications
select number, params from {publication} where run = :run and number > :after and number <= :upto order by number;

-- name: tasks
-- Of one step, in the order they were made: of a task that was retried only the last job, and none that made items.
select j.* from {job} j where j.run = :run and j.job_type = :job_type and j.id > :after and j.job_key <> :items
  and (j.outcome is null or j.outcome in ('success', 'failed')
    or not exists (select 1 from {job} n where n.job_type = j.job_type and n.job_key = j.job_key and n.id > j.id))
order by j.id limit :limit;

-- name: archived_tasks
select j.* from {archive} j where j.job_type = :job_type and j.run = :run and j.id > :after and j.job_key <> :items
  and (j.outcome in ('success', 'failed') or not exists (select 1 from {archive} n where n.run = j.run and n.job_key = j.job_key and n.id > j.id))
order by j.id limit :limit;

-- name: living_tasks
-- Jobs of a run that are not final. Their keys begin with its trigger.
select j.id from {key} k join {job} j on j.id = k.id
where k.job_type = any(:types::text[]) and k.job_key >= :low and k.job_key < :high and j.run = :run and j.state <> 'final' limit :limit;

-- name: unasked_tasks
-- Jobs of a run that are to be aborted: not final, and nobody was asked to end them. None if the run was retried meanwhile.
select j.id from {key} k join {job} j on j.id = k.id
where k.job_type = any(:types::text[]) and k.job_key >= :low and k.job_key < :high and j.run = :run and j.state <> 'final'
  and j.id <> all(:but::bigint[]) and not exists (select 1 from {abort} a where a.job = j.id) and exists (select 1 from {run} where id = :run and aborting is not null) limit :limit;

-- name: begin_abort
update {run} set aborting = :actor where id = :id;

-- name: end_abort
update {run} set aborting = null where id = :id;

-- name: aborting_runs
select id, aborting from {run} where aborting is not null order by id limit :limit;

-- name: erred_tasks
-- The last job of each task of a step that ended otherwise than in success or failure.
select j.* from {job} j where j.job_type = :job_type and j.job_key >= :low and j.job_key < :high and j.run = :run and j.state = 'final' and j.outcome in ('error', 'aborted')
  and not exists (select 1 from {job} n where n.job_type = j.job_type and n.job_key = j.job_key and n.id > j.id) order by j.id;

-- name: settled_here
-- Which of these ended in success in this transaction. The time would not tell: an end whose answer was lost is told again.
select id from {queue_table} where id = any(:ids::bigint[]) and outcome = 'success' and xmin = pg_current_xact_id()::xid;

-- name: archived_run
select * from {run_archive} where id = :id;

-- name: archived_run_of
select * from {run_archive} where workflow = :workflow and trigger = :trigger;

-- name: archived_runs
-- Newest first.
select * from {run_archive} where (:workflow::text is null or workflow = :workflow) and (:state::text is null or state = :state)
  and (:before::bigint is null or id < :before) order by id desc limit :limit;

-- name: archived_steps
select s.*, false as creation_held from {step_archive} s where s.run = :run order by s.position;

-- name: archived_run_page
-- Oldest first, from behind an id on.
select * from {run_archive} where id > :after and (:workflow::text is null or workflow = :workflow)
  and (:since::timestamptz is null or end_time >= :since) and (:until::timestamptz is null or end_time < :until)
order by id limit :limit;

-- name: old_runs
-- Those that go to the archive by themselves.
select id from {run} where state = 'SUCCESS' and end_time < :before order by end_time limit :limit for update skip locked;

-- name: to_run_archive
insert into {run_archive} select *, :now::timestamptz from {run} where id = :id;

-- name: to_step_archive
insert into {step_archive} select * from {step} where run = :id;

-- name: add_leaving
-- It may be there: of a run that was archived and is deleted before its jobs have followed. Whoever follows it is waited for.
insert into {leaving} (run, trigger, types) values (:run, :trigger, :types) on conflict (run) do update set types = excluded.types;

-- name: leaving
select * from {leaving} order by run limit :limit for update skip locked;

-- name: drop_leaving
delete from {leaving} where run = :run;

-- name: jobs_of_run
-- Their keys begin with its trigger.
select id, queue, end_time, outcome from {job} where job_type = any(:types::text[]) and job_key >= :low and job_key < :high and run = :run and state = 'final' limit :limit;

-- name: follow_to_archive
insert into {archive} select *, :now::timestamptz from {queue_table} where id = any(:ids::bigint[]) and state = 'final';

-- name: drop_followed
delete from {queue_table} where id = any(:ids::bigint[]) and state = 'final';

-- name: drop_dead_job
delete from {dead} where end_time = :end_time and id = :id;

-- name: is_archived
-- Asked with the row of `leaving` to ourselves: of a deleted run there is none.
select id from {run_archive} where id = :run;

-- name: archived_jobs_of_run
select id from {archive} where run = :run order by id limit :limit;

-- name: drop_jobs_of_run
delete from {archive} where run = :run and id = any(:ids::bigint[]);

-- name: drop_archived_run
delete from {run_archive} where id = :id;

-- name: drop_old_runs
delete from {run_archive} where id in (select id from {run_archive} where end_time < :before order by end_time limit :limit);

-- name: drop_run
delete from {run} where id = :id;
