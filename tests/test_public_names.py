"""The public names are those of the contract, as far as they exist."""

import inspect

import holdfast

NAMES = {
    *("App", "Job", "JobError", "Move", "Attempt", "Explanation", "LogLine", "Progress", "current_job"),
    *("Failed", "Retry", "Snooze", "WAIT", "GIVE_UP"),
    *("NoDelay", "Fixed", "Linear", "Exponential", "Adaptive"),
    *("share", "per_key", "rate", "ADMIT", "REFUSE", "Reschedule", "ThrottledJob"),
    *("HoldfastError", "Invalid", "NotFound", "Conflict", "DuplicateJob", "IllegalMove", "Unavailable", "JobFailed"),
}
APP = {
    *(
        "queue",
        "enqueue",
        "enqueue_many",
        "transaction",
        "get",
        "find",
        "abort",
        "retry",
        "pause",
        "resume",
        "limit",
        "explain",
        "log",
    ),
    *("run_until_idle", "worker", "run_worker", "close"),
}
JOB = {
    *(
        "id",
        "job_type",
        "job_key",
        "queue",
        "state",
        "status",
        "outcome",
        "payload",
        "result",
        "error",
        "attempt",
        "failures",
    ),
    *(
        "priority",
        "timeout",
        "throttle_factor",
        "time_windows",
        "scheduled_run_time",
        "create_time",
        "update_time",
        "start_time",
    ),
    *(
        "end_time",
        "execution_time",
        "progress",
        "duplicate",
        "refresh",
        "wait",
        "unwrap",
        "aunwrap",
        "history",
        "explain",
        "attempts",
        "log",
    ),
}


def test_the_package_exports_these_names_and_no_others() -> None:
    assert set(holdfast.__all__) == NAMES
    assert len(holdfast.__all__) == len(NAMES)
    public = {
        name for name, value in vars(holdfast).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == NAMES


def test_apps_and_jobs_have_the_pinned_verbs_and_fields() -> None:
    assert {name for name in APP if not hasattr(holdfast.App, name)} == set()
    assert {name for name in JOB if not hasattr(holdfast.Job, name)} == set()
    assert set(holdfast.Move.__struct_fields__) == {"time", "from_state", "to_state", "attempt", "cause", "actor"}
    assert set(holdfast.Attempt.__struct_fields__) == {
        "attempt",
        "start_time",
        "end_time",
        "outcome",
        "error",
        "traceback",
        "worker",
    }


def test_every_error_has_its_code_and_they_are_a_tree() -> None:
    codes = {
        holdfast.Invalid: ("invalid", 2, 400),
        holdfast.NotFound: ("not_found", 3, 404),
        holdfast.Conflict: ("conflict", 4, 409),
        holdfast.DuplicateJob: ("duplicate_job", 4, 409),
        holdfast.IllegalMove: ("illegal_move", 4, 409),
        holdfast.Unavailable: ("unavailable", 5, 503),
        holdfast.JobFailed: ("job_failed", 1, 500),
    }
    for error, told in codes.items():
        assert (error.code, error.exit_code, error.http_status) == told
        assert issubclass(error, holdfast.HoldfastError)
    assert issubclass(holdfast.DuplicateJob, holdfast.Conflict)
    assert issubclass(holdfast.IllegalMove, holdfast.Conflict)
