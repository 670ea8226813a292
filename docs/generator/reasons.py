"""docs/reference/reasons.md: what `explain` may answer, from the table in `holdfast.jobs.reasons`."""

import re

from docs.generator import text
from holdfast.jobs.facts import MOST_BEFORE
from holdfast.jobs.forecast import ENOUGH_ENDS, ENOUGH_SUCCESSES
from holdfast.jobs.reasons import REASONS, Explanation, Reason
from holdfast.workflows.reasons import STEP_REASONS, StepReason

BLANKS = re.compile(r"\{\w+\}(\s*\{\w+\})*\.?")
DETAILS = {
    "state, situation": "As on the job.",
    "also": "The other reasons that hold: a list of `reason`, `text`, `until`.",
    "usual_seconds, usual_seconds_most": "The median of the type's recent successes, and what nine of ten of them do not exceed; null "
    f"below {ENOUGH_SUCCESSES} of them.",
    "usual_of": "How many successes that was taken from.",
    "forecast_start_time, forecast_end_time": "When it should start and end; null where nobody can know (E2).",
    "answer_kept": "An answer came before the job waits for it (R3).",
}


def page() -> str:
    return "\n".join(
        [
            "# Reasons\n",
            text.MADE,
            "`app.explain(job_id)`, `job.explain()` and `holdfast jobs explain ID` answer with one of these: the reason that has to go "
            "away first. The guide is [Why is my job not running?](../guides/why-is-my-job-not-running.md)\n",
            text.table(("reason", "Job 17 (send) …", "means", "what to do"), rows()),
            "## The answer\n",
            text.table(("field", ""), fields()),
            "In `details` stand the values behind the sentence, under the names of the job's own fields where there are such, and of "
            "every job that is not final:\n",
            text.table(("detail", ""), [(names(key), text.prose(means)) for key, means in DETAILS.items()]),
            "## The forecast\n",
            f"A job in line starts after as many ends as it needs, at the speed of its queue: of the last {ENOUGH_ENDS} ends, or of all "
            f"since the job is due. Behind more than {MOST_BEFORE} jobs, and where anything but time and other jobs is in the way, there "
            "is none. It ends after the usual time of its type.\n",
            "## Steps\n",
            '`run.steps["calc"].explain()` and `holdfast workflows explain WORKFLOW TRIGGER [STEP]` answer for a step of a run with one '
            "of these. The other reasons that hold stand in `details`, under `also`.\n",
            text.table(("reason", "Step calc …", "means", "what to do"), steps()),
        ]
    )


def rows() -> list[tuple[str, str, str, str]]:
    text.exactly({str(reason): "" for reason in REASONS}, map(str, Reason), "Reason")
    return [
        (text.code(reason), BLANKS.sub("…", told.sentence), told.meaning, told.cure) for reason, told in REASONS.items()
    ]


def steps() -> list[tuple[str, str, str, str]]:
    text.exactly({str(reason): "" for reason in STEP_REASONS}, map(str, StepReason), "StepReason")
    return [
        (text.code(reason), BLANKS.sub("…", told.sentence), told.meaning, told.cure)
        for reason, told in STEP_REASONS.items()
    ]


def fields() -> list[tuple[str, str]]:
    means = text.comments(Explanation) | {"reason": "One of the reasons above."}
    return [(text.code(name), means[name]) for name in Explanation.__struct_fields__]


def names(key: str) -> str:
    return ", ".join(map(text.code, key.split(", ")))
