-- name: schedules
-- Every schedule of the instance, removed ones too.
select * from {schedule} order by name;

-- name: schedule_wake
-- Seconds until a schedule has to be looked at; below 0: one is due.
select (min(wake_time) - :now) / 1e6 as wake_in
from {schedule} where wake_time is not null;

-- name: due_schedules
select name, problem from {schedule} where wake_time <= :now order by wake_time, name limit :limit;

-- name: take_due_schedules
-- Differs from PostgreSQL: a write transaction has the whole database, so nobody else is firing.
select * from {schedule} where name in (select value from json_each(:names)) and wake_time <= :now order by name;

-- name: lock_schedule
-- Differs from PostgreSQL: nothing has to be locked row by row.
select * from {schedule} where name = :name;

-- name: add_schedule
insert into {schedule} (name, create_time, update_time) values (:name, :now, :now) on conflict (name) do nothing;

-- name: change_schedule
-- Its definition, or whether it was removed, and when it comes next because of that.
update {schedule} set declared_definition = :declared_definition, set_definition = :set_definition, removed = :removed, next_time = :next_time,
  wake_time = :next_time, problem = null, update_time = :now
where name = :name;

-- name: move_schedules
-- One firing for a time: only who moves a schedule on from there may fire (W6). Of each there are name, next time, last time, last job, count, and
-- the time it is moved on from.
update {schedule} as s set next_time = e.value ->> 1, wake_time = e.value ->> 1, last_time = e.value ->> 2, last_job = e.value ->> 3,
  count = e.value ->> 4, problem = null, update_time = :now
from json_each(:rows) e where s.name = e.value ->> 0 and s.next_time = e.value ->> 5;

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
select e.value ->> 0, e.value ->> 1, e.value ->> 2, :now, e.value ->> 3, e.value ->> 4, :actor from json_each(:rows) e;

-- name: firings
-- Newest first.
select * from {firing} where schedule = :schedule order by count desc limit :limit;

-- name: firing_of
-- Which schedule made a job.
select schedule, actor from {firing} where job = :job and not duplicate limit 1;

-- name: forget_firings
delete from {firing} where fire_time < :before;
