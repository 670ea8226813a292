"""The document describes what the views make: the same names."""

import pytest
from msgspec import Struct

from holdfast import views
from holdfast.web import shapes

PAIRS = {
    shapes.JobShape: views.JOB,
    shapes.MoveShape: views.MOVE,
    shapes.AttemptShape: views.ATTEMPT,
    shapes.LogLineShape: views.LOG_LINE,
    shapes.ExplanationShape: views.EXPLANATION,
    shapes.QueueShape: (*views.QUEUE, "throttler", "jobs", "load"),
    shapes.QueueLoadShape: views.LOAD,
    shapes.TypeShape: (*views.TYPE, "schema", "retry"),
    shapes.BreakerShape: views.BREAKER,
    shapes.StepShape: (*views.STEP, *views.STEP_TIMES),
    shapes.HoldShape: views.HOLD,
    shapes.RunShape: (*views.RUN, "steps"),
    shapes.ScheduleShape: (*views.SCHEDULE, *views.SCHEDULE_STORED),
    shapes.FiringShape: views.FIRING,
    shapes.WorkerShape: (*views.WORKER, "jobs"),
    shapes.BuildShape: (*views.BUILD, "refs", "steps"),
    shapes.BuildPageShape: (*views.BUILD, "refs", "steps", "step_details", "outputs"),
    shapes.BuildRefShape: views.BUILD_REF,
    shapes.BuildStepShape: views.BUILD_STEP,
    shapes.OutputShape: views.OUTPUT,
}


@pytest.mark.parametrize("shape", PAIRS, ids=lambda shape: shape.__name__)
def test_a_shape_has_the_names_of_its_view(shape: type[Struct]) -> None:
    assert shape.__struct_fields__ == PAIRS[shape]
