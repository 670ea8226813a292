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
  labels text not null, -- that a worker must have
  prefers text not null default '[]', -- labels whose workers get its jobs first
  prefer_for real not null default 5, -- seconds
  secrets text not null default '[]', -- arguments that nobody is shown
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
create index {ready_uncounted} on {ready} (queue, major, minor, id) where throttle_factor = 0;

-- Due jobs that stand aside while their pool is full or their factor above the limit, out of the way of the others. lane: what they wait for, as JSON.
create table {aside} (
  queue text not null,
  lane text not null,
  major real not null,
  minor real not null,
  id integer not null,
  job_type text not null,
  throttle_factor real not null,
  closes_time integer,
  ready_time integer not null,
  primary key (queue, lane, major, minor, id)
) strict, without rowid;
create index {aside_id} on {aside} (id);
create index {aside_closes} on {aside} (closes_time) where closes_time is not null;

-- The tokens of a queue whose throttler is a rate, as they were when one was taken last.
create table {bucket} (
  queue text primary key references {queue},
  tokens real not null,
  update_time integer not null
) strict, without rowid;

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
create index {parked_closes} on {parked} (closes_time) where closes_time is not null;

-- Errors that a retry handler has still to judge.
create table {undecided} (
  job_type text not null,
  id integer not null,
  primary key (job_type, id)
) strict, without rowid;

-- What all jobs of a type with adaptive retry have in common: a breaker, and the retries and successes that its budget remembers.
create table {breaker} (
  job_type text primary key,
  state text not null check (state in ('closed', 'open', 'probing')),
  failures integer not null default 0, -- in a row
  opened_time integer,
  probe_time integer,
  probe integer, -- the job that probes the type, or did last
  successes real not null default 0,
  retries real not null default 0,
  counted_time integer
) strict, without rowid;

-- Who has which running jobs: a worker a claimed batch, or nobody until a deadline. ids: a JSON array.
create table {lease} (
  id integer primary key autoincrement,
  queue text not null,
  worker integer,
  pump integer not null default 0,
  factor real, -- of the one job in it, on a queue that is throttled
  pool text, -- that job's, where the throttler knows pools
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
  every_queue integer not null default 0, -- also those made after it came
  types text not null,
  labels text not null,
  duties text not null, -- that it has now
  concurrency integer not null,
  beat integer not null default 0,
  lock_path text,
  start_time integer not null,
  beat_time integer not null,
  stopping integer not null default 0,
  gone_time integer,
  gone text check (gone in ('left', 'lost'))
) strict;
create index {worker_living} on {worker} (id) where gone is null;

-- Switches of workers' duties, set by operators: the newest that fits a worker decides (F20).
create table {duty} (
  id integer primary key autoincrement,
  duty text not null check (duty in ('run', 'sweep', 'schedule', 'serve')),
  "on" integer not null,
  label text, -- null fits every worker, as for host and version
  host text,
  version text,
  actor text not null,
  create_time integer not null
) strict;

-- The end of every attempt that was not plain success (J9).
create table {attempt} (
  id integer primary key autoincrement, -- in the order of their ends
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
  unique (job, attempt)
) strict;

