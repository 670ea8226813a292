-- Jobs: payloads are JSON.
-- Triggers check what is written from now on. A check of the table would hold for every update, so a row that is damaged already could not even end.
create or replace trigger law_insert after insert on {job} for each row
  when (new.payload::json is null or new.state not in ('initial', 'running') or new.attempt > 1
    or (new.state = 'running' or new.job_key is not null) and current_setting('holdfast.keys', true) is distinct from 'kept')
  execute function {job_take}();
create or replace trigger law_payload after update of payload on {job} for each row
  when (case when new.payload <> old.payload then new.payload::json is null end) execute function {job_refuse}();

-- What stands at a path in a payload; null if the payload is damaged, so that one row does not stop a claim.
create or replace function {value_in}(payload text, path text[]) returns text language plpgsql immutable as $$
begin
  return (payload::json #> path)::text;
exception when others then
  return null;
end $$;

-- Builds: trust, context and what conditions read.

-- A commit has a build for each context.
do $$
declare one_for_each_commit text;
begin
  select conname into one_for_each_commit from pg_constraint where conrelid = '{build}'::regclass and contype = 'u';
  execute format('alter table {build} drop constraint %I', one_for_each_commit);
end $$;
alter table {build} add column context text collate "C"; -- trust, event, branch and tag that it is built for, as JSON; null: an older Holdfast made the row
alter table {build} add column condition_names text; -- what the conditions of its build file read, as a JSON list; null: not known
create unique index on {build} (project, commit_id, context);
alter table {status} add column branch text; -- that asked for the report; null with the tag: the build's own
alter table {status} add column tag text;

-- Which refs asked for a build, and when each did last: the last build of a branch is the one that the branch asked for last.
create table {build_ref} (
  id bigint generated always as identity primary key, -- in the order of asking
  build bigint not null references {build} on delete cascade,
  project text collate "C" not null,
  ref text collate "C" not null,
  branch text collate "C",
  tag text,
  pull_request int,
  ask_time timestamptz not null,
  unique (build, ref)
);
create index on {build_ref} (project, branch, ask_time);

-- Webhooks: labels and bodies.
-- The labels last known of each pull request of Gitea and Forgejo, which do not say what label was added.
create table {pull_request} (
  project text collate "C" not null,
  number bigint not null,
  labels text not null, -- their names, as JSON
  change_time timestamptz, -- of the pull request, as its forge says it
  primary key (project, number)
);
-- The default branch of each project, as its forge or its repository says. A public badge shows it.
create table {default_branch} (
  project text collate "C" primary key,
  branch text not null
);
-- Bodies of webhooks whose delivery id is not signed. Each counts once.
create table {hook_body} (
  project text collate "C" not null,
  digest text collate "C" not null, -- SHA-256
  build bigint, -- that it asked for
  receive_time timestamptz not null,
  primary key (project, digest)
);
create index on {hook_body} (receive_time);
insert into {hook_body} (project, digest, build, receive_time)
select project, substr(id, 8), max(build), max(receive_time) from {delivery} where id like 'sha256:%' group by project, id;

-- Access: tokens, browser sessions and login links.
alter table {token}
  drop constraint {token_scope_check},
  add constraint {token_scope_check} check (scope in ('produce', 'read', 'enqueue', 'operate', 'admin'));

-- What else is stored of tokens, sessions and login links. Older servers read all columns of `token`, and must find those they know.
create table {access} (
  token bigint primary key references {token} on delete cascade,
  queues text, -- as JSON; null: every queue
  parent bigint, -- the token that a session was made with
  server bigint, -- that printed a login link and alone accepts it
  use_time timestamptz, -- the last use, to the minute
  idle_expires_time timestamptz -- of a session: its end, unless it is used before
);

-- Servers of the command line, with the address at which people reach them.
create table {server} (
  id bigint generated always as identity primary key,
  address text not null,
  start_time timestamptz not null,
  beat_time timestamptz not null
);

