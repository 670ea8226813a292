-- An instance `holdfast` with one queue, `work`, after the last migration. Written by `make docs`; read by people only.

CREATE TABLE __holdfast_instance (name text primary key, version integer not null, create_time integer not null) strict;

CREATE TABLE __holdfast_table (table_name text collate nocase primary key, instance text not null, queue text not null) strict;

CREATE TABLE "holdfast__sequence" (last integer not null, begun integer not null default 0);

CREATE TABLE "holdfast__queue" (
  name text primary key,
  table_name text not null,
  claim_order text not null check (claim_order in ('priority', 'schedule')),
  declared_limit real not null,
  set_limit real,
  throttler text, -- as JSON, where the code declares one
  paused integer not null default 0,
  create_time integer not null
) strict, without rowid;

CREATE TABLE "holdfast__type" (
  job_type text primary key,
  queue text not null references "holdfast__queue",
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

CREATE TABLE "holdfast__key" (
  job_type text not null,
  job_key text not null,
  id integer not null,
  primary key (job_type, job_key)
) strict, without rowid;

CREATE TABLE "holdfast__ready" (
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

CREATE INDEX "holdfast__ready_closes" on "holdfast__ready" (closes_time) where closes_time is not null;

CREATE INDEX "holdfast__ready_uncounted" on "holdfast__ready" (queue, major, minor, id) where throttle_factor = 0;

CREATE TABLE "holdfast__aside" (
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

CREATE INDEX "holdfast__aside_id" on "holdfast__aside" (id);

CREATE INDEX "holdfast__aside_closes" on "holdfast__aside" (closes_time) where closes_time is not null;

CREATE TABLE "holdfast__bucket" (
  queue text primary key references "holdfast__queue",
  tokens real not null,
  update_time integer not null
) strict, without rowid;

CREATE TABLE "holdfast__waiting" (
  wake_time integer not null,
  id integer not null,
  queue text not null,
  closes_time integer,
  primary key (wake_time, id)
) strict, without rowid;

CREATE TABLE "holdfast__parked" (
  job_type text not null,
  id integer not null,
  queue text not null,
  closes_time integer,
  primary key (job_type, id)
) strict, without rowid;

CREATE INDEX "holdfast__parked_closes" on "holdfast__parked" (closes_time) where closes_time is not null;

CREATE TABLE "holdfast__undecided" (
  job_type text not null,
  id integer not null,
  primary key (job_type, id)
) strict, without rowid;

CREATE TABLE "holdfast__breaker" (
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

CREATE TABLE "holdfast__lease" (
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

CREATE INDEX "holdfast__lease_job" on "holdfast__lease" (job) where job is not null;

CREATE TABLE "holdfast__worker" (
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

CREATE INDEX "holdfast__worker_living" on "holdfast__worker" (id) where gone is null;

CREATE TABLE "holdfast__duty" (
  id integer primary key autoincrement,
  duty text not null check (duty in ('run', 'sweep', 'schedule', 'serve')),
  "on" integer not null,
  label text, -- null fits every worker, as for host and version
  host text,
  version text,
  actor text not null,
  create_time integer not null
) strict;

CREATE TABLE "holdfast__attempt" (
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

CREATE TABLE "holdfast__log" (
  job integer not null,
  id integer not null,
  time integer not null,
  attempt integer not null,
  level text not null,
  text text not null,
  total integer not null, -- bytes kept up to this line: what the cap is taken from
  primary key (job, id)
) strict, without rowid;

CREATE TABLE "holdfast__audit" (
  id integer primary key autoincrement,
  time integer not null,
  actor text not null,
  action text not null,
  job integer,
  attempt integer,
  queue text,
  detail text
) strict;

CREATE INDEX "holdfast__audit_job" on "holdfast__audit" (job) where job is not null;

CREATE TABLE "holdfast__abort" (
  job integer primary key,
  attempt integer not null,
  worker integer,
  actor text not null,
  request_time integer not null
) strict;

CREATE TABLE "holdfast__schedule" (
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

CREATE INDEX "holdfast__schedule_wake" on "holdfast__schedule" (wake_time) where wake_time is not null;

CREATE TABLE "holdfast__firing" (
  schedule text not null references "holdfast__schedule" on delete cascade,
  count integer not null,
  time integer not null,
  fire_time integer not null,
  job integer not null,
  duplicate integer not null, -- a living job had the key
  actor text not null, -- 'schedule', or who fired it by hand
  primary key (schedule, count)
) strict, without rowid;

CREATE UNIQUE INDEX "holdfast__firing_time" on "holdfast__firing" (schedule, time) where actor = 'schedule';

CREATE INDEX "holdfast__firing_job" on "holdfast__firing" (job);

CREATE INDEX "holdfast__firing_fire_time" on "holdfast__firing" (fire_time);

CREATE TABLE "holdfast__routine" (
  name text primary key,
  definition text not null, -- as JSON
  paused integer not null default 0,
  removed integer not null default 0, -- by an operator, though code may still declare it
  create_time integer not null,
  update_time integer not null
) strict, without rowid;

CREATE TABLE "holdfast__part" (
  routine text not null references "holdfast__routine",
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

CREATE TABLE "holdfast__dead" (
  end_time integer not null,
  id integer not null,
  queue text not null,
  primary key (end_time, id)
) strict, without rowid;

CREATE TABLE "holdfast__ended" (
  id integer primary key autoincrement,
  end_time integer not null,
  queue text not null,
  ids text not null
) strict;

CREATE INDEX "holdfast__ended_end" on "holdfast__ended" (end_time);

CREATE TABLE "holdfast__archive" (
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

CREATE INDEX "holdfast__archive_type" on "holdfast__archive" (job_type, id);

CREATE INDEX "holdfast__archive_end" on "holdfast__archive" (end_time);

CREATE INDEX "holdfast__archive_run" on "holdfast__archive" (run, id) where run is not null;

CREATE TRIGGER "holdfast__law_archive" before update on "holdfast__archive"
begin select raise(abort, 'an archived job never changes'); end;

CREATE TABLE "holdfast__workflow" (
  name text primary key,
  definition text not null,
  update_time integer not null
) strict;

CREATE TABLE "holdfast__run" (
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

CREATE UNIQUE INDEX "holdfast__run_alive" on "holdfast__run" (workflow) where unique_alive and state in ('UNDONE', 'STUCK');

CREATE INDEX "holdfast__run_state" on "holdfast__run" (state, id) where state <> 'SUCCESS';

CREATE INDEX "holdfast__run_aborting" on "holdfast__run" (id) where aborting is not null;

CREATE INDEX "holdfast__run_end" on "holdfast__run" (end_time) where state = 'SUCCESS';

CREATE TABLE "holdfast__publication" (
  run integer not null references "holdfast__run" on delete cascade,
  number integer not null,
  params text not null,
  primary key (run, number)
) strict, without rowid;

CREATE TABLE "holdfast__step" (
  run integer not null references "holdfast__run" on delete cascade,
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

CREATE TABLE "holdfast__trigger" (
  workflow text not null,
  trigger text not null,
  run integer not null,
  primary key (workflow, trigger)
) strict;

CREATE TABLE "holdfast__run_archive" (
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

CREATE INDEX "holdfast__run_archive_end" on "holdfast__run_archive" (end_time);

CREATE TABLE "holdfast__step_archive" (
  run integer not null references "holdfast__run_archive" on delete cascade,
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

CREATE TABLE "holdfast__leaving" (
  run integer primary key,
  trigger text not null,
  types text not null -- of its jobs, as JSON
) strict;

CREATE TABLE "holdfast__hold" (
  level text not null check (level in ('pick', 'create', 'submit')),
  workflow text not null,
  trigger text not null,
  run integer references "holdfast__run" on delete cascade, -- that the trigger made
  actor text not null,
  hold_time integer not null,
  releasing integer, -- it is in force no more, and what it kept back is brought forward: the last run for which that is done
  primary key (level, workflow, trigger)
) strict, without rowid;

CREATE TABLE "holdfast__held" (
  workflow text not null,
  run integer not null,
  id integer not null,
  queue text not null,
  job_type text not null,
  primary key (workflow, run, id)
) strict, without rowid;

CREATE INDEX "holdfast__held_id" on "holdfast__held" (id);

CREATE TABLE "holdfast__identity" (
  single integer primary key check (single = 1), -- there is one row
  token text not null
) strict;

CREATE TABLE "holdfast__delivery" (
  project text not null,
  forge text not null,
  id text not null,
  build integer, -- that it asked for
  receive_time integer not null,
  primary key (project, forge, id)
) strict, without rowid;

CREATE INDEX "holdfast__delivery_time" on "holdfast__delivery" (receive_time);

CREATE TABLE "holdfast__request" (
  owner text not null, -- the token's name
  key text not null,
  print text not null, -- of the body
  job integer, -- null only within the transaction that adds it
  duplicate integer not null default 0,
  create_time integer not null,
  primary key (owner, key)
) strict, without rowid;

CREATE INDEX "holdfast__request_create" on "holdfast__request" (create_time);

CREATE TABLE "holdfast__trace" (
  job integer primary key,
  context text not null -- as JSON
) strict;

CREATE TABLE "holdfast__move" (
  side text primary key check (side in ('source', 'target')),
  stage text not null check (stage in ('copying', 'draining', 'sealed', 'moved', 'arriving', 'open')),
  mark text not null, -- the same on both sides
  other text not null, -- the other database, without its password
  start_time integer not null,
  drain_time integer, -- from then on workers claim nothing
  seal_time integer, -- from then on nothing is written
  end_time integer
) strict;

CREATE TABLE "holdfast__build" (
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
  tells integer not null, -- whether its statuses go to the forge
  job integer, -- the current one
  begun integer not null default 0, -- that job has a folder
  completed integer not null default 0, -- and everything in it
  found text, -- the outcome that its builder wrote there, until a sweep has compared it with the job's
  steps text not null default '[]', -- as JSON
  use_time integer not null, -- of the last look into it
  create_time integer not null,
  update_time integer not null,
  lines text not null default '[]',
  context text, -- trust, event, branch and tag that it is built for, as JSON; null: an older Holdfast made the row
  condition_names text -- what the conditions of its build file read, as a JSON list; null: not known
) strict;

CREATE INDEX "holdfast__build_job" on "holdfast__build" (job);

CREATE INDEX "holdfast__build_use" on "holdfast__build" (use_time) where completed;

CREATE INDEX "holdfast__build_open" on "holdfast__build" (id) where not completed or found is not null;

CREATE INDEX "holdfast__build_branch" on "holdfast__build" (project, branch, id);

CREATE UNIQUE INDEX "holdfast__build_context" on "holdfast__build" (project, commit_id, context);

CREATE TABLE "holdfast__status" (
  id integer primary key autoincrement,
  build integer not null references "holdfast__build" on delete cascade,
  step text, -- null: of the whole build
  state text not null,
  description text not null,
  create_time integer not null,
  branch text, -- that asked for the report; null with the tag: the build's own
  tag text
) strict;

CREATE INDEX "holdfast__status_build" on "holdfast__status" (build, id);

CREATE TABLE "holdfast__build_ref" (
  id integer primary key autoincrement, -- in the order of asking
  build integer not null references "holdfast__build" on delete cascade,
  project text not null,
  ref text not null,
  branch text,
  tag text,
  pull_request integer,
  ask_time integer not null,
  unique (build, ref)
) strict;

CREATE INDEX "holdfast__build_ref_branch" on "holdfast__build_ref" (project, branch, ask_time);

CREATE TABLE "holdfast__pull_request" (
  project text not null,
  number integer not null,
  labels text not null, -- their names, as JSON
  change_time integer, -- of the pull request, as its forge says it
  primary key (project, number)
) strict, without rowid;

CREATE TABLE "holdfast__default_branch" (
  project text primary key,
  branch text not null
) strict, without rowid;

CREATE TABLE "holdfast__hook_body" (
  project text not null,
  digest text not null, -- SHA-256
  build integer, -- that it asked for
  receive_time integer not null,
  primary key (project, digest)
) strict, without rowid;

CREATE INDEX "holdfast__hook_body_time" on "holdfast__hook_body" (receive_time);

CREATE TABLE "holdfast__token" (
  id integer primary key autoincrement,
  name text not null,
  kind text not null check (kind in ('token', 'login', 'session')),
  scope text not null check (scope in ('produce', 'read', 'enqueue', 'operate', 'admin')),
  hash text not null unique, -- SHA-256
  create_time integer not null,
  expires_time integer
) strict;

CREATE UNIQUE INDEX "holdfast__token_name" on "holdfast__token" (name) where kind = 'token';

CREATE TABLE "holdfast__access" (
  token integer primary key references "holdfast__token" on delete cascade,
  queues text, -- as JSON; null: every queue
  parent integer, -- the token that a session was made with
  server integer, -- that printed a login link and alone accepts it
  use_time integer, -- the last use, to the minute
  idle_expires_time integer -- of a session: its end, unless it is used before
) strict;

CREATE TABLE "holdfast__server" (
  id integer primary key autoincrement,
  address text not null,
  start_time integer not null,
  beat_time integer not null
) strict;

CREATE TABLE "holdfast_work" (
  id integer primary key,
  queue text not null default 'work' check (queue = 'work'),
  job_type text not null,
  job_key text,
  create_time integer not null,
  retry_of integer,
  run integer, -- whose task it is
  priority real not null,
  throttle_factor real not null check (throttle_factor >= 0),
  timeout real,
  retries integer,
  timeout_named integer not null default 0, -- somebody asked for it; else it is the default
  retries_named integer not null default 0,
  time_windows text,
  expires_time integer,
  payload text not null,
  scheduled_run_time integer not null,
  update_time integer not null,
  start_time integer,
  end_time integer,
  state text not null default 'initial',
  situation text,
  outcome text,
  attempt integer not null default 0,
  failures integer not null default 0,
  losses integer not null default 0,
  crashes integer not null default 0,
  deadline_time integer, -- of a job that waits for an answer
  answer text, -- from outside, kept until the job waits for it
  checkpoint text,
  progress real,
  progress_text text,
  execution_time real,
  total_time real not null default 0,
  worker integer,
  result text,
  error text not null default 'NONE',
  constraint law check (case state
    when 'initial' then error = 'NONE' and outcome is null and situation is null and attempt = 0
    when 'running' then error = 'NONE' and outcome is null and situation in ('held', 'waiting', 'loose') and attempt > 0
    when 'error' then error <> 'NONE' and outcome is null and situation is null and attempt > 0
    when 'final' then outcome in ('success', 'failed', 'error', 'aborted') and (outcome = 'success') = (error = 'NONE') and situation is null
      and end_time is not null and attempt > 0
    else 0 end)
) strict;

CREATE INDEX "holdfast_work__key" on "holdfast_work" (job_type, job_key, id) where job_key is not null;

CREATE INDEX "holdfast_work__run" on "holdfast_work" (run, job_type, id) where run is not null;

CREATE TRIGGER "holdfast_work__update" after update on "holdfast_work" when not coalesce(
  old.state <> 'final' and new.id = old.id and new.create_time = old.create_time and new.job_type = old.job_type
  and new.job_key is old.job_key
  and case new.state
    when 'running' then (new.attempt = old.attempt + 1 and new.situation = 'held' and (old.state in ('initial', 'error') or old.situation is 'loose'))
      or (old.state = 'running' and new.attempt = old.attempt and (old.situation = 'held' or new.situation in ('loose', old.situation)))
    when 'error' then new.attempt = old.attempt and (old.state = 'running' or (old.state = 'error' and new.error = old.error))
    when 'final' then new.attempt = old.attempt and old.state = case new.outcome when 'success' then 'running' else 'error' end
    else old.state = 'initial' and new.state = 'initial' end, 0)
begin
  select case old.state || ' ' || new.state
    when 'initial initial' then raise(abort, 'holdfast law: a job in `initial` may not become `initial` that way')
    when 'initial running' then raise(abort, 'holdfast law: a job in `initial` may not become `running` that way')
    when 'initial error' then raise(abort, 'holdfast law: a job in `initial` may not become `error`')
    when 'initial final' then raise(abort, 'holdfast law: a job in `initial` may not become `final`')
    when 'running initial' then raise(abort, 'holdfast law: a job in `running` may not become `initial`')
    when 'running running' then raise(abort, 'holdfast law: a job in `running` may not become `running` that way')
    when 'running error' then raise(abort, 'holdfast law: a job in `running` may not become `error` that way')
    when 'running final' then raise(abort, 'holdfast law: a job in `running` may not become `final` that way')
    when 'error initial' then raise(abort, 'holdfast law: a job in `error` may not become `initial`')
    when 'error running' then raise(abort, 'holdfast law: a job in `error` may not become `running` that way')
    when 'error error' then raise(abort, 'holdfast law: a job in `error` may not become `error` that way')
    when 'error final' then raise(abort, 'holdfast law: a job in `error` may not become `final` that way')
    when 'final initial' then raise(abort, 'holdfast law: a job in `final` may not become `initial`')
    when 'final running' then raise(abort, 'holdfast law: a job in `final` may not become `running`')
    when 'final error' then raise(abort, 'holdfast law: a job in `final` may not become `error`')
    when 'final final' then raise(abort, 'holdfast law: a job in `final` may not become `final`')
    else raise(abort, 'holdfast law: a job is `initial`, `running`, `error` or `final`')
  end;
end;

CREATE TRIGGER "holdfast_work__insert" before insert on "holdfast_work" when exists (select 1 from "holdfast_work" where id = new.id)
  or (new.state <> 'initial' and not (new.state = 'running' and new.attempt = 1 and new.situation = 'held' and new.id <= (select begun from "holdfast__sequence")))
  or not json_valid(new.payload)
begin
  select case when json_valid(new.payload) then raise(abort, 'holdfast law: a new job must be `initial` and have an id of its own')
    else raise(abort, 'holdfast law: a payload must be JSON') end;
end;

CREATE TRIGGER "holdfast_work__payload" before update of payload on "holdfast_work" when new.payload <> old.payload and not json_valid(new.payload)
begin
  select raise(abort, 'holdfast law: a payload must be JSON');
end;

CREATE TRIGGER "holdfast_work__delete" after delete on "holdfast_work" when old.state <> 'final'
begin
  select case old.state
    when 'initial' then raise(abort, 'holdfast law: a job in `initial` may not be deleted, only one in `final` may')
    when 'running' then raise(abort, 'holdfast law: a job in `running` may not be deleted, only one in `final` may')
    when 'error' then raise(abort, 'holdfast law: a job in `error` may not be deleted, only one in `final` may')
  end;
end;

CREATE TRIGGER "holdfast_work__key_take" after insert on "holdfast_work" when new.job_key is not null
begin
  select raise(abort, 'holdfast law: the job type already has a living job with this key')
  where exists (select 1 from "holdfast__key" where job_type = new.job_type and job_key = new.job_key);
  insert into "holdfast__key" (job_type, job_key, id) values (new.job_type, new.job_key, new.id);
end;

CREATE TRIGGER "holdfast_work__key_free" after update on "holdfast_work" when new.job_key is not null and new.state = 'final' and old.state <> 'final'
begin
  delete from "holdfast__key" where job_type = new.job_type and job_key = new.job_key and id = new.id;
end;

CREATE VIEW "holdfast__job" as select * from "holdfast_work";
