-- An instance `holdfast` with one queue, `work`, after the last migration. Written by `make docs`; read by people only.

CREATE FUNCTION holdfast__archive_refuse() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin raise exception 'job %: an archived job never changes', old.id using errcode = 'integrity_constraint_violation'; end $$;

CREATE FUNCTION holdfast__job_refuse() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if tg_op = 'DELETE' then
    raise exception 'job %: `%` may not be deleted, only `final` may', old.id, old.state using errcode = 'integrity_constraint_violation';
  elsif tg_op = 'TRUNCATE' then
    raise exception 'jobs may not be truncated' using errcode = 'integrity_constraint_violation';
  end if;
  raise exception 'job %: `%` (attempt %, %) may not become `%` (attempt %, %)', old.id, old.state, old.attempt, coalesce(old.situation, 'free'),
    new.state, new.attempt, coalesce(new.situation, 'free') using errcode = 'integrity_constraint_violation';
end $$;

CREATE FUNCTION holdfast__job_take() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if new.state <> 'initial' then
    raise exception 'job %: a new job must be `initial` with attempt 0, not `%` with attempt %', new.id, new.state, new.attempt
      using errcode = 'integrity_constraint_violation';
  end if;
  if exists (select from "holdfast__key" where job_type = new.job_type and job_key = new.job_key and id = new.id) then
    return null;
  end if;
  insert into "holdfast__key" (job_type, job_key, id) values (new.job_type, new.job_key, new.id) on conflict do nothing;
  if not found then
    raise exception 'job type % already has a living job with key %', new.job_type, new.job_key using errcode = 'unique_violation';
  end if;
  return null;
end $$;

CREATE FUNCTION holdfast__key_free() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  delete from "holdfast__key" where job_type = new.job_type and job_key = new.job_key and id = new.id;
  return null;
end $$;

