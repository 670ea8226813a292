-- Jobs, queues, workers: everything one instance needs to run jobs. Times are whole microseconds since 1970, UTC.
-- The job row is the truth. ready, waiting, parked, lease, dead and ended are small tables beside it that say where to look.

create table {sequence} (last integer not null);
insert into {sequence} values (0);

create table {queue} (
  name text primary key,
  table_name text not null,
  claim_order text not null check (claim_order in ('priority', 'schedule')),
  declared_limit real not null,
  set_limit real,
  throttler text, -- as JSON, where the code declares one
  paused integer not null default 0,
  create_time integer not null
) strict, without rowid;

create table {type} (
  job_type text primary key,
  queue text not null references {queue},
  default_timeout real,
  default_priority real not null,
  default_throttle_factor real not null,
  default_time_windows text not null,
  default_retries integer,
  timeout_named integer not null default 0,
  retries_named integer not null default 0,
  retry text,
  on_crash text not null check (on_crash in ('rerun', 'timeout')),
  max_crashes integer,
  has_handler integer not null,
  has_retry_handler integer not null,
  has_response_handler integer not null,
  schema text,
  labels text not null,
  update_time integer not null
) strict, without rowid;

-- At most one job that is not final for a type and key (Q5). Kept by triggers on every job table.
create table {key} (
  job_type text not null,
  job_key text not null,
  id integer not null,
  primary key (job_type, job_key)
) strict, without rowid;

-- Due jobs in claim order. major, minor: priority, time; or time, priority on a queue with order="schedule".
create table {ready} (
  queue text not null,
  major real not null,
  minor real not null,
  id integer not null,
  job_type text not null,
  throttle_factor real not null,
  closes_time integer,
  ready_time integer not null,
  primary key (queue, major, minor, id)
) strict, without rowid;
create index {ready_closes} on {ready} (closes_time) where closes_time is not null;

-- Jobs whose time has not come.
create table {waiting} (
  wake_time integer not null,
  id integer not null,
  queue text not null,
  closes_time integer,
  primary key (wake_time, id)
) strict, without rowid;

-- Due jobs of types that no live worker handles: out of the way of the others.
create table {parked} (
  job_type text not null,
  id integer not null,
  queue text not null,
  closes_time integer,
  primary key (job_type, id)
) strict, without rowid;

-- Errors that a retry handler has still to judge.
create table {undecided} (
  job_type text not null,
  id integer not null,
  primary key (job_type, id)
) strict, without rowid;

-- Who has which running jobs: a worker a claimed batch, or nobody until a deadline. ids: a JSON array.
create table {lease} (
  id integer primary key autoincrement,
  queue text not null,
  worker integer,
  pump integer not null default 0,
  factor real, -- of the one job in it, on a queue with a limit
  deadline_time integer,
  job integer, -- the one that waits for an answer
  ids text not null
) strict;
create index {lease_job} on {lease} (job) where job is not null;

create table {worker} (
  id integer primary key autoincrement,
  name text not null,
  host text not null,
  pid integer not null,
  version text not null,
  queues text not null,
  types text not null,
  labels text not null,
  concurrency integer not null,
  beat integer not null default 0,
  lock_path text,
  start_time integer not null,
  beat_time integer not null,
  stopping integer not null default 0,
  gone_time integer,
  gone text check (gone in ('left', 'lost'))
) strict;

-- The end of every attempt that was not plain success (J9).
create table {attempt} (
  job integer not null,
  attempt integer not null,
  start_time integer,
  end_time integer not null,
  outcome text not null,
  state text not null,
  error text,
  traceback text,
  seconds real,
  worker text,
  primary key (job, attempt)
) strict, without rowid;

-- What was done from outside, by whom.
create table {audit} (
  id integer primary key autoincrement,
  time integer not null,
  actor text not null,
  action text not null,
  job integer,
  attempt integer,
  queue text,
  detail text
) strict;
create index {audit_job} on {audit} (job) where job is not null;

-- Wishes to end a held job (J10).
create table {abort} (
  job integer primary key,
  attempt integer not null,
  worker integer,
  actor text not null,
  request_time integer not null
) strict;

-- Jobs that ended otherwise than in success, for listing.
create table {dead} (
  end_time integer not null,
  id integer not null,
  queue text not null,
  primary key (end_time, id)
) strict, without rowid;

-- What became final when, a row per transaction: the archiver reads it from the oldest on. ids: a JSON array.
create table {ended} (
  id integer primary key autoincrement,
  end_time integer not null,
  queue text not null,
  ids text not null
) strict;

create table {archive} (
  id integer primary key,
  queue text not null,
  job_type text not null,
  job_key text,
  create_time integer not null,
  retry_of integer,
  priority real not null,
  throttle_factor real not null,
  timeout real,
  retries integer,
  timeout_named integer not null,
  retries_named integer not null,
  time_windows text,
  expires_time integer,
  payload text not null,
  scheduled_run_time integer not null,
  update_time integer not null,
  start_time integer,
  end_time integer not null,
  state text not null,
  situation text,
  outcome text not null,
  attempt integer not null,
  failures integer not null,
  losses integer not null,
  crashes integer not null,
  deadline_time integer,
  answer text,
  checkpoint text,
  progress real,
  progress_text text,
  execution_time real,
  total_time real not null,
  worker integer,
  result text,
  error text not null,
  archive_time integer not null
) strict;
create index {archive_type} on {archive} (job_type, id);
create trigger {law_archive} before update on {archive}
begin select raise(abort, 'an archived job never changes'); end;
