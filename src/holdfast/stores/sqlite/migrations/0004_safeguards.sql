-- Jobs: payloads are JSON. Triggers on every queue's table check what is written from now on; they are made anew, as the rest of the law.

-- Builds: trust, context and what conditions read.

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

