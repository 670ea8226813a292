-- name: identity
select token from {identity};

-- name: add_identity
-- The first one stays.
insert into {identity} (single, token) values (1, :token) on conflict do nothing;

-- name: lock_line
-- Commits of one pull request or branch come one after the other, so that the later one sees the earlier.
select pg_advisory_xact_lock(hashtextextended(:line::text, 4802));

-- name: add_build
-- Answers nothing if the commit has a build already.
insert into {build} (project, commit_id, ref, branch, tag, pull_request, forge, trusted, title, author, tells, use_time, create_time, update_time)
values (:project, :commit, :ref, :branch, :tag, :pull_request, :forge, :trusted, :title, :author, :tells, :now, :now, :now)
on conflict (project, commit_id) do nothing returning id;

-- name: lock_build
-- Who changes a build has it alone until it commits.
select id, project, commit_id, tells, job, trusted, branch, pull_request, lines from {build} where project = :project and commit_id = :commit for update;

-- name: lock_build_by_id
select id, project, commit_id, tells, job from {build} where id = :id for update;

-- name: ask_build_again
-- It was asked for once more: what is said now counts, what is not said stays. What a stranger says of a commit that is
-- trusted does not count, and of what strangers said nothing stays once it is.
update {build} set ref = :ref, branch = case when trusted = :trusted::boolean then coalesce(:branch::text, branch) else :branch::text end,
  tag = case when trusted = :trusted::boolean then coalesce(:tag::text, tag) else :tag::text end,
  pull_request = case when trusted = :trusted::boolean then coalesce(:pull_request::int, pull_request) else :pull_request::int end,
  forge = :forge, trusted = :trusted::boolean, title = coalesce(nullif(:title::text, ''), title), author = coalesce(nullif(:author::text, ''), author),
  tells = :tells, lines = :lines, update_time = :now where id = :id and (:trusted::boolean or not trusted);

-- name: give_build_job
-- A new job, from the beginning: nothing is made yet.
update {build} set job = :job, begun = :no, completed = :no, found = null, steps = '[]', update_time = :now where id = :id;

-- name: begin_build
-- The builder of this attempt has made the folder.
update {build} set begun = :yes, completed = :no, found = null, steps = '[]', update_time = :now where job = :job
  and exists (select 1 from {job} j where j.id = :job and j.attempt = :attempt and j.situation = 'held') returning id, tells;

-- name: tell_steps
-- Only while this attempt has the job.
update {build} set steps = :steps, update_time = :now where job = :job
  and exists (select 1 from {job} j where j.id = :job and j.attempt = :attempt and j.situation = 'held') returning id, tells;

-- name: complete_build
-- Everything is in the folder; it was used just now. What a builder found counts while its job ends so.
update {build} set completed = :yes, found = :found::text, begun = :yes, steps = coalesce(:steps::text, steps), update_time = :now, use_time = :use_time
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
    and not exists (select 1 from {key} k where k.job_type = 'build' and k.job_key = c.project || ':' || c.commit_id and k.id = c.job)
  order by c.use_time desc, c.id desc limit :cache),
known as (select b.*, exists (select 1 from {key} k where k.job_type = 'build' and k.job_key = b.project || ':' || b.commit_id and k.id = b.job) as living,
    b.id in (select id from cached) as cached from {build} b
  where b.id between coalesce(:id::bigint, 0) and coalesce(:id::bigint, 9223372036854775807) and (:project::text is null or b.project = :project)
    and (:branch::text is null or b.branch = :branch) and (:trusted::boolean is null or b.trusted = :trusted) and (:commit::text is null or b.commit_id = :commit) and (:before::bigint is null or b.id < :before)),
ended as (select known.*, coalesce(j.outcome, a.outcome) as outcome, coalesce(j.error, a.error) as error, coalesce(j.attempt, a.attempt) as attempt,
    coalesce(j.start_time, a.start_time) as start_time, coalesce(j.end_time, a.end_time) as end_time
  from known left join {queue_table} j on j.id = known.job left join {archive} a on a.id = known.job and j.id is null),
told as (select ended.*, case when completed and not living and coalesce(found = outcome, true)
      then case when cached then 'Completed-Cached' else 'Completed' end
    when begun then 'Building' else 'Freshly received' end as build_state from ended)
select * from told t where (:state::text is null or t.build_state = :state)
order by t.id desc limit :limit;

-- name: build_of_job
select id from {build} where job = :job;

-- name: cached_builds
-- The last one used first.
select b.id, b.use_time from {build} b where b.completed
  and not exists (select 1 from {key} k where k.job_type = 'build' and k.job_key = b.project || ':' || b.commit_id and k.id = b.job)
order by b.use_time desc, b.id desc limit :cache;

-- name: living_builds
-- Older builds that are not over and that this pull request or branch may want. A stranger's branch of that name is
-- another one. Differs because somebody else may just be joining one: they are locked, newest first like everywhere.
select b.id, b.job, b.trusted, b.branch, b.pull_request, b.lines
from {key} k join {build} b on b.job = k.id
where k.job_type = 'build' and b.project = :project and b.id < :before::bigint and (b.pull_request = :pull_request::int or b.trusted and b.branch = :branch::text or b.lines <> '[]')
order by b.id desc for update of b;

-- name: put_lines
update {build} set lines = :lines where id = :id;

-- name: ended_builds
-- Their job is final, and nobody has written their files, or looked whether `completed` says the same.
select b.id, b.job, b.begun, b.completed, coalesce(j.outcome, a.outcome) as outcome, coalesce(j.error, a.error) as error
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
  and not exists (select 1 from {key} k where k.job_type = 'build' and k.job_key = b.project || ':' || b.commit_id and k.id = b.job)
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
insert into {status} (build, step, state, description, create_time) values (:build, :step, :state, :description, :now);

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
-- Of these jobs those that no build has any more, or has now: with them go the jobs that a build had before.
select j.id, j.end_time from {queue_table} j left join {build} b on j.job_key = b.project || ':' || b.commit_id and j.job_type = 'build'
where j.state = 'final' and ((b.id is null and j.id in (select unnest(:ids::bigint[]))) or b.job in (select unnest(:ids::bigint[])));

-- name: note_old_jobs
-- The jobs of a build that is forgotten may go when their time comes.
insert into {ended} (end_time, queue, ids)
select end_time, 'builds', array[id] from {queue_table} where job_type = 'build' and job_key = :job_key and state = 'final';
