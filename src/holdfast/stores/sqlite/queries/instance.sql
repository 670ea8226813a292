-- name: create_registry
-- Shared by all instances of a database; no instance or queue can have this name.
create table if not exists __holdfast_instance (name text primary key, version integer not null, create_time integer not null) strict;

-- name: create_table_registry
-- Without regard to case, as SQLite compares names.
create table if not exists __holdfast_table (table_name text collate nocase primary key, instance text not null, queue text not null) strict;

-- name: has_registry
select count(*) as found from sqlite_master where name = '__holdfast_instance';

-- name: version
select version from __holdfast_instance where name = :instance;

-- name: set_version
insert into __holdfast_instance (name, version, create_time) values (:instance, :version, :now)
on conflict (name) do update set version = excluded.version;

-- name: instances
select name, version from __holdfast_instance order by name;

-- name: table_owner
select instance, queue from __holdfast_table where table_name = :table_name;

-- name: foreign_table
select count(*) as found from sqlite_master where name = :table_name collate nocase;

-- name: own_table
insert into __holdfast_table (table_name, instance, queue) values (:table_name, :instance, :queue);

-- name: quick_check
pragma quick_check(1);
