-- name: schedules
-- Every schedule of the instance, removed ones too.
select * from {schedule} order by name;

-- name: schedule_wake
-- Seconds until a schedule has to be looked at; below 0: one is due.
select extract(epoch from min(wake_time) - coalesce(:now::timestamptz, statement_timestamp()))::float8 as wake_in
from {schedule} where wake_time is not null;

-- name: due_schedules
select name, problem from {schedule} where wake_time <= :now order by wake_time, name limit :limit;

-- name: take_due_schedules
-- Differs from SQLite: what another worker is just firing is passed over.
select * from {schedule} where name = any(:names::text[]) and wake_time <= :now order by name for update skip locked;

-- name: lock_schedule
-- Differs from SQLite, where a write transaction has the whole database.
select * from {schedule} where name = :name for update;

-- name: add_schedule
insert into {schedule} (name, create_time, update_time) values (:name, :now, :now) on conflict (name) do nothing;

-- name: change_schedule
-- Its definition, or whether it was removed, and when it comes next because of that.
update {schedule} set declared_definition = :declared_definition, set_definition = :set_definition, removed = :removed, next_time = :next_time,
  wake_time = :next_time, problem = null, update_time = :now
where name = :name;

-- name: move_schedules
-- One firing for a time: only who moves a schedule on from there may fire (W6). :names is sorted, as the ids of settle are.
update {schedule} s set next_time = (:next_times::timestamptz[])[width_bucket(s.name, :names::text[])], wake_time = (:next_times::timestamptz[])[width_bucket(s.name, :names::text[])],
  last_time = (:last_times::timestamptz[])[width_bucket(s.name, :names::text[])], last_job = (:last_jobs::bigint[])[width_bucket(s.name, :names::text[])], count = (:counts::bigint[])[width_bucket(s.name, :names::text[])], problem = null,
  update_time = :now
where s.name = any(:names::text[]) and s.next_time = (:moments::timestamptz[])[width_bucket(s.name, :names::text[])];

-- name: count_schedule
-- Fired by hand: its times stay as they are.
update {schedule} set last_time = :last_time, last_job = :last_job, count = :count, update_time = :now where name = :name;

-- name: hold_schedule
-- It could not fire: looked at again later, and it says why.
update {schedule} set wake_time = :wake_time, problem = :problem, update_time = :now where name = :name and next_time = :was;

-- name: wake_schedules
-- What kept some from firing may be gone: they are looked at now, and not only when it is their turn again.
update {schedule} set wake_time = next_time where problem is not null;

-- name: drop_schedule
delete from {schedule} where name = :name;

-- name: add_firings
insert into {firing} (schedule, count, time, fire_time, job, duplicate, actor)
select f.schedule, f.count, f.time, :now::timestamptz, f.job, f.duplicate, :actor
from unnest(:schedules::text[], :counts::bigint[], :times::timestamptz[], :jobs::bigint[], :duplicates::boolean[]) f (schedule, count, time, job, duplicate);

-- name: firings
-- Newest first.
select * from {firing} where schedule = :schedule order by count desc limit :limit;

-- name: firing_of
-- Which schedule made a job.
select schedule, actor from {firing} where job = :job and not duplicate limit 1;

-- name: forget_firings
delete from {firing} where fire_time < :before;
