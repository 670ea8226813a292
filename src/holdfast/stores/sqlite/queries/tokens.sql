-- name: add_token
insert into {token} (name, kind, scope, hash, create_time, expires_time) values (:name, :kind, :scope, :hash, :now, :expires_time) returning *;

-- name: token
select * from {token} where hash = :hash and kind = :kind and (expires_time is null or expires_time > :now);

-- name: tokens
-- Newest first.
select * from {token} where kind = :kind order by id desc;

-- name: revoke_token
delete from {token} where name = :name and kind = 'token';

-- name: revoke_sessions
-- And what could still become one.
delete from {token} where kind <> 'token' returning kind, name;

-- name: use_login
-- Once: whoever comes second finds nothing.
delete from {token} where hash = :hash and kind = 'login' and expires_time > :now returning name, scope;

-- name: drop_session
delete from {token} where hash = :hash and kind = 'session';

-- name: forget_tokens
-- Logins and sessions whose time is over. Tokens of programs stay, so that the list says why one is refused.
delete from {token} where kind <> 'token' and expires_time <= :now;

-- name: take_request
-- Whoever comes second waits for the first and finds its row.
insert into {request} (owner, key, print, create_time) values (:owner, :key, :print, :now) on conflict do nothing;

-- name: note_request
update {request} set job = :job, duplicate = :duplicate where owner = :owner and key = :key;

-- name: request
select print, job, duplicate from {request} where owner = :owner and key = :key;

-- name: forget_requests
delete from {request} where create_time < :since;