CREATE FUNCTION holdfast__value_in(payload text, path text[]) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  return (payload::json #> path)::text;
exception when others then
  return null;
end $$;

CREATE TABLE __holdfast_instance (
    name text NOT NULL,
    version integer NOT NULL,
    create_time timestamp with time zone NOT NULL
);

CREATE TABLE __holdfast_table (
    table_name text NOT NULL,
    instance text NOT NULL,
    queue text NOT NULL
);

CREATE TABLE holdfast__abort (
    job bigint NOT NULL,
    attempt integer NOT NULL,
    worker bigint,
    actor text NOT NULL,
    request_time timestamp with time zone NOT NULL
);

CREATE TABLE holdfast__access (
    token bigint NOT NULL,
    queues text,
    parent bigint,
    server bigint,
    use_time timestamp with time zone,
    idle_expires_time timestamp with time zone
);

CREATE TABLE holdfast__archive (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    job_type text NOT NULL COLLATE pg_catalog."C",
    job_key text COLLATE pg_catalog."C",
    create_time timestamp with time zone NOT NULL,
    retry_of bigint,
    run bigint,
    priority double precision NOT NULL,
    throttle_factor double precision NOT NULL,
    timeout double precision,
    retries integer,
    timeout_named boolean NOT NULL,
    retries_named boolean NOT NULL,
    time_windows text,
    expires_time timestamp with time zone,
    payload text NOT NULL,
    scheduled_run_time timestamp with time zone NOT NULL,
    update_time timestamp with time zone NOT NULL,
    start_time timestamp with time zone,
    end_time timestamp with time zone,
    state text NOT NULL,
    situation text,
    outcome text,
    attempt integer NOT NULL,
    failures integer NOT NULL,
    losses integer NOT NULL,
    crashes integer NOT NULL,
    deadline_time timestamp with time zone,
    answer text,
    checkpoint text,
    progress double precision,
    progress_text text,
    execution_time double precision,
    total_time double precision NOT NULL,
    worker bigint,
    result text,
    error text NOT NULL,
    archive_time timestamp with time zone NOT NULL
)
PARTITION BY RANGE (end_time);

CREATE TABLE holdfast__aside (
    queue text NOT NULL COLLATE pg_catalog."C",
    lane text NOT NULL COLLATE pg_catalog."C",
    major double precision NOT NULL,
    minor double precision NOT NULL,
    id bigint NOT NULL,
    job_type text NOT NULL COLLATE pg_catalog."C",
    throttle_factor double precision NOT NULL,
    closes_time timestamp with time zone,
    ready_time timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);

CREATE TABLE holdfast__attempt (
    id bigint NOT NULL,
    job bigint NOT NULL,
    attempt integer NOT NULL,
    start_time timestamp with time zone,
    end_time timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    state text NOT NULL,
    error text,
    traceback text,
    seconds double precision,
    worker text
);

ALTER TABLE holdfast__attempt ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__attempt_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__audit (
    id bigint NOT NULL,
    "time" timestamp with time zone NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    job bigint,
    attempt integer,
    queue text COLLATE pg_catalog."C",
    detail text
);

ALTER TABLE holdfast__audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__breaker (
    job_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    opened_time timestamp with time zone,
    probe_time timestamp with time zone,
    probe bigint,
    successes double precision DEFAULT 0 NOT NULL,
    retries double precision DEFAULT 0 NOT NULL,
    counted_time timestamp with time zone,
    CONSTRAINT holdfast__breaker_state_check CHECK ((state = ANY (ARRAY['closed'::text, 'open'::text, 'probing'::text])))
)
WITH (fillfactor='10', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

CREATE TABLE holdfast__bucket (
    queue text NOT NULL COLLATE pg_catalog."C",
    tokens double precision NOT NULL,
    update_time timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE holdfast__build (
    id bigint NOT NULL,
    project text NOT NULL COLLATE pg_catalog."C",
    commit_id text NOT NULL COLLATE pg_catalog."C",
    ref text NOT NULL,
    branch text COLLATE pg_catalog."C",
    tag text,
    pull_request integer,
    forge text NOT NULL COLLATE pg_catalog."C",
    trusted boolean NOT NULL,
    title text NOT NULL,
    author text NOT NULL,
    tells boolean NOT NULL,
    job bigint,
    begun boolean DEFAULT false NOT NULL,
    completed boolean DEFAULT false NOT NULL,
    found text,
    steps text DEFAULT '[]'::text NOT NULL,
    use_time timestamp with time zone NOT NULL,
    create_time timestamp with time zone NOT NULL,
    update_time timestamp with time zone NOT NULL,
    lines text DEFAULT '[]'::text NOT NULL,
    context text COLLATE pg_catalog."C",
    condition_names text
);

ALTER TABLE holdfast__build ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__build_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__build_ref (
    id bigint NOT NULL,
    build bigint NOT NULL,
    project text NOT NULL COLLATE pg_catalog."C",
    ref text NOT NULL COLLATE pg_catalog."C",
    branch text COLLATE pg_catalog."C",
    tag text,
    pull_request integer,
    ask_time timestamp with time zone NOT NULL
);

ALTER TABLE holdfast__build_ref ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__build_ref_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__dead (
    end_time timestamp with time zone NOT NULL,
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE holdfast__default_branch (
    project text NOT NULL COLLATE pg_catalog."C",
    branch text NOT NULL
);

CREATE TABLE holdfast__delivery (
    project text NOT NULL COLLATE pg_catalog."C",
    forge text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    build bigint,
    receive_time timestamp with time zone NOT NULL
);

CREATE TABLE holdfast__duty (
    id bigint NOT NULL,
    duty text NOT NULL,
    "on" boolean NOT NULL,
    label text,
    host text,
    version text,
    actor text NOT NULL,
    create_time timestamp with time zone NOT NULL,
    CONSTRAINT holdfast__duty_duty_check CHECK ((duty = ANY (ARRAY['run'::text, 'sweep'::text, 'schedule'::text, 'serve'::text])))
);

ALTER TABLE holdfast__duty ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__duty_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__ended (
    id bigint NOT NULL,
    end_time timestamp with time zone NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    ids bigint[] NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05');
ALTER TABLE ONLY holdfast__ended ALTER COLUMN ids SET STORAGE EXTERNAL;

ALTER TABLE holdfast__ended ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__ended_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__firing (
    schedule text NOT NULL COLLATE pg_catalog."C",
    count bigint NOT NULL,
    "time" timestamp with time zone NOT NULL,
    fire_time timestamp with time zone NOT NULL,
    job bigint NOT NULL,
    duplicate boolean NOT NULL,
    actor text NOT NULL
);

CREATE TABLE holdfast__held (
    workflow text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL,
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    job_type text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE holdfast__hold (
    level text NOT NULL,
    workflow text NOT NULL COLLATE pg_catalog."C",
    trigger text NOT NULL COLLATE pg_catalog."C",
    run bigint,
    actor text NOT NULL,
    hold_time timestamp with time zone NOT NULL,
    releasing bigint,
    CONSTRAINT holdfast__hold_level_check CHECK ((level = ANY (ARRAY['pick'::text, 'create'::text, 'submit'::text])))
);

CREATE TABLE holdfast__hook_body (
    project text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    build bigint,
    receive_time timestamp with time zone NOT NULL
);

CREATE TABLE holdfast__identity (
    single integer NOT NULL,
    token text NOT NULL,
    CONSTRAINT holdfast__identity_single_check CHECK ((single = 1))
);

CREATE SEQUENCE holdfast__job_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE holdfast__job (
    id bigint DEFAULT nextval('holdfast__job_id'::regclass) NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    job_type text NOT NULL COLLATE pg_catalog."C",
    job_key text COLLATE pg_catalog."C",
    create_time timestamp with time zone NOT NULL,
    retry_of bigint,
    run bigint,
    priority double precision NOT NULL,
    throttle_factor double precision NOT NULL,
    timeout double precision,
    retries integer,
    timeout_named boolean DEFAULT false NOT NULL,
    retries_named boolean DEFAULT false NOT NULL,
    time_windows text,
    expires_time timestamp with time zone,
    payload text NOT NULL,
    scheduled_run_time timestamp with time zone NOT NULL,
    update_time timestamp with time zone NOT NULL,
    start_time timestamp with time zone,
    end_time timestamp with time zone,
    state text DEFAULT 'initial'::text NOT NULL,
    situation text,
    outcome text,
    attempt integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    losses integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    deadline_time timestamp with time zone,
    answer text,
    checkpoint text,
    progress double precision,
    progress_text text,
    execution_time double precision,
    total_time double precision DEFAULT 0 NOT NULL,
    worker bigint,
    result text,
    error text DEFAULT 'NONE'::text NOT NULL,
    CONSTRAINT law CHECK (((throttle_factor >= (0)::double precision) AND ((outcome IS NULL) OR (end_time IS NOT NULL)) AND (concat_ws(' '::text, situation, (error = 'NONE'::text), state, (attempt > 0), outcome) = ANY ('{"t initial f","held t running t","waiting t running t","loose t running t","f error t","t final t success","f final t failed","f final t error","f final t aborted"}'::text[]))))
)
PARTITION BY LIST (queue);

CREATE TABLE holdfast__key (
    job_type text NOT NULL COLLATE pg_catalog."C",
    job_key text NOT NULL COLLATE pg_catalog."C",
    id bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='20000');

CREATE TABLE holdfast__lease (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    worker bigint,
    pump integer DEFAULT 0 NOT NULL,
    factor double precision,
    pool text COLLATE pg_catalog."C",
    deadline_time timestamp with time zone,
    job bigint,
    ids bigint[] NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', vacuum_truncate=off);
ALTER TABLE ONLY holdfast__lease ALTER COLUMN ids SET STORAGE EXTERNAL;

ALTER TABLE holdfast__lease ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__lease_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__leaving (
    run bigint NOT NULL,
    trigger text NOT NULL COLLATE pg_catalog."C",
    types text NOT NULL
);

CREATE TABLE holdfast__log (
    job bigint NOT NULL,
    id bigint NOT NULL,
    "time" timestamp with time zone NOT NULL,
    attempt integer NOT NULL,
    level text NOT NULL,
    text text NOT NULL,
    total bigint NOT NULL
);

CREATE TABLE holdfast__move (
    side text NOT NULL,
    stage text NOT NULL,
    mark text NOT NULL,
    other text NOT NULL,
    start_time timestamp with time zone NOT NULL,
    drain_time timestamp with time zone,
    seal_time timestamp with time zone,
    end_time timestamp with time zone,
    CONSTRAINT holdfast__move_side_check CHECK ((side = ANY (ARRAY['source'::text, 'target'::text]))),
    CONSTRAINT holdfast__move_stage_check CHECK ((stage = ANY (ARRAY['copying'::text, 'draining'::text, 'sealed'::text, 'moved'::text, 'arriving'::text, 'open'::text])))
);

CREATE TABLE holdfast__parked (
    job_type text NOT NULL COLLATE pg_catalog."C",
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    closes_time timestamp with time zone
);

CREATE TABLE holdfast__part (
    routine text NOT NULL COLLATE pg_catalog."C",
    part integer NOT NULL,
    job bigint,
    scale integer,
    turns bigint DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    next_time timestamp with time zone,
    last_job bigint,
    last_end_time timestamp with time zone,
    last_outcome text,
    error text,
    error_time timestamp with time zone,
    checkpoint text
);

CREATE TABLE holdfast__publication (
    run bigint NOT NULL,
    number integer NOT NULL,
    params text NOT NULL
);

CREATE TABLE holdfast__pull_request (
    project text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL,
    labels text NOT NULL,
    change_time timestamp with time zone
);

CREATE TABLE holdfast__queue (
    name text NOT NULL COLLATE pg_catalog."C",
    table_name text NOT NULL,
    claim_order text NOT NULL,
    declared_limit double precision NOT NULL,
    set_limit double precision,
    throttler text,
    paused boolean DEFAULT false NOT NULL,
    create_time timestamp with time zone NOT NULL,
    CONSTRAINT holdfast__queue_claim_order_check CHECK ((claim_order = ANY (ARRAY['priority'::text, 'schedule'::text])))
);

CREATE TABLE holdfast__ready (
    queue text NOT NULL COLLATE pg_catalog."C",
    major double precision NOT NULL,
    minor double precision NOT NULL,
    id bigint NOT NULL,
    job_type text NOT NULL COLLATE pg_catalog."C",
    throttle_factor double precision NOT NULL,
    closes_time timestamp with time zone,
    ready_time timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);

CREATE TABLE holdfast__request (
    owner text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    print text NOT NULL,
    job bigint,
    duplicate boolean DEFAULT false NOT NULL,
    create_time timestamp with time zone NOT NULL
);

CREATE TABLE holdfast__routine (
    name text NOT NULL COLLATE pg_catalog."C",
    definition text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    removed boolean DEFAULT false NOT NULL,
    create_time timestamp with time zone NOT NULL,
    update_time timestamp with time zone NOT NULL
);

CREATE TABLE holdfast__run (
    id bigint NOT NULL,
    workflow text NOT NULL COLLATE pg_catalog."C",
    trigger text NOT NULL COLLATE pg_catalog."C",
    state text DEFAULT 'UNDONE'::text NOT NULL,
    definition text NOT NULL,
    params text NOT NULL,
    step_params text NOT NULL,
    published text DEFAULT '{}'::text NOT NULL,
    publication integer DEFAULT 0 NOT NULL,
    ignore text DEFAULT '[]'::text NOT NULL,
    priority double precision NOT NULL,
    progress double precision DEFAULT 0 NOT NULL,
    unique_alive boolean NOT NULL,
    phase integer DEFAULT 0 NOT NULL,
    phase_undone integer DEFAULT 0 NOT NULL,
    phase_erred boolean DEFAULT false NOT NULL,
    undone integer DEFAULT 0 NOT NULL,
    started integer DEFAULT 0 NOT NULL,
    failed boolean DEFAULT false NOT NULL,
    erred boolean DEFAULT false NOT NULL,
    aborted boolean DEFAULT false NOT NULL,
    aborting text,
    create_time timestamp with time zone NOT NULL,
    update_time timestamp with time zone NOT NULL,
    end_time timestamp with time zone,
    CONSTRAINT holdfast__run_state_check CHECK ((state = ANY (ARRAY['UNDONE'::text, 'SUCCESS'::text, 'FAILED'::text, 'ERROR'::text, 'STUCK'::text])))
);

CREATE TABLE holdfast__run_archive (
    id bigint NOT NULL,
    workflow text NOT NULL COLLATE pg_catalog."C",
    trigger text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL,
    definition text NOT NULL,
    params text NOT NULL,
    step_params text NOT NULL,
    published text NOT NULL,
    publication integer NOT NULL,
    ignore text NOT NULL,
    priority double precision NOT NULL,
    progress double precision NOT NULL,
    unique_alive boolean NOT NULL,
    phase integer NOT NULL,
    phase_undone integer NOT NULL,
    phase_erred boolean NOT NULL,
    undone integer NOT NULL,
    started integer NOT NULL,
    failed boolean NOT NULL,
    erred boolean NOT NULL,
    aborted boolean NOT NULL,
    aborting text,
    create_time timestamp with time zone NOT NULL,
    update_time timestamp with time zone NOT NULL,
    end_time timestamp with time zone,
    archive_time timestamp with time zone NOT NULL
);

ALTER TABLE holdfast__run ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__run_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__schedule (
    name text NOT NULL COLLATE pg_catalog."C",
    declared_definition text,
    set_definition text,
    removed boolean DEFAULT false NOT NULL,
    next_time timestamp with time zone,
    wake_time timestamp with time zone,
    last_time timestamp with time zone,
    last_job bigint,
    count bigint DEFAULT 0 NOT NULL,
    problem text,
    create_time timestamp with time zone NOT NULL,
    update_time timestamp with time zone NOT NULL
);

CREATE TABLE holdfast__server (
    id bigint NOT NULL,
    address text NOT NULL,
    start_time timestamp with time zone NOT NULL,
    beat_time timestamp with time zone NOT NULL
);

ALTER TABLE holdfast__server ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__server_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__status (
    id bigint NOT NULL,
    build bigint NOT NULL,
    step text,
    state text NOT NULL,
    description text NOT NULL,
    create_time timestamp with time zone NOT NULL,
    branch text,
    tag text
);

ALTER TABLE holdfast__status ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__status_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__step (
    run bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    "position" integer NOT NULL,
    partition text NOT NULL,
    state text DEFAULT 'DORMANT'::text NOT NULL,
    created integer DEFAULT 0 NOT NULL,
    undone integer DEFAULT 0 NOT NULL,
    succeeded integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    errors integer DEFAULT 0 NOT NULL,
    all_created boolean DEFAULT false NOT NULL,
    items_job bigint,
    cursor text,
    start_time timestamp with time zone,
    end_time timestamp with time zone
);

CREATE TABLE holdfast__step_archive (
    run bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    "position" integer NOT NULL,
    partition text NOT NULL,
    state text NOT NULL,
    created integer NOT NULL,
    undone integer NOT NULL,
    succeeded integer NOT NULL,
    failed integer NOT NULL,
    errors integer NOT NULL,
    all_created boolean NOT NULL,
    items_job bigint,
    cursor text,
    start_time timestamp with time zone,
    end_time timestamp with time zone
);

CREATE TABLE holdfast__token (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    scope text NOT NULL,
    hash text NOT NULL COLLATE pg_catalog."C",
    create_time timestamp with time zone NOT NULL,
    expires_time timestamp with time zone,
    CONSTRAINT holdfast__token_kind_check CHECK ((kind = ANY (ARRAY['token'::text, 'login'::text, 'session'::text]))),
    CONSTRAINT holdfast__token_scope_check CHECK ((scope = ANY (ARRAY['produce'::text, 'read'::text, 'enqueue'::text, 'operate'::text, 'admin'::text])))
);

ALTER TABLE holdfast__token ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__token_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__trace (
    job bigint NOT NULL,
    context text NOT NULL
);

CREATE TABLE holdfast__trigger (
    workflow text NOT NULL COLLATE pg_catalog."C",
    trigger text NOT NULL COLLATE pg_catalog."C",
    run bigint NOT NULL
);

CREATE TABLE holdfast__type (
    job_type text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    default_timeout double precision,
    default_priority double precision NOT NULL,
    default_throttle_factor double precision NOT NULL,
    default_time_windows text NOT NULL,
    default_retries integer,
    timeout_named boolean DEFAULT false NOT NULL,
    retries_named boolean DEFAULT false NOT NULL,
    retry text,
    on_crash text NOT NULL,
    max_crashes integer,
    has_handler boolean NOT NULL,
    has_retry_handler boolean NOT NULL,
    has_response_handler boolean NOT NULL,
    schema text,
    labels text NOT NULL,
    prefers text DEFAULT '[]'::text NOT NULL,
    prefer_for double precision DEFAULT 5 NOT NULL,
    secrets text DEFAULT '[]'::text NOT NULL,
    update_time timestamp with time zone NOT NULL,
    CONSTRAINT holdfast__type_on_crash_check CHECK ((on_crash = ANY (ARRAY['rerun'::text, 'timeout'::text])))
);

CREATE TABLE holdfast__undecided (
    job_type text NOT NULL COLLATE pg_catalog."C",
    id bigint NOT NULL
);

CREATE TABLE holdfast__waiting (
    wake_time timestamp with time zone NOT NULL,
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    closes_time timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='20000');

CREATE TABLE holdfast__worker (
    id bigint NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    queues text NOT NULL,
    every_queue boolean DEFAULT false NOT NULL,
    types text NOT NULL,
    labels text NOT NULL,
    duties text NOT NULL,
    concurrency integer NOT NULL,
    beat bigint DEFAULT 0 NOT NULL,
    lock_path text,
    start_time timestamp with time zone NOT NULL,
    beat_time timestamp with time zone NOT NULL,
    stopping boolean DEFAULT false NOT NULL,
    gone_time timestamp with time zone,
    gone text,
    CONSTRAINT holdfast__worker_gone_check CHECK ((gone = ANY (ARRAY['left'::text, 'lost'::text])))
);

ALTER TABLE holdfast__worker ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast__worker_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE holdfast__workflow (
    name text NOT NULL COLLATE pg_catalog."C",
    definition text NOT NULL,
    update_time timestamp with time zone NOT NULL
);

CREATE TABLE holdfast_work (
    id bigint DEFAULT nextval('holdfast__job_id'::regclass) NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    job_type text NOT NULL COLLATE pg_catalog."C",
    job_key text COLLATE pg_catalog."C",
    create_time timestamp with time zone NOT NULL,
    retry_of bigint,
    run bigint,
    priority double precision NOT NULL,
    throttle_factor double precision NOT NULL,
    timeout double precision,
    retries integer,
    timeout_named boolean DEFAULT false NOT NULL,
    retries_named boolean DEFAULT false NOT NULL,
    time_windows text,
    expires_time timestamp with time zone,
    payload text NOT NULL,
    scheduled_run_time timestamp with time zone NOT NULL,
    update_time timestamp with time zone NOT NULL,
    start_time timestamp with time zone,
    end_time timestamp with time zone,
    state text DEFAULT 'initial'::text NOT NULL,
    situation text,
    outcome text,
    attempt integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    losses integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    deadline_time timestamp with time zone,
    answer text,
    checkpoint text,
    progress double precision,
    progress_text text,
    execution_time double precision,
    total_time double precision DEFAULT 0 NOT NULL,
    worker bigint,
    result text,
    error text DEFAULT 'NONE'::text NOT NULL,
    CONSTRAINT law CHECK (((throttle_factor >= (0)::double precision) AND ((outcome IS NULL) OR (end_time IS NOT NULL)) AND (concat_ws(' '::text, situation, (error = 'NONE'::text), state, (attempt > 0), outcome) = ANY ('{"t initial f","held t running t","waiting t running t","loose t running t","f error t","t final t success","f final t failed","f final t error","f final t aborted"}'::text[]))))
)
WITH (fillfactor='40', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_insert_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY holdfast__job ATTACH PARTITION holdfast_work FOR VALUES IN ('work');

ALTER TABLE ONLY __holdfast_instance
    ADD CONSTRAINT __holdfast_instance_pkey PRIMARY KEY (name);

ALTER TABLE ONLY __holdfast_table
    ADD CONSTRAINT __holdfast_table_pkey PRIMARY KEY (table_name);

ALTER TABLE ONLY holdfast__abort
    ADD CONSTRAINT holdfast__abort_pkey PRIMARY KEY (job);

ALTER TABLE ONLY holdfast__access
    ADD CONSTRAINT holdfast__access_pkey PRIMARY KEY (token);

ALTER TABLE ONLY holdfast__aside
    ADD CONSTRAINT holdfast__aside_pkey PRIMARY KEY (queue, lane, major, minor, id);

ALTER TABLE ONLY holdfast__attempt
    ADD CONSTRAINT holdfast__attempt_id_key UNIQUE (id);

ALTER TABLE ONLY holdfast__attempt
    ADD CONSTRAINT holdfast__attempt_pkey PRIMARY KEY (job, attempt);

ALTER TABLE ONLY holdfast__audit
    ADD CONSTRAINT holdfast__audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__breaker
    ADD CONSTRAINT holdfast__breaker_pkey PRIMARY KEY (job_type);

ALTER TABLE ONLY holdfast__bucket
    ADD CONSTRAINT holdfast__bucket_pkey PRIMARY KEY (queue);

ALTER TABLE ONLY holdfast__build
    ADD CONSTRAINT holdfast__build_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__build_ref
    ADD CONSTRAINT holdfast__build_ref_build_ref_key UNIQUE (build, ref);

ALTER TABLE ONLY holdfast__build_ref
    ADD CONSTRAINT holdfast__build_ref_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__dead
    ADD CONSTRAINT holdfast__dead_pkey PRIMARY KEY (end_time, id);

ALTER TABLE ONLY holdfast__default_branch
    ADD CONSTRAINT holdfast__default_branch_pkey PRIMARY KEY (project);

ALTER TABLE ONLY holdfast__delivery
    ADD CONSTRAINT holdfast__delivery_pkey PRIMARY KEY (project, forge, id);

ALTER TABLE ONLY holdfast__duty
    ADD CONSTRAINT holdfast__duty_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__ended
    ADD CONSTRAINT holdfast__ended_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__firing
    ADD CONSTRAINT holdfast__firing_pkey PRIMARY KEY (schedule, count);

ALTER TABLE ONLY holdfast__held
    ADD CONSTRAINT holdfast__held_pkey PRIMARY KEY (workflow, run, id);

ALTER TABLE ONLY holdfast__hold
    ADD CONSTRAINT holdfast__hold_pkey PRIMARY KEY (level, workflow, trigger);

ALTER TABLE ONLY holdfast__hook_body
    ADD CONSTRAINT holdfast__hook_body_pkey PRIMARY KEY (project, digest);

ALTER TABLE ONLY holdfast__identity
    ADD CONSTRAINT holdfast__identity_pkey PRIMARY KEY (single);

ALTER TABLE ONLY holdfast__key
    ADD CONSTRAINT holdfast__key_pkey PRIMARY KEY (job_type, job_key);

ALTER TABLE ONLY holdfast__lease
    ADD CONSTRAINT holdfast__lease_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__leaving
    ADD CONSTRAINT holdfast__leaving_pkey PRIMARY KEY (run);

ALTER TABLE ONLY holdfast__log
    ADD CONSTRAINT holdfast__log_pkey PRIMARY KEY (job, id);

ALTER TABLE ONLY holdfast__move
    ADD CONSTRAINT holdfast__move_pkey PRIMARY KEY (side);

ALTER TABLE ONLY holdfast__parked
    ADD CONSTRAINT holdfast__parked_pkey PRIMARY KEY (job_type, id);

ALTER TABLE ONLY holdfast__part
    ADD CONSTRAINT holdfast__part_pkey PRIMARY KEY (routine, part);

ALTER TABLE ONLY holdfast__publication
    ADD CONSTRAINT holdfast__publication_pkey PRIMARY KEY (run, number);

ALTER TABLE ONLY holdfast__pull_request
    ADD CONSTRAINT holdfast__pull_request_pkey PRIMARY KEY (project, number);

ALTER TABLE ONLY holdfast__queue
    ADD CONSTRAINT holdfast__queue_pkey PRIMARY KEY (name);

ALTER TABLE ONLY holdfast__ready
    ADD CONSTRAINT holdfast__ready_pkey PRIMARY KEY (queue, major, minor, id);

ALTER TABLE ONLY holdfast__request
    ADD CONSTRAINT holdfast__request_pkey PRIMARY KEY (owner, key);

ALTER TABLE ONLY holdfast__routine
    ADD CONSTRAINT holdfast__routine_pkey PRIMARY KEY (name);

ALTER TABLE ONLY holdfast__run_archive
    ADD CONSTRAINT holdfast__run_archive_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__run_archive
    ADD CONSTRAINT holdfast__run_archive_workflow_trigger_key UNIQUE (workflow, trigger);

ALTER TABLE ONLY holdfast__run
    ADD CONSTRAINT holdfast__run_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__run
    ADD CONSTRAINT holdfast__run_workflow_trigger_key UNIQUE (workflow, trigger);

ALTER TABLE ONLY holdfast__schedule
    ADD CONSTRAINT holdfast__schedule_pkey PRIMARY KEY (name);

ALTER TABLE ONLY holdfast__server
    ADD CONSTRAINT holdfast__server_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__status
    ADD CONSTRAINT holdfast__status_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__step_archive
    ADD CONSTRAINT holdfast__step_archive_pkey PRIMARY KEY (run, name);

ALTER TABLE ONLY holdfast__step
    ADD CONSTRAINT holdfast__step_pkey PRIMARY KEY (run, name);

ALTER TABLE ONLY holdfast__token
    ADD CONSTRAINT holdfast__token_hash_key UNIQUE (hash);

ALTER TABLE ONLY holdfast__token
    ADD CONSTRAINT holdfast__token_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__trace
    ADD CONSTRAINT holdfast__trace_pkey PRIMARY KEY (job);

ALTER TABLE ONLY holdfast__trigger
    ADD CONSTRAINT holdfast__trigger_pkey PRIMARY KEY (workflow, trigger);

ALTER TABLE ONLY holdfast__type
    ADD CONSTRAINT holdfast__type_pkey PRIMARY KEY (job_type);

ALTER TABLE ONLY holdfast__undecided
    ADD CONSTRAINT holdfast__undecided_pkey PRIMARY KEY (job_type, id);

ALTER TABLE ONLY holdfast__waiting
    ADD CONSTRAINT holdfast__waiting_pkey PRIMARY KEY (wake_time, id);

ALTER TABLE ONLY holdfast__worker
    ADD CONSTRAINT holdfast__worker_pkey PRIMARY KEY (id);

ALTER TABLE ONLY holdfast__workflow
    ADD CONSTRAINT holdfast__workflow_pkey PRIMARY KEY (name);

ALTER TABLE ONLY holdfast_work
    ADD CONSTRAINT holdfast_work_pkey PRIMARY KEY (id);

CREATE INDEX holdfast__archive_id_idx ON ONLY holdfast__archive USING btree (id);

CREATE INDEX holdfast__archive_job_type_id_idx ON ONLY holdfast__archive USING btree (job_type, id);

CREATE INDEX holdfast__archive_run_id_idx ON ONLY holdfast__archive USING btree (run, id) WHERE (run IS NOT NULL);

CREATE INDEX holdfast__aside_closes_time_idx ON holdfast__aside USING btree (closes_time) WHERE (closes_time IS NOT NULL);

CREATE INDEX holdfast__aside_id_idx ON holdfast__aside USING btree (id);

CREATE INDEX holdfast__audit_job_idx ON holdfast__audit USING btree (job) WHERE (job IS NOT NULL);

CREATE INDEX holdfast__build_id_idx ON holdfast__build USING btree (id) WHERE ((NOT completed) OR (found IS NOT NULL));

CREATE INDEX holdfast__build_job_idx ON holdfast__build USING btree (job);

CREATE INDEX holdfast__build_project_branch_id_idx ON holdfast__build USING btree (project, branch, id);

CREATE UNIQUE INDEX holdfast__build_project_commit_id_context_idx ON holdfast__build USING btree (project, commit_id, context);

CREATE INDEX holdfast__build_ref_project_branch_ask_time_idx ON holdfast__build_ref USING btree (project, branch, ask_time);

CREATE INDEX holdfast__build_use_time_idx ON holdfast__build USING btree (use_time) WHERE completed;

CREATE INDEX holdfast__delivery_receive_time_idx ON holdfast__delivery USING btree (receive_time);

CREATE INDEX holdfast__ended_end_time_idx ON holdfast__ended USING btree (end_time);

CREATE INDEX holdfast__firing_fire_time_idx ON holdfast__firing USING btree (fire_time);

CREATE INDEX holdfast__firing_job_idx ON holdfast__firing USING btree (job);

CREATE UNIQUE INDEX holdfast__firing_schedule_time_idx ON holdfast__firing USING btree (schedule, "time") WHERE (actor = 'schedule'::text);

CREATE INDEX holdfast__held_id_idx ON holdfast__held USING btree (id);

CREATE INDEX holdfast__hook_body_receive_time_idx ON holdfast__hook_body USING btree (receive_time);

CREATE INDEX holdfast__job_job_type_job_key_id_idx ON ONLY holdfast__job USING btree (job_type, job_key, id) WHERE (job_key IS NOT NULL);

CREATE INDEX holdfast__job_run_job_type_id_idx ON ONLY holdfast__job USING btree (run, job_type, id) WHERE (run IS NOT NULL);

CREATE INDEX holdfast__lease_job_idx ON holdfast__lease USING btree (job) WHERE (job IS NOT NULL);

CREATE INDEX holdfast__parked_closes_time_idx ON holdfast__parked USING btree (closes_time) WHERE (closes_time IS NOT NULL);

CREATE INDEX holdfast__ready_closes_time_idx ON holdfast__ready USING btree (closes_time) WHERE (closes_time IS NOT NULL);

CREATE INDEX holdfast__ready_queue_major_minor_id_idx ON holdfast__ready USING btree (queue, major, minor, id) WHERE (throttle_factor = (0)::double precision);

CREATE INDEX holdfast__request_create_time_idx ON holdfast__request USING btree (create_time);

CREATE INDEX holdfast__run_archive_end_time_idx ON holdfast__run_archive USING btree (end_time);

CREATE INDEX holdfast__run_end_time_idx ON holdfast__run USING btree (end_time) WHERE (state = 'SUCCESS'::text);

CREATE INDEX holdfast__run_id_idx ON holdfast__run USING btree (id) WHERE (aborting IS NOT NULL);

CREATE INDEX holdfast__run_state_id_idx ON holdfast__run USING btree (state, id) WHERE (state <> 'SUCCESS'::text);

CREATE UNIQUE INDEX holdfast__run_workflow_idx ON holdfast__run USING btree (workflow) WHERE (unique_alive AND (state = ANY (ARRAY['UNDONE'::text, 'STUCK'::text])));

CREATE INDEX holdfast__schedule_wake_time_idx ON holdfast__schedule USING btree (wake_time) WHERE (wake_time IS NOT NULL);

CREATE INDEX holdfast__status_build_id_idx ON holdfast__status USING btree (build, id);

CREATE UNIQUE INDEX holdfast__token_name_idx ON holdfast__token USING btree (name) WHERE (kind = 'token'::text);

CREATE INDEX holdfast__worker_id_idx ON holdfast__worker USING btree (id) WHERE (gone IS NULL);

CREATE INDEX holdfast_work_job_type_job_key_id_idx ON holdfast_work USING btree (job_type, job_key, id) WHERE (job_key IS NOT NULL);

CREATE INDEX holdfast_work_run_job_type_id_idx ON holdfast_work USING btree (run, job_type, id) WHERE (run IS NOT NULL);

ALTER INDEX holdfast__job_job_type_job_key_id_idx ATTACH PARTITION holdfast_work_job_type_job_key_id_idx;

ALTER INDEX holdfast__job_run_job_type_id_idx ATTACH PARTITION holdfast_work_run_job_type_id_idx;

CREATE TRIGGER key_free AFTER UPDATE OF outcome ON holdfast__job FOR EACH ROW WHEN (((new.job_key IS NOT NULL) AND (new.state = 'final'::text) AND (old.state <> 'final'::text) AND (current_setting('holdfast.keys'::text, true) IS DISTINCT FROM 'kept'::text))) EXECUTE FUNCTION holdfast__key_free();

CREATE TRIGGER law_archive BEFORE UPDATE ON holdfast__archive FOR EACH ROW EXECUTE FUNCTION holdfast__archive_refuse();

CREATE TRIGGER law_delete AFTER DELETE ON holdfast__job FOR EACH ROW WHEN ((old.state <> 'final'::text)) EXECUTE FUNCTION holdfast__job_refuse();

CREATE TRIGGER law_identity AFTER UPDATE OF id, queue, create_time, job_type, job_key ON holdfast__job FOR EACH ROW WHEN ((((((new.id IS DISTINCT FROM old.id) OR (new.queue IS DISTINCT FROM old.queue)) OR (new.create_time IS DISTINCT FROM old.create_time)) OR (new.job_type IS DISTINCT FROM old.job_type)) OR (new.job_key IS DISTINCT FROM old.job_key))) EXECUTE FUNCTION holdfast__job_refuse();

CREATE TRIGGER law_insert AFTER INSERT ON holdfast__job FOR EACH ROW WHEN ((((new.payload)::json IS NULL) OR (new.state <> ALL (ARRAY['initial'::text, 'running'::text])) OR (new.attempt > 1) OR (((new.state = 'running'::text) OR (new.job_key IS NOT NULL)) AND (current_setting('holdfast.keys'::text, true) IS DISTINCT FROM 'kept'::text)))) EXECUTE FUNCTION holdfast__job_take();

CREATE TRIGGER law_payload AFTER UPDATE OF payload ON holdfast__job FOR EACH ROW WHEN (
        CASE
            WHEN (new.payload <> old.payload) THEN ((new.payload)::json IS NULL)
            ELSE NULL::boolean
        END) EXECUTE FUNCTION holdfast__job_refuse();

CREATE TRIGGER law_truncate BEFORE TRUNCATE ON holdfast_work FOR EACH STATEMENT EXECUTE FUNCTION holdfast__job_refuse();

CREATE TRIGGER law_update AFTER UPDATE ON holdfast__job FOR EACH ROW WHEN ((concat_ws(' '::text, old.state, old.situation, (new.attempt - old.attempt), (new.error = old.error), new.state, new.situation, new.outcome) <> ALL ('{"initial 0 t initial","initial 1 t running held","error 1 f running held","running loose 1 t running held","running held 0 t running held","running held 0 t running waiting","running held 0 t running loose","running waiting 0 t running waiting","running waiting 0 t running loose","running loose 0 t running loose","running held 0 f error","running waiting 0 f error","running loose 0 f error","error 0 t error","running held 0 t final success","running waiting 0 t final success","running loose 0 t final success","error 0 t final failed","error 0 t final error","error 0 t final aborted","error 0 f final failed","error 0 f final error","error 0 f final aborted"}'::text[]))) EXECUTE FUNCTION holdfast__job_refuse();

ALTER TABLE ONLY holdfast__access
    ADD CONSTRAINT holdfast__access_token_fkey FOREIGN KEY (token) REFERENCES holdfast__token(id) ON DELETE CASCADE;

ALTER TABLE ONLY holdfast__bucket
    ADD CONSTRAINT holdfast__bucket_queue_fkey FOREIGN KEY (queue) REFERENCES holdfast__queue(name);

ALTER TABLE ONLY holdfast__build_ref
    ADD CONSTRAINT holdfast__build_ref_build_fkey FOREIGN KEY (build) REFERENCES holdfast__build(id) ON DELETE CASCADE;

ALTER TABLE ONLY holdfast__firing
    ADD CONSTRAINT holdfast__firing_schedule_fkey FOREIGN KEY (schedule) REFERENCES holdfast__schedule(name) ON DELETE CASCADE;

ALTER TABLE ONLY holdfast__hold
    ADD CONSTRAINT holdfast__hold_run_fkey FOREIGN KEY (run) REFERENCES holdfast__run(id) ON DELETE CASCADE;

ALTER TABLE ONLY holdfast__part
    ADD CONSTRAINT holdfast__part_routine_fkey FOREIGN KEY (routine) REFERENCES holdfast__routine(name);

ALTER TABLE ONLY holdfast__publication
    ADD CONSTRAINT holdfast__publication_run_fkey FOREIGN KEY (run) REFERENCES holdfast__run(id) ON DELETE CASCADE;

ALTER TABLE ONLY holdfast__status
    ADD CONSTRAINT holdfast__status_build_fkey FOREIGN KEY (build) REFERENCES holdfast__build(id) ON DELETE CASCADE;

ALTER TABLE ONLY holdfast__step_archive
    ADD CONSTRAINT holdfast__step_archive_run_fkey FOREIGN KEY (run) REFERENCES holdfast__run_archive(id) ON DELETE CASCADE;

ALTER TABLE ONLY holdfast__step
    ADD CONSTRAINT holdfast__step_run_fkey FOREIGN KEY (run) REFERENCES holdfast__run(id) ON DELETE CASCADE;

ALTER TABLE ONLY holdfast__type
    ADD CONSTRAINT holdfast__type_queue_fkey FOREIGN KEY (queue) REFERENCES holdfast__queue(name);
