-- Jobs: payloads are JSON.
-- Triggers check what is written from now on. A check of the table would hold for every update, so a row that is damaged already could not even end.
create or replace trigger law_insert after insert on {job} for each row
  when (new.state not in ('initial', 'running') or new.attempt > 1
    or (new.state = 'running' or new.job_key is not null) and current_setting('holdfast.keys', true) is distinct from 'kept'
    or new.payload::json is null)
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

