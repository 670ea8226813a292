-- Up to which id new jobs may be stored as `running`; 0 outside of the statement that stores them. The law on every queue is made anew.
alter table {sequence} add column begun integer not null default 0;
