-- name: add_token
insert into {token} (name, kind, scope, hash, create_time, expires_time) values (:name, :kind, :scope, :hash, :now, :expires_time) returning id;

-- name: add_access
insert into {access} (token, queues, parent, server, idle_expires_time) values (:token, :queues, :parent, :server, :idle_expires_time);

-- name: token
-- A session ends with the token that it was made with.
select t.*, a.queues, a.use_time, a.idle_expires_time from {token} t left join {access} a on a.token = t.id
where t.hash = :hash and t.kind = :kind and (t.expires_time is null or t.expires_time > :now)
  and (a.idle_expires_time is null or a.idle_expires_time > :now)
  and (a.parent is null or exists (select 1 from {token} p where p.id = a.parent and (p.expires_time is null or p.expires_time > :now)));

-- name: token_by_id
select t.*, a.queues, a.use_time, a.idle_expires_time from {token} t left join {access} a on a.token = t.id where t.id = :id;

-- name: tokens
-- Newest first; of sessions and login links those that are valid.
select t.*, a.queues, a.use_time, a.idle_expires_time from {token} t left join {access} a on a.token = t.id
where t.kind = 'token' or ((t.expires_time is null or t.expires_time > :now)
  and (a.idle_expires_time is null or a.idle_expires_time > :now)
  and (a.parent is null or exists (select 1 from {token} p where p.id = a.parent and (p.expires_time is null or p.expires_time > :now)))
  and (a.server is null or exists (select 1 from {server} s where s.id = a.server and s.beat_time > :alive_since))) order by t.id desc;

-- name: token_named
select id from {token} where kind = 'token' and name = :name;

-- name: use_token
-- What an older program has stored has no row in `access`.
insert into {access} (token, use_time, idle_expires_time) select id, :now, :idle_expires_time from {token} where id = :id
on conflict (token) do update set use_time = excluded.use_time, idle_expires_time = excluded.idle_expires_time;

-- name: revoke_token
-- With the sessions that were made with it.
delete from {token} where id = :id or id in (select token from {access} where parent = :id) returning kind, name;

-- name: revoke_tokens_named
delete from {token} where name = :name
  or id in (select a.token from {access} a join {token} p on p.id = a.parent where p.name = :name) returning kind, name;

-- name: revoke_sessions
-- And what could still become one.
delete from {token} where kind <> 'token' returning kind, name;

-- name: use_login
-- Once: a second request finds nothing.
delete from {token} where hash = :hash and kind = 'login' and expires_time > :now
  and not exists (select 1 from {access} a where a.token = {token}.id and a.server is not null and a.server is distinct from :server)
returning name, scope, expires_time;

-- name: drop_session
delete from {token} where hash = :hash and kind = 'session' returning name;

-- name: drop_logins_of_server
delete from {token} where kind = 'login' and id in (select token from {access} where server = :id);

-- name: forget_tokens
-- Login links and sessions that are over. Tokens of programs stay, so that the list says why one is refused.
delete from {token} where kind <> 'token' and (expires_time <= :now or id in (select a.token from {access} a
  where a.idle_expires_time <= :now or (a.parent is not null and not exists (select 1 from {token} p where p.id = a.parent))));

-- name: add_server
insert into {server} (address, start_time, beat_time) values (:address, :now, :now) returning id;

-- name: beat_server
update {server} set beat_time = :now where id = :id;

-- name: drop_server
delete from {server} where id = :id;

-- name: forget_servers
delete from {server} where beat_time < :before;

-- name: newest_server
select address from {server} where beat_time > :alive_since order by id desc limit 1;

-- name: take_request
-- Whoever comes second waits for the first and finds its row.
insert into {request} (owner, key, print, create_time) values (:owner, :key, :print, :now) on conflict do nothing;

-- name: note_request
update {request} set job = :job, duplicate = :duplicate where owner = :owner and key = :key;

-- name: request
select print, job, duplicate from {request} where owner = :owner and key = :key;

-- name: forget_requests
delete from {request} where create_time < :since;
