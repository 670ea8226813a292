-- name: routines
-- Every routine of the instance, removed ones too.
select * from {routine} order by name;

-- name: routines_named
select * from {routine} where name = :name;

-- name: lock_routine
-- Differs from PostgreSQL: a write transaction has the whole database, so there is nothing to lock.
select * from {routine} where name = :name;

-- name: put_routine
-- What the code declares; what an operator did stays.
insert into {routine} (name, definition, create_time, update_time) values (:name, :definition, :now, :now)
on conflict (name) do update set definition = excluded.definition, update_time = excluded.update_time;

-- name: switch_routine
update {routine} set paused = :paused, removed = :removed, update_time = :now where name = :name;

-- name: parts
select * from {part} where routine = :routine order by part;

-- name: add_part
insert into {part} (routine, part) values (:routine, :part) on conflict do nothing;

-- name: part_of_job
-- Whose turn a job is.
select * from {part} where routine = :routine and part = :part and job = :job;

-- name: idle_parts
-- Those that have no turn and should have one: none, while turns of another scale are still going on.
select part, next_time, turns from {part} where routine = :routine and part < :scale and job is null
  and not exists (select 1 from {part} where routine = :routine and job is not null and scale <> :scale)
order by part;

-- name: begin_turn
update {part} set job = :job, scale = :scale where routine = :routine and part = :part;

-- name: give_checkpoint
-- What the turn before has left.
update {queue_table} set checkpoint = (select checkpoint from {part} where routine = :routine and part = :part) where id = :job and state = 'initial';

-- name: end_turn
update {part} set job = null, turns = turns + 1, failures = :failures, next_time = :next_time, last_job = :job, last_end_time = :now, last_outcome = :outcome,
  error = coalesce(:error, error), error_time = case when :error is null then error_time else :now end,
  checkpoint = (select checkpoint from {queue_table} where id = :job)
where routine = :routine and part = :part and job = :job;

-- name: take_back_turn
-- It had not begun.
update {part} set job = null, next_time = :next_time where routine = :routine and part = :part;

-- name: orphaned_parts
-- Whose turn is not among the living any more, whatever made it so.
select part, job from {part} p where routine = :routine and job is not null
  and not exists (select 1 from {key} k where k.job_type = :job_type and k.job_key = :routine || ':' || p.part and k.id = p.job);

-- name: drop_parts
delete from {part} where routine = :routine;

-- name: old_turns
-- Ended turns of a part behind the newest :keep.
select id, end_time from {queue_table} where job_type = :job_type and job_key = :job_key and state = 'final' order by id desc limit :limit offset :keep;

-- name: all_turns
select id, end_time from {queue_table} where job_type = :job_type and job_key is not null and state = 'final' limit :limit;

-- name: drop_turn
delete from {queue_table} where id = :id and state = 'final';

-- name: drop_dead_turn
delete from {dead} where end_time = :end_time and id = :id;
