-- Jobs may begin as they are made: the statements that keep keys themselves may store them as `running`, in their first attempt.
create or replace trigger law_insert after insert on {job} for each row
  when (new.state not in ('initial', 'running') or new.attempt > 1
    or (new.state = 'running' or new.job_key is not null) and current_setting('holdfast.keys', true) is distinct from 'kept')
  execute function {job_take}();