-- What handlers said while they ran. A line's id is its number among all that the job has said: a gap is what was dropped.
create table {log} (
  job integer not null,
  id integer not null,
  time integer not null,
  attempt integer not null,
  level text not null,
  text text not null,
  total integer not null, -- bytes kept up to this line: what the cap is taken from
  primary key (job, id)
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

-- Jobs that are made by themselves (W6). What an operator set wins over what the code declares, until it is reset.
create table {schedule} (
  name text primary key,
  declared_definition text, -- as JSON
  set_definition text, -- as JSON
  removed integer not null default 0, -- by an operator, though the code declares it
  next_time integer, -- the first time that is not fired; null: none
  wake_time integer, -- when to look at it: next_time, or later if it could not fire
  last_time integer,
  last_job integer,
  count integer not null default 0,
  problem text, -- why it could not fire
  create_time integer not null,
  update_time integer not null
) strict, without rowid;
create index {schedule_wake} on {schedule} (wake_time) where wake_time is not null;

-- What schedules have fired, for three months. A time fires once.
create table {firing} (
  schedule text not null references {schedule} on delete cascade,
  count integer not null,
  time integer not null,
  fire_time integer not null,
  job integer not null,
  duplicate integer not null, -- a living job had the key
  actor text not null, -- 'schedule', or who fired it by hand
  primary key (schedule, count)
) strict, without rowid;
create unique index {firing_time} on {firing} (schedule, time) where actor = 'schedule';
create index {firing_job} on {firing} (job);
create index {firing_fire_time} on {firing} (fire_time);

-- Endless loops over the cluster (F19), as the code declares them and an operator left them.
create table {routine} (
  name text primary key,
  definition text not null, -- as JSON
  paused integer not null default 0,
  removed integer not null default 0, -- by an operator, though code may still declare it
  create_time integer not null,
  update_time integer not null
) strict, without rowid;

-- The parts of routines: the living turn of each, and what is kept from one turn to the next.
create table {part} (
  routine text not null references {routine},
  part integer not null, -- from 0
  job integer, -- its living turn; null: it waits for a resume, or for turns of another scale to end
  scale integer, -- of that turn
  turns integer not null default 0,
  failures integer not null default 0, -- in a row
  next_time integer, -- not before then
  last_job integer,
  last_end_time integer,
  last_outcome text,
  error text, -- the last one there was
  error_time integer,
  checkpoint text,
  primary key (routine, part)
) strict, without rowid;

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
create index {ended_end} on {ended} (end_time);

create table {archive} (
  id integer primary key,
  queue text not null,
  job_type text not null,
  job_key text,
  create_time integer not null,
  retry_of integer,
  run integer,
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
create index {archive_end} on {archive} (end_time);
create index {archive_run} on {archive} (run, id) where run is not null;
create trigger {law_archive} before update on {archive}
begin select raise(abort, 'an archived job never changes'); end;

-- Workflows as the code declares them, for those who submit by name.
create table {workflow} (
  name text primary key,
  definition text not null,
  update_time integer not null
) strict;

-- Runs of workflows. A run keeps the definition it began with.
create table {run} (
  id integer primary key autoincrement,
  workflow text not null,
  trigger text not null,
  state text not null default 'UNDONE' check (state in ('UNDONE', 'SUCCESS', 'FAILED', 'ERROR', 'STUCK')),
  params text not null, -- of the request
  step_params text not null, -- of the request, for each step
  published text not null default '{}', -- by tasks, for those made later
  publication integer not null default 0, -- how often
  ignore text not null default '[]', -- steps that the request asks to ignore
  priority real not null,
  progress real not null default 0,
  unique_alive integer not null,
  -- All its steps in numbers.
  phase integer not null default 0,
  phase_undone integer not null default 0,
  phase_erred integer not null default 0,
  undone integer not null default 0,
  started integer not null default 0,
  failed integer not null default 0,
  erred integer not null default 0,
  aborted integer not null default 0,
  aborting text, -- by whom, while tasks of it are still to be aborted
  create_time integer not null,
  update_time integer not null,
  end_time integer,
  definition text not null, -- comes last, for it is long, and the rest is written with every step
  unique (workflow, trigger)
) strict;
create unique index {run_alive} on {run} (workflow) where unique_alive and state in ('UNDONE', 'STUCK');
create index {run_state} on {run} (state, id) where state <> 'SUCCESS';
create index {run_aborting} on {run} (id) where aborting is not null;
create index {run_end} on {run} (end_time) where state = 'SUCCESS';

-- What tasks of a run published, one after the other: a task sees what there was when it was made (F13).
create table {publication} (
  run integer not null references {run} on delete cascade,
  number integer not null,
  params text not null,
  primary key (run, number)
) strict, without rowid;

-- The steps of a run, each with its tasks in numbers: nobody has to count them to know that a step is done.
create table {step} (
  run integer not null references {run} on delete cascade,
  name text not null,
  position integer not null,
  partition text not null,
  state text not null default 'DORMANT',
  created integer not null default 0,
  undone integer not null default 0,
  succeeded integer not null default 0,
  failed integer not null default 0,
  errors integer not null default 0,
  all_created integer not null default 0,
  items_job integer, -- that makes the next items
  cursor text, -- where it is to go on
  start_time integer,
  end_time integer,
  primary key (run, name)
) strict;

-- Every trigger there ever was: a narrow record that outlives the run's archive (F14).
create table {trigger} (
  workflow text not null,
  trigger text not null,
  run integer not null,
  primary key (workflow, trigger)
) strict;

-- Runs that have left the live tables, whole rows. Their jobs are in `archive`.
create table {run_archive} (
  id integer primary key,
  workflow text not null,
  trigger text not null,
  state text not null,
  params text not null,
  step_params text not null,
  published text not null,
  publication integer not null,
  ignore text not null,
  priority real not null,
  progress real not null,
  unique_alive integer not null,
  phase integer not null,
  phase_undone integer not null,
  phase_erred integer not null,
  undone integer not null,
  started integer not null,
  failed integer not null,
  erred integer not null,
  aborted integer not null,
  aborting text,
  create_time integer not null,
  update_time integer not null,
  end_time integer,
  definition text not null,
  archive_time integer not null,
  unique (workflow, trigger)
) strict;
create index {run_archive_end} on {run_archive} (end_time);

-- The steps of archived runs.
create table {step_archive} (
  run integer not null references {run_archive} on delete cascade,
  name text not null,
  position integer not null,
  partition text not null,
  state text not null,
  created integer not null,
  undone integer not null,
  succeeded integer not null,
  failed integer not null,
  errors integer not null,
  all_created integer not null,
  items_job integer,
  cursor text,
  start_time integer,
  end_time integer,
  primary key (run, name)
) strict;

-- Runs that have left the live tables before all their jobs: those follow them.
create table {leaving} (
  run integer primary key,
  trigger text not null,
  types text not null -- of its jobs, as JSON
) strict;

-- What people hold (F17): that tasks start, that tasks are made, that workflows are submitted. An empty text stands for all of them.
create table {hold} (
  level text not null check (level in ('pick', 'create', 'submit')),
  workflow text not null,
  trigger text not null,
  run integer references {run} on delete cascade, -- that the trigger made
  actor text not null,
  hold_time integer not null,
  releasing integer, -- it is in force no more, and what it kept back is brought forward: the last run for which that is done
  primary key (level, workflow, trigger)
) strict, without rowid;

-- Due tasks that a hold keeps from starting: out of the way of the others.
create table {held} (
  workflow text not null,
  run integer not null,
  id integer not null,
  queue text not null,
  job_type text not null,
  primary key (workflow, run, id)
) strict, without rowid;
create index {held_id} on {held} (id);

-- Who may ask over HTTP: programs by token, browsers by a session that a one-time login became. The secrets themselves are nowhere.
create table {token} (
  id integer primary key autoincrement,
  name text not null,
  kind text not null check (kind in ('token', 'login', 'session')),
  scope text not null check (scope in ('read', 'enqueue', 'operate', 'admin')),
  hash text not null unique, -- SHA-256
  create_time integer not null,
  expires_time integer
) strict;
create unique index {token_name} on {token} (name) where kind = 'token';

-- Builds: a commit of a project, and the job that builds it.
create table {build} (
  id integer primary key autoincrement,
  project text not null,
  commit_id text not null,
  ref text not null, -- what to fetch it by
  branch text,
  tag text,
  pull_request integer,
  forge text not null,
  trusted integer not null, -- the commit is in the repository itself
  title text not null,
  author text not null,
  tells integer not null, -- whether the forge is told
  job integer, -- the current one
  begun integer not null default 0, -- that job has a folder
  completed integer not null default 0, -- and everything in it
  found text, -- what its builder wrote there, until somebody has seen that the job ended so
  steps text not null default '[]', -- as JSON
  use_time integer not null, -- when somebody last looked into it
  create_time integer not null,
  update_time integer not null,
  unique (project, commit_id)
) strict;
create index {build_job} on {build} (job);
create index {build_use} on {build} (use_time) where completed;
create index {build_open} on {build} (id) where not completed or found is not null;
create index {build_branch} on {build} (project, branch, id);

-- What tells this instance from every other, wherever it is moved: a folder of builds is of one.
create table {identity} (
  single integer primary key check (single = 1), -- there is one row
  token text not null
) strict;

-- What forges have sent, so that nothing counts twice. For 90 days.
create table {delivery} (
  project text not null,
  forge text not null,
  id text not null,
  build integer, -- that it asked for
  receive_time integer not null,
  primary key (project, forge, id)
) strict, without rowid;
create index {delivery_time} on {delivery} (receive_time);

-- Commit statuses that a forge has still to be told, in order.
create table {status} (
  id integer primary key autoincrement,
  build integer not null references {build} on delete cascade,
  step text, -- null: of the whole build
  state text not null,
  description text not null,
  create_time integer not null
) strict;
create index {status_build} on {status} (build, id);

-- Requests that came with an Idempotency-Key, and the job each made: the same key gives the same job.
create table {request} (
  owner text not null, -- the token's name
  key text not null,
  print text not null, -- of the body
  job integer, -- null only within the transaction that adds it
  duplicate integer not null default 0,
  create_time integer not null,
  primary key (owner, key)
) strict, without rowid;
create index {request_create} on {request} (create_time);

-- The trace that an enqueue belongs to, for the spans of its attempts. Only where a program traces.
create table {trace} (
  job integer primary key,
  context text not null -- as JSON
) strict;

-- A move of the instance to or from another database: of which it is the source, and by which it came here.
create table {move} (
  side text primary key check (side in ('source', 'target')),
  stage text not null check (stage in ('copying', 'draining', 'sealed', 'moved', 'arriving', 'open')),
  mark text not null, -- the same on both sides
  other text not null, -- the other database, without its password
  start_time integer not null,
  drain_time integer, -- from then on workers claim nothing
  seal_time integer, -- from then on nothing is written
  end_time integer
) strict;
