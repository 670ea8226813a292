-- Jobs, queues, workers: everything one instance needs to run jobs.
-- The job row is the truth. ready, waiting, parked, lease, dead and ended are small tables beside it that say where to look.

create sequence {job_id};

create table {queue} (
  name text collate "C" primary key,
  table_name text not null,
  claim_order text not null check (claim_order in ('priority', 'schedule')),
  declared_limit float8 not null,
  set_limit float8,
  throttler text, -- as JSON, where the code declares one
  paused boolean not null default false,
  create_time timestamptz not null
);

create table {type} (
  job_type text collate "C" primary key,
  queue text collate "C" not null references {queue},
  default_timeout float8,
  default_priority float8 not null,
  default_throttle_factor float8 not null,
  default_time_windows text not null,
  default_retries int,
  timeout_named boolean not null default false,
  retries_named boolean not null default false,
  retry text,
  on_crash text not null check (on_crash in ('rerun', 'timeout')),
  max_crashes int,
  has_handler boolean not null,
  has_retry_handler boolean not null,
  has_response_handler boolean not null,
  schema text,
  labels text not null, -- that a worker must have
  prefers text not null default '[]', -- labels whose workers get its jobs first
  prefer_for float8 not null default 5, -- seconds
  secrets text not null default '[]', -- arguments that nobody is shown
  update_time timestamptz not null
);

