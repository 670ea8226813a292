-- name: identity
select token from {identity};

-- name: add_identity
-- The first one stays.
insert into {identity} (single, token) values (1, :token) on conflict do nothing;

-- name: lock_line
-- Commits of one pull request or branch come one after the other, so that the later one sees the earlier.
select pg_advisory_xact_lock(hashtextextended(:line::text, 4802));

-- name: add_build
insert into {build} (project, commit_id, ref, branch, tag, pull_request, forge, trusted, title, author, tells, context, use_time, create_time, update_time)
values (:project, :commit, :ref, :branch, :tag, :pull_request, :forge, :trusted, :title, :author, :tells, :context, :now, :now, :now)
returning id, project, commit_id, tells;

-- name: lock_build
-- A transaction that changes a build has it alone until it commits.
select id, project, commit_id, tells, job, branch, tag, pull_request, lines from {build}
where project = :project and commit_id = :commit and context = :context for update;

-- name: lock_build_by_id
select id, project, commit_id, tells, job from {build} where id = :id for update;

-- name: builds_of_commit
-- Newest first, without rows of an older Holdfast.
select id, context, condition_names, trusted, branch, tag, pull_request from {build} where project = :project and commit_id = :commit and context is not null order by id desc;

-- name: ask_build_again
-- The last request of a context counts; what it does not say stays.
update {build} set ref = :ref, pull_request = :pull_request, forge = :forge, title = coalesce(nullif(:title::text, ''), title),
  author = coalesce(nullif(:author::text, ''), author), tells = :tells, lines = :lines, update_time = :now where id = :id;

-- name: drop_build_ref
delete from {build_ref} where build = :build and ref = :ref;

-- name: add_build_ref
insert into {build_ref} (build, project, ref, branch, tag, pull_request, ask_time) values (:build, :project, :ref, :branch, :tag, :pull_request, :now);

-- name: builds_of_branch
-- The one that the branch asked for last first. Rows of an older Holdfast name no refs: for them the branch of the row counts.
select id from (
  select * from (select b.id, r.ask_time as time, r.id as place from {build_ref} r join {build} b on b.id = r.build
    where r.project = :project and r.branch = :branch::text and b.trusted order by r.ask_time desc, r.id desc limit :limit) asked
  union all
  select * from (select b.id, b.create_time as time, 0 as place from {build} b
    where b.project = :project and b.branch = :branch::text and b.trusted and b.context is null order by b.id desc limit :limit) older
) every_build order by time desc, place desc, id desc limit :limit;

-- name: give_build_job
-- A new job, from the beginning: nothing is made yet.
update {build} set job = :job, begun = :no, completed = :no, found = null, steps = '[]', condition_names = null, update_time = :now where id = :id;

-- name: begin_build
-- The builder of this attempt has made the folder.
update {build} set begun = :yes, completed = :no, found = null, steps = '[]', condition_names = null, update_time = :now where job = :job
  and exists (select 1 from {job} j where j.id = :job and j.attempt = :attempt and j.situation = 'held') returning id, tells;

-- name: tell_steps
-- Only while this attempt has the job. There is a folder, also if `begin_build` was lost.
update {build} set begun = :yes, steps = :steps, update_time = :now where job = :job
  and exists (select 1 from {job} j where j.id = :job and j.attempt = :attempt and j.situation = 'held') returning id, tells;

-- name: complete_build
-- Everything is in the folder; it was used just now. What a builder found counts while its job ends so.
update {build} set completed = :yes, found = :found::text, begun = :yes, steps = coalesce(:steps::text, steps), condition_names = :condition_names::text,
  update_time = :now, use_time = :use_time
  where job = :job and not (completed and found is null)
  and exists (select 1 from {job} j where j.id = :job and (j.state = 'final' or (j.attempt = :attempt and j.situation = 'held')))
  returning id, tells;

-- name: agree_on_builds
-- Their jobs ended as `completed` says.
update {build} set found = null where job in (select unnest(:ids::bigint[])) and completed;

-- name: last_use
select max(use_time) as use_time from {build} where completed;

-- name: use_build
-- Not if it is the last one used anyway, a moment ago.
update {build} set use_time = :use_time where id = :id and completed
  and (use_time < :recently or use_time < (select max(use_time) from {build} where completed));

