-- Lists of ids are stored as they are: to compress them cost the server a twentieth of all its work for jobs.
alter table {lease} alter column ids set storage external;
alter table {ended} alter column ids set storage external;