create table {job} (
  id bigint not null default nextval('{job_id}'),
  queue text collate "C" not null,
  job_type text collate "C" not null,
  job_key text collate "C",
  create_time timestamptz not null,
  retry_of bigint,
  run bigint, -- whose task it is
  priority float8 not null,
  throttle_factor float8 not null,
  timeout float8,
  retries int,
  timeout_named boolean not null default false, -- somebody asked for it; else it is the default
  retries_named boolean not null default false,
  time_windows text,
  expires_time timestamptz,
  payload text not null,
  -- From here on what changes: kept together behind the payload, so that the log of an update holds only this tail.
  scheduled_run_time timestamptz not null,
  update_time timestamptz not null,
  start_time timestamptz,
  end_time timestamptz,
  state text not null default 'initial',
  situation text,
  outcome text,
  attempt int not null default 0,
  failures int not null default 0,
  losses int not null default 0,
  crashes int not null default 0,
  deadline_time timestamptz, -- of a job that waits for an answer
  answer text, -- from outside, kept until the job waits for it
  checkpoint text,
  progress float8,
  progress_text text,
  execution_time float8,
  total_time float8 not null default 0,
  worker bigint,
  result text,
  error text not null default 'NONE',
  -- PostgreSQL reads the conditions of the law anew for every statement, so they are short: lists of what may be.
  constraint law check (throttle_factor >= 0 and (outcome is null or end_time is not null) and concat_ws(' ', situation, error = 'NONE', state, attempt > 0, outcome) = any (
    '{t initial f, held t running t, waiting t running t, loose t running t, f error t,
      t final t success, f final t failed, f final t error, f final t aborted}'))
) partition by list (queue);

create function {job_refuse}() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    raise exception 'job %: `%` may not be deleted, only `final` may', old.id, old.state using errcode = 'integrity_constraint_violation';
  elsif tg_op = 'TRUNCATE' then
    raise exception 'jobs may not be truncated' using errcode = 'integrity_constraint_violation';
  end if;
  raise exception 'job %: `%` (attempt %, %) may not become `%` (attempt %, %)', old.id, old.state, old.attempt, coalesce(old.situation, 'free'),
    new.state, new.attempt, coalesce(new.situation, 'free') using errcode = 'integrity_constraint_violation';
end $$;

-- AFTER with WHEN: a legal write never enters PL/pgSQL, and no tuple is locked first as a BEFORE trigger would.
create trigger law_update after update on {job} for each row
  when (concat_ws(' ', old.state, old.situation, new.attempt - old.attempt, new.error = old.error, new.state, new.situation, new.outcome) <> all (
    '{initial 0 t initial, initial 1 t running held, error 1 f running held, running loose 1 t running held,
      running held 0 t running held, running held 0 t running waiting, running held 0 t running loose,
      running waiting 0 t running waiting, running waiting 0 t running loose, running loose 0 t running loose,
      running held 0 f error, running waiting 0 f error, running loose 0 f error, error 0 t error,
      running held 0 t final success, running waiting 0 t final success, running loose 0 t final success,
      error 0 t final failed, error 0 t final error, error 0 t final aborted,
      error 0 f final failed, error 0 f final error, error 0 f final aborted}'))
  execute function {job_refuse}();

create trigger law_identity after update of id, queue, create_time, job_type, job_key on {job} for each row
  when ((new.id, new.queue, new.create_time, new.job_type, new.job_key) is distinct from (old.id, old.queue, old.create_time, old.job_type, old.job_key))
  execute function {job_refuse}();

create trigger law_delete after delete on {job} for each row when (old.state <> 'final') execute function {job_refuse}();

-- At most one job that is not final for a type and key (Q5).
create table {key} (
  job_type text collate "C" not null,
  job_key text collate "C" not null,
  id bigint not null,
  primary key (job_type, job_key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 20000);

-- A statement that takes or frees the keys of all its jobs itself says so while it runs (`holdfast.keys`): PL/pgSQL for every row costs more than
-- the rest of its work. Whatever else writes a job is kept to the law here. One trigger for all that is to be said of a new job, because each
-- costs every enqueue 8 µs.
create function {job_take}() returns trigger language plpgsql as $$
begin
  if new.state <> 'initial' then
    raise exception 'job %: a new job must be `initial` with attempt 0, not `%` with attempt %', new.id, new.state, new.attempt
      using errcode = 'integrity_constraint_violation';
  end if;
  if exists (select from {key} where job_type = new.job_type and job_key = new.job_key and id = new.id) then
    return null;
  end if;
  insert into {key} (job_type, job_key, id) values (new.job_type, new.job_key, new.id) on conflict do nothing;
  if not found then
    raise exception 'job type % already has a living job with key %', new.job_type, new.job_key using errcode = 'unique_violation';
  end if;
  return null;
end $$;

create trigger law_insert after insert on {job} for each row
  when (new.state <> 'initial' or new.job_key is not null and current_setting('holdfast.keys', true) is distinct from 'kept')
  execute function {job_take}();

create function {key_free}() returns trigger language plpgsql as $$
begin
  delete from {key} where job_type = new.job_type and job_key = new.job_key and id = new.id;
  return null;
end $$;

create trigger key_free after update of outcome on {job} for each row
  when (new.job_key is not null and new.state = 'final' and old.state <> 'final' and current_setting('holdfast.keys', true) is distinct from 'kept')
  execute function {key_free}();

-- Due jobs in claim order. major, minor: priority, time; or time, priority on a queue with order="schedule".
create table {ready} (
  queue text collate "C" not null,
  major float8 not null,
  minor float8 not null,
  id bigint not null,
  job_type text collate "C" not null,
  throttle_factor float8 not null,
  closes_time timestamptz,
  ready_time timestamptz not null,
  primary key (queue, major, minor, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
create index on {ready} (closes_time) where closes_time is not null;
create index on {ready} (queue, major, minor, id) where throttle_factor = 0;

-- Due jobs that stand aside while their pool is full or their factor above the limit, out of the way of the others. lane: what they wait for, as JSON.
create table {aside} (
  queue text collate "C" not null,
  lane text collate "C" not null,
  major float8 not null,
  minor float8 not null,
  id bigint not null,
  job_type text collate "C" not null,
  throttle_factor float8 not null,
  closes_time timestamptz,
  ready_time timestamptz not null,
  primary key (queue, lane, major, minor, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
create index on {aside} (id);
create index on {aside} (closes_time) where closes_time is not null;

-- The tokens of a queue whose throttler is a rate, as they were when one was taken last.
create table {bucket} (
  queue text collate "C" primary key references {queue},
  tokens float8 not null,
  update_time timestamptz not null
) with (fillfactor = 50);

-- Jobs whose time has not come.
create table {waiting} (
  wake_time timestamptz not null,
  id bigint not null,
  queue text collate "C" not null,
  closes_time timestamptz,
  primary key (wake_time, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 20000);

-- Due jobs of types that no live worker handles: out of the way of the others.
create table {parked} (
  job_type text collate "C" not null,
  id bigint not null,
  queue text collate "C" not null,
  closes_time timestamptz,
  primary key (job_type, id)
);
create index on {parked} (closes_time) where closes_time is not null;

-- Errors that a retry handler has still to judge.
create table {undecided} (
  job_type text collate "C" not null,
  id bigint not null,
  primary key (job_type, id)
);

-- What all jobs of a type with adaptive retry have in common: a breaker, and the retries and successes that its budget remembers.
create table {breaker} (
  job_type text collate "C" primary key,
  state text not null check (state in ('closed', 'open', 'probing')),
  failures int not null default 0, -- in a row
  opened_time timestamptz,
  probe_time timestamptz,
  probe bigint, -- the job that probes the type, or did last
  successes float8 not null default 0,
  retries float8 not null default 0,
  counted_time timestamptz
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Who has which running jobs: a worker a claimed batch, or nobody until a deadline.
create table {lease} (
  id bigint generated always as identity primary key,
  queue text collate "C" not null,
  worker bigint,
  pump int not null default 0,
  factor float8, -- of the one job in it, on a queue that is throttled
  pool text collate "C", -- that job's, where the throttler knows pools
  deadline_time timestamptz,
  job bigint, -- the one that waits for an answer
  ids bigint[] not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off);

create index on {lease} (job) where job is not null;

create table {worker} (
  id bigint generated always as identity primary key,
  name text not null,
  host text not null,
  pid int not null,
  version text not null,
  queues text not null,
  every_queue boolean not null default false, -- also those made after it came
  types text not null,
  labels text not null,
  duties text not null, -- that it has now
  concurrency int not null,
  beat bigint not null default 0,
  lock_path text,
  start_time timestamptz not null,
  beat_time timestamptz not null,
  stopping boolean not null default false,
  gone_time timestamptz,
  gone text check (gone in ('left', 'lost'))
);
create index on {worker} (id) where gone is null;

-- Switches of workers' duties, set by operators: the newest that fits a worker decides (F20).
create table {duty} (
  id bigint generated always as identity primary key,
  duty text not null check (duty in ('run', 'sweep', 'schedule', 'serve')),
  "on" boolean not null,
  label text, -- null fits every worker, as for host and version
  host text,
  version text,
  actor text not null,
  create_time timestamptz not null
);

-- The end of every attempt that was not plain success (J9).
create table {attempt} (
  id bigint generated always as identity unique, -- in the order of their ends
  job bigint not null,
  attempt int not null,
  start_time timestamptz,
  end_time timestamptz not null,
  outcome text not null,
  state text not null,
  error text,
  traceback text,
  seconds float8,
  worker text,
  primary key (job, attempt)
);

-- What handlers said while they ran. A line's id is its number among all that the job has said: a gap is what was dropped.
create table {log} (
  job bigint not null,
  id bigint not null,
  time timestamptz not null,
  attempt int not null,
  level text not null,
  text text not null,
  total bigint not null, -- bytes kept up to this line: what the cap is taken from
  primary key (job, id)
);

-- What was done from outside, by whom.
create table {audit} (
  id bigint generated always as identity primary key,
  time timestamptz not null,
  actor text not null,
  action text not null,
  job bigint,
  attempt int,
  queue text collate "C",
  detail text
);
create index on {audit} (job) where job is not null;

-- Wishes to end a held job (J10).
create table {abort} (
  job bigint primary key,
  attempt int not null,
  worker bigint,
  actor text not null,
  request_time timestamptz not null
);

-- Jobs that are made by themselves (W6). What an operator set wins over what the code declares, until it is reset.
create table {schedule} (
  name text collate "C" primary key,
  declared_definition text, -- as JSON
  set_definition text, -- as JSON
  removed boolean not null default false, -- by an operator, though the code declares it
  next_time timestamptz, -- the first time that is not fired; null: none
  wake_time timestamptz, -- when to look at it: next_time, or later if it could not fire
  last_time timestamptz,
  last_job bigint,
  count bigint not null default 0,
  problem text, -- why it could not fire
  create_time timestamptz not null,
  update_time timestamptz not null
);
create index on {schedule} (wake_time) where wake_time is not null;

-- What schedules have fired, for three months. A time fires once.
create table {firing} (
  schedule text collate "C" not null references {schedule} on delete cascade,
  count bigint not null,
  time timestamptz not null,
  fire_time timestamptz not null,
  job bigint not null,
  duplicate boolean not null, -- a living job had the key
  actor text not null, -- 'schedule', or who fired it by hand
  primary key (schedule, count)
);
create unique index on {firing} (schedule, time) where actor = 'schedule';
create index on {firing} (job);
create index on {firing} (fire_time);

-- Endless loops over the cluster (F19), as the code declares them and an operator left them.
create table {routine} (
  name text collate "C" primary key,
  definition text not null, -- as JSON
  paused boolean not null default false,
  removed boolean not null default false, -- by an operator, though code may still declare it
  create_time timestamptz not null,
  update_time timestamptz not null
);

-- The parts of routines: the living turn of each, and what is kept from one turn to the next.
create table {part} (
  routine text collate "C" not null references {routine},
  part int not null, -- from 0
  job bigint, -- its living turn; null: it waits for a resume, or for turns of another scale to end
  scale int, -- of that turn
  turns bigint not null default 0,
  failures int not null default 0, -- in a row
  next_time timestamptz, -- not before then
  last_job bigint,
  last_end_time timestamptz,
  last_outcome text,
  error text, -- the last one there was
  error_time timestamptz,
  checkpoint text,
  primary key (routine, part)
);

-- Jobs that ended otherwise than in success, for listing.
create table {dead} (
  end_time timestamptz not null,
  id bigint not null,
  queue text collate "C" not null,
  primary key (end_time, id)
);

-- What became final when, a row per transaction: the archiver reads it from the oldest on.
create table {ended} (
  id bigint generated always as identity primary key,
  end_time timestamptz not null,
  queue text collate "C" not null,
  ids bigint[] not null
) with (autovacuum_vacuum_scale_factor = 0.05);
create index on {ended} (end_time);

-- By month of the end, so that letting go of old jobs is a DROP; the archiver makes a month's partition before its first row.
create table {archive} (like {job}, archive_time timestamptz not null) partition by range (end_time);
create function {archive_refuse}() returns trigger language plpgsql as $$
begin raise exception 'job %: an archived job never changes', old.id using errcode = 'integrity_constraint_violation'; end $$;
create trigger law_archive before update on {archive} for each row execute function {archive_refuse}();
create index on {archive} (id);
create index on {archive} (job_type, id);
create index on {archive} (run, id) where run is not null;
create index on {job} (job_type, job_key, id) where job_key is not null;
create index on {job} (run, job_type, id) where run is not null;  -- a page of a step's tasks, however many jobs there are

-- Workflows as the code declares them, for those who submit by name.
create table {workflow} (
  name text collate "C" primary key,
  definition text not null,
  update_time timestamptz not null
);

-- Runs of workflows. A run keeps the definition it began with.
create table {run} (
  id bigint generated always as identity primary key,
  workflow text collate "C" not null,
  trigger text collate "C" not null,
  state text not null default 'UNDONE' check (state in ('UNDONE', 'SUCCESS', 'FAILED', 'ERROR', 'STUCK')),
  definition text not null,
  params text not null, -- of the request
  step_params text not null, -- of the request, for each step
  published text not null default '{}', -- by tasks, for those made later
  publication int not null default 0, -- how often
  ignore text not null default '[]', -- steps that the request asks to ignore
  priority float8 not null,
  progress float8 not null default 0,
  unique_alive boolean not null,
  -- All its steps in numbers.
  phase int not null default 0,
  phase_undone int not null default 0,
  phase_erred boolean not null default false,
  undone int not null default 0,
  started int not null default 0,
  failed boolean not null default false,
  erred boolean not null default false,
  aborted boolean not null default false,
  aborting text, -- by whom, while tasks of it are still to be aborted
  create_time timestamptz not null,
  update_time timestamptz not null,
  end_time timestamptz,
  unique (workflow, trigger)
);
create unique index on {run} (workflow) where unique_alive and state in ('UNDONE', 'STUCK');
create index on {run} (state, id) where state <> 'SUCCESS';
create index on {run} (id) where aborting is not null;
create index on {run} (end_time) where state = 'SUCCESS';

-- What tasks of a run published, one after the other: a task sees what there was when it was made (F13).
create table {publication} (
  run bigint not null references {run} on delete cascade,
  number int not null,
  params text not null,
  primary key (run, number)
);

-- The steps of a run, each with its tasks in numbers: nobody has to count them to know that a step is done.
create table {step} (
  run bigint not null references {run} on delete cascade,
  name text collate "C" not null,
  position int not null,
  partition text not null,
  state text not null default 'DORMANT',
  created int not null default 0,
  undone int not null default 0,
  succeeded int not null default 0,
  failed int not null default 0,
  errors int not null default 0,
  all_created boolean not null default false,
  items_job bigint, -- that makes the next items
  cursor text, -- where it is to go on
  start_time timestamptz,
  end_time timestamptz,
  primary key (run, name)
);

-- Every trigger there ever was: a narrow record that outlives the run's archive (F14).
create table {trigger} (
  workflow text collate "C" not null,
  trigger text collate "C" not null,
  run bigint not null,
  primary key (workflow, trigger)
);

-- Runs that have left the live tables, whole rows. Their jobs are in `archive`.
create table {run_archive} (like {run}, archive_time timestamptz not null, primary key (id), unique (workflow, trigger));
create index on {run_archive} (end_time);

-- The steps of archived runs.
create table {step_archive} (like {step}, primary key (run, name), foreign key (run) references {run_archive} on delete cascade);

-- Runs that have left the live tables before all their jobs: those follow them.
create table {leaving} (
  run bigint primary key,
  trigger text collate "C" not null,
  types text not null -- of its jobs, as JSON
);

-- What people hold (F17): that tasks start, that tasks are made, that workflows are submitted. An empty text stands for all of them.
create table {hold} (
  level text not null check (level in ('pick', 'create', 'submit')),
  workflow text collate "C" not null,
  trigger text collate "C" not null,
  run bigint references {run} on delete cascade, -- that the trigger made
  actor text not null,
  hold_time timestamptz not null,
  releasing bigint, -- it is in force no more, and what it kept back is brought forward: the last run for which that is done
  primary key (level, workflow, trigger)
);

-- Due tasks that a hold keeps from starting: out of the way of the others.
create table {held} (
  workflow text collate "C" not null,
  run bigint not null,
  id bigint not null,
  queue text collate "C" not null,
  job_type text collate "C" not null,
  primary key (workflow, run, id)
);
create index on {held} (id);

-- Who may ask over HTTP: programs by token, browsers by a session that a one-time login became. The secrets themselves are nowhere.
create table {token} (
  id bigint generated always as identity primary key,
  name text collate "C" not null,
  kind text not null check (kind in ('token', 'login', 'session')),
  scope text not null check (scope in ('read', 'enqueue', 'operate', 'admin')),
  hash text collate "C" not null unique, -- SHA-256
  create_time timestamptz not null,
  expires_time timestamptz
);
create unique index on {token} (name) where kind = 'token';

-- Builds: a commit of a project, and the job that builds it.
create table {build} (
  id bigint generated always as identity primary key,
  project text collate "C" not null,
  commit_id text collate "C" not null,
  ref text not null, -- what to fetch it by
  branch text collate "C",
  tag text,
  pull_request int,
  forge text collate "C" not null,
  trusted boolean not null, -- the commit is in the repository itself
  title text not null,
  author text not null,
  tells boolean not null, -- whether the forge is told
  job bigint, -- the current one
  begun boolean not null default false, -- that job has a folder
  completed boolean not null default false, -- and everything in it
  found text, -- what its builder wrote there, until somebody has seen that the job ended so
  steps text not null default '[]', -- as JSON
  use_time timestamptz not null, -- when somebody last looked into it
  create_time timestamptz not null,
  update_time timestamptz not null,
  unique (project, commit_id)
);
create index on {build} (job);
create index on {build} (use_time) where completed;
create index on {build} (id) where not completed or found is not null;
create index on {build} (project, branch, id);

-- What tells this instance from every other, wherever it is moved: a folder of builds is of one.
create table {identity} (
  single int primary key check (single = 1), -- there is one row
  token text not null
);

-- What forges have sent, so that nothing counts twice. For 90 days.
create table {delivery} (
  project text collate "C" not null,
  forge text collate "C" not null,
  id text collate "C" not null,
  build bigint, -- that it asked for
  receive_time timestamptz not null,
  primary key (project, forge, id)
);
create index on {delivery} (receive_time);

-- Commit statuses that a forge has still to be told, in order.
create table {status} (
  id bigint generated always as identity primary key,
  build bigint not null references {build} on delete cascade,
  step text, -- null: of the whole build
  state text not null,
  description text not null,
  create_time timestamptz not null
);
create index on {status} (build, id);

-- Requests that came with an Idempotency-Key, and the job each made: the same key gives the same job.
create table {request} (
  owner text collate "C" not null, -- the token's name
  key text collate "C" not null,
  print text not null, -- of the body
  job bigint, -- null only within the transaction that adds it
  duplicate boolean not null default false,
  create_time timestamptz not null,
  primary key (owner, key)
);
create index on {request} (create_time);

-- The trace that an enqueue belongs to, for the spans of its attempts. Only where a program traces.
create table {trace} (
  job bigint primary key,
  context text not null -- as JSON
);

-- A move of the instance to or from another database: of which it is the source, and by which it came here.
create table {move} (
  side text primary key check (side in ('source', 'target')),
  stage text not null check (stage in ('copying', 'draining', 'sealed', 'moved', 'arriving', 'open')),
  mark text not null, -- the same on both sides
  other text not null, -- the other database, without its password
  start_time timestamptz not null,
  drain_time timestamptz, -- from then on workers claim nothing
  seal_time timestamptz, -- from then on nothing is written
  end_time timestamptz
);