-- name: builds
-- Newest first. The state stands in the table of `holdfast.builds.build`. Jobs of builds are in one table: the others may
-- be a million.
with cached as (select c.id from {build} c where c.completed
    and not exists (select 1 from {key} k where k.job_type = 'build'
      and k.job_key in (c.project || ':' || c.commit_id, c.project || ':' || c.commit_id || ':' || c.id) and k.id = c.job)
  order by c.use_time desc, c.id desc limit :cache),
known as (select b.*, exists (select 1 from {key} k where k.job_type = 'build'
      and k.job_key in (b.project || ':' || b.commit_id, b.project || ':' || b.commit_id || ':' || b.id) and k.id = b.job) as living,
    b.id in (select id from cached) as cached from {build} b
  where b.id between coalesce(:id::bigint, 0) and coalesce(:id::bigint, 9223372036854775807) and (:project::text is null or b.project = :project)
    and (:branch::text is null or b.branch = :branch
      or b.id in (select r.build from {build_ref} r where r.branch = :branch::text and (:project::text is null or r.project = :project))) and (:trusted::boolean is null or b.trusted = :trusted) and (:commit::text is null or b.commit_id = :commit) and (:before::bigint is null or b.id < :before)),
ended as (select known.*, coalesce(j.outcome, a.outcome) as outcome, coalesce(j.error, a.error) as error, coalesce(j.attempt, a.attempt) as attempt,
    coalesce(j.start_time, a.start_time) as start_time, coalesce(j.end_time, a.end_time) as end_time
  from known left join {queue_table} j on j.id = known.job left join {archive} a on a.id = known.job and j.id is null),
told as (select ended.*, case when completed and not living and coalesce(found = outcome, true)
      then case when cached then 'Completed-Cached' else 'Completed' end
    when begun then 'Building' else 'Freshly received' end as build_state from ended)
select t.*, -- with the refs that asked for it, the last one last
  (select coalesce(json_agg(json_build_object('ref', r.ref, 'branch', r.branch, 'tag', r.tag, 'pull_request', r.pull_request) order by r.id), '[]')::text from
    (select * from {build_ref} where build = t.id order by id desc limit 50) r) as refs
from told t where (:state::text is null or t.build_state = :state)
order by t.id desc limit :limit;

-- name: build_of_job
select id from {build} where job = :job;

-- name: cached_builds
-- The last one used first.
select b.id, b.use_time from {build} b where b.completed
  and not exists (select 1 from {key} k where k.job_type = 'build'
      and k.job_key in (b.project || ':' || b.commit_id, b.project || ':' || b.commit_id || ':' || b.id) and k.id = b.job)
order by b.use_time desc, b.id desc limit :cache;

-- name: living_builds
-- Older builds of other commits that are not over and that this pull request, branch or tag may want. A stranger's branch of that name is
-- another one. Differs because somebody else may just be joining one: they are locked, newest first like everywhere.
select b.id, b.job, b.trusted, b.branch, b.tag, b.pull_request, b.lines
from {key} k join {build} b on b.job = k.id
where k.job_type = 'build' and b.project = :project and b.id < :before::bigint and b.commit_id <> :but_commit
  and (b.pull_request = :pull_request::int or b.trusted and (b.branch = :branch::text or b.tag = :tag::text) or b.lines <> '[]')
order by b.id desc for update of b;

-- name: put_lines
update {build} set lines = :lines where id = :id;

-- name: ended_builds
-- Their job is final, and nobody has written their files, or looked whether `completed` says the same.
select b.id, b.job, b.project, b.commit_id, b.context, b.trusted, b.branch, b.tag, b.pull_request, b.begun, b.completed,
  coalesce(j.outcome, a.outcome) as outcome, coalesce(j.error, a.error) as error
from {build} b left join {queue_table} j on j.id = b.job left join {archive} a on a.id = b.job and j.id is null
where (not b.completed or b.found is not null) and coalesce(j.state, a.state) = 'final' order by b.id limit :limit;

