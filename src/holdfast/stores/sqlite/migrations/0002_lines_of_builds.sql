-- Which branches and pull requests want the build, as JSON; empty: those that its row names.
alter table {build} add column lines text not null default '[]';
