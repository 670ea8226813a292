-- Jobs: payloads are JSON. Triggers on every queue's table check what is written from now on; they are made anew, as the rest of the law.

-- Builds: trust, context and what conditions read.

-- A commit has a build for each context. SQLite cannot drop the constraint that allows one for each commit, so the table is made anew.
create table {status_kept} as select id, build, step, state, description, create_time from {status};
create table {build_kept} (
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
insert into {build_kept} select id, project, commit_id, ref, branch, tag, pull_request, forge, trusted, title, author, tells, job, begun,
  completed, found, steps, use_time, create_time, update_time, lines, null, null from {build};
-- Ids go on behind the last one that was given out, also if its row is gone. A name in braces stands in double quotes.
delete from sqlite_sequence where '"' || name || '"' = '{build_kept}';
insert into sqlite_sequence (name, seq) select replace('{build_kept}', '"', ''), seq from sqlite_sequence where '"' || name || '"' = '{build}';
drop table {status};
drop table {build};
alter table {build_kept} rename to {build};
create index {build_job} on {build} (job);
create index {build_use} on {build} (use_time) where completed;
create index {build_open} on {build} (id) where not completed or found is not null;
create index {build_branch} on {build} (project, branch, id);
create unique index {build_context} on {build} (project, commit_id, context);

-- Commit statuses that the forge does not have yet, in order.
create table {status} (
  id integer primary key autoincrement,
  build integer not null references {build} on delete cascade,
  step text, -- null: of the whole build
  state text not null,
  description text not null,
  create_time integer not null,
  branch text, -- that asked for the report; null with the tag: the build's own
  tag text
) strict;
create index {status_build} on {status} (build, id);
insert into {status} select id, build, step, state, description, create_time, null, null from {status_kept};
drop table {status_kept};

-- Which refs asked for a build, and when each did last: the last build of a branch is the one that the branch asked for last.
create table {build_ref} (
  id integer primary key autoincrement, -- in the order of asking
  build integer not null references {build} on delete cascade,
  project text not null,
  ref text not null,
  branch text,
  tag text,
  pull_request integer,
  ask_time integer not null,
  unique (build, ref)
) strict;
create index {build_ref_branch} on {build_ref} (project, branch, ask_time);

-- Webhooks: labels and bodies.
-- The labels last known of each pull request of Gitea and Forgejo, which do not say what label was added.
create table {pull_request} (
  project text not null,
  number integer not null,
  labels text not null, -- their names, as JSON
  change_time integer, -- of the pull request, as its forge says it
  primary key (project, number)
) strict, without rowid;
-- The default branch of each project, as its forge or its repository says. A public badge shows it.
create table {default_branch} (
  project text primary key,
  branch text not null
) strict, without rowid;
-- Bodies of webhooks whose delivery id is not signed. Each counts once.
create table {hook_body} (
  project text not null,
  digest text not null, -- SHA-256
  build integer, -- that it asked for
  receive_time integer not null,
  primary key (project, digest)
) strict, without rowid;
create index {hook_body_time} on {hook_body} (receive_time);
insert into {hook_body} (project, digest, build, receive_time)
select project, substr(id, 8), max(build), max(receive_time) from {delivery} where id like 'sha256:%' group by project, id;

-- Access: tokens, browser sessions and login links.
-- SQLite cannot change a check of a column: the table is made anew with its rows.
create table {token_anew} (
  id integer primary key autoincrement,
  name text not null,
  kind text not null check (kind in ('token', 'login', 'session')),
  scope text not null check (scope in ('produce', 'read', 'enqueue', 'operate', 'admin')),
  hash text not null unique, -- SHA-256
  create_time integer not null,
  expires_time integer
) strict;
insert into {token_anew} (id, name, kind, scope, hash, create_time, expires_time)
  select id, name, kind, scope, hash, create_time, expires_time from {token};
drop table {token};
alter table {token_anew} rename to {token};
create unique index {token_name} on {token} (name) where kind = 'token';

-- What else is stored of tokens, sessions and login links. Older servers read all columns of `token`, and must find those they know.
create table {access} (
  token integer primary key references {token} on delete cascade,
  queues text, -- as JSON; null: every queue
  parent integer, -- the token that a session was made with
  server integer, -- that printed a login link and alone accepts it
  use_time integer, -- the last use, to the minute
  idle_expires_time integer -- of a session: its end, unless it is used before
) strict;

-- Servers of the command line, with the address at which people reach them.
create table {server} (
  id integer primary key autoincrement,
  address text not null,
  start_time integer not null,
  beat_time integer not null
) strict;