-- name: build_jobs
-- Of these jobs: whether they are over, and which build has them as its current one.
select j.id, j.state, b.id as build from {queue_table} j left join {build} b on b.job = j.id
where j.id in (select unnest(:ids::bigint[])) and j.job_type = 'build'
union all
select a.id, a.state, b.id as build from {archive} a left join {build} b on b.job = a.id
where a.id in (select unnest(:ids::bigint[])) and a.job_type = 'build';

-- name: old_builds
-- Completed, and nobody has looked into them since.
select b.id, b.job from {build} b where b.completed and b.use_time < :before
  and not exists (select 1 from {key} k where k.job_type = 'build'
      and k.job_key in (b.project || ':' || b.commit_id, b.project || ':' || b.commit_id || ':' || b.id) and k.id = b.job)
order by b.use_time limit :limit;

-- name: drop_build
delete from {build} where id = :id and job = :job and completed returning project, commit_id;

-- name: add_delivery
-- Answers nothing if it has come since `before`.
insert into {delivery} as known (project, forge, id, receive_time) values (:project, :forge, :id, :now)
on conflict (project, forge, id) do update set receive_time = excluded.receive_time, build = null where known.receive_time < :before returning id;

-- name: delivery
select build from {delivery} where project = :project and forge = :forge and id = :id;

-- name: name_delivery
update {delivery} set build = :build where project = :project and forge = :forge and id = :id;

-- name: forget_deliveries
delete from {delivery} where (project, forge, id) in
  (select project, forge, id from {delivery} where receive_time < :before order by receive_time limit :limit);

-- name: add_hook_body
-- Answers nothing if it has come since `before`.
insert into {hook_body} as known (project, digest, receive_time) values (:project, :digest, :now)
on conflict (project, digest) do update set receive_time = excluded.receive_time, build = null where known.receive_time < :before returning digest;

-- name: hook_body
select build from {hook_body} where project = :project and digest = :digest;

-- name: name_hook_body
update {hook_body} set build = :build where project = :project and digest = :digest;

-- name: forget_hook_bodies
delete from {hook_body} where (project, digest) in
  (select project, digest from {hook_body} where receive_time < :before order by receive_time limit :limit);

-- name: default_branch
select branch from {default_branch} where project = :project;

-- name: put_default_branch
insert into {default_branch} as known (project, branch) values (:project, :branch)
on conflict (project) do update set branch = excluded.branch where known.branch <> excluded.branch;

-- name: pull_request_labels
select labels, change_time from {pull_request} where project = :project and number = :number;

-- name: put_pull_request_labels
insert into {pull_request} as known (project, number, labels, change_time) values (:project, :number, :labels, :change_time)
on conflict (project, number) do update set labels = excluded.labels, change_time = coalesce(excluded.change_time, known.change_time);

-- name: add_status
insert into {status} (build, step, state, description, branch, tag, create_time) values (:build, :step, :state, :description, :branch, :tag, :now);

-- name: next_status
select * from {status} where build = :build order by id limit 1;

-- name: drop_status
delete from {status} where id = :id;

-- name: forget_statuses
delete from {status} where create_time < :before;

-- name: untold_builds
-- The forge has still to be told of them, and nobody is about to.
select distinct s.build from {status} s
where not exists (select 1 from {key} k where k.job_type = 'build_status' and k.job_key = cast(s.build as text)) limit :limit;

-- name: jobs_with_builds
-- Of these jobs those that no build has any more, or has now: with them go the jobs that a build had before, each the one
-- that the next was made for.
with recursive of_build (current, job) as (
  select j.id, j.id from {queue_table} j join {build} b on b.job = j.id
  union
  select o.current, j.retry_of from of_build o join {queue_table} j on j.id = o.job where j.retry_of is not null)
select j.id, j.end_time from {queue_table} j left join of_build o on o.job = j.id
where j.state = 'final' and ((o.job is null and j.id in (select unnest(:ids::bigint[]))) or o.current in (select unnest(:ids::bigint[])));

-- name: note_old_jobs
-- The jobs of a build that is forgotten may go when their time comes.
insert into {ended} (end_time, queue, ids)
select end_time, 'builds', array[id] from {queue_table} where job_type = 'build' and job_key in (:short_key, :own_key) and state = 'final';
