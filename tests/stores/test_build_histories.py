"""Random histories of requests for one commit, beside a model: which build answers each of them (B4)."""

from random import Random
from typing import Any

import pytest
from msgspec import Struct, field

from holdfast.builds.context import READABLE
from holdfast.stores.contract import Store
from tests.by_hand import WorkerByHand
from tests.stores.test_builds import CONTEXTS, ONE, ask, begin, builder, store

__all__ = ["builder", "store"]
LENGTH = 120  # events of a history
OUTCOMES = ("success", "failed", "error")


class Expected(Struct):
    """What the model knows of one build."""

    id: int
    context: str
    job: int
    outcome: str | None = None
    read: frozenset[str] = frozenset()


class Model(Struct):
    """The builds of a commit, by context."""

    builds: dict[str, Expected] = field(default_factory=dict)

    def answer(self, context: str, rebuild: bool) -> tuple[str, int | None]:
        """How a request is answered, and by which build; None: by one that is made for it."""
        own = self.builds.get(context)
        if own is not None:
            if own.outcome is None:
                return "joined", own.id
            return ("again" if rebuild or own.outcome == "error" else "reported"), own.id
        same = [] if rebuild else [build.id for build in self.builds.values() if self.is_same(build, context)]
        return ("reported", max(same)) if same else ("new", None)

    def is_same(self, build: Expected, context: str) -> bool:
        built, wanted = (self.values(name) for name in (build.context, context))
        trust = built.pop("trusted") == wanted.pop("trusted")
        done = build.outcome in ("success", "failed")
        return trust and done and not any(name in build.read and built[name] != wanted[name] for name in READABLE)

    def values(self, context: str) -> dict[str, Any]:
        asked = CONTEXTS[context]
        event = "pull_request" if "pull_request" in asked else "tag" if "tag" in asked else "push"
        values = {"event": event, "branch": asked["branch"], "tag": asked.get("tag")}
        return values | {"trusted": asked.get("trusted", True)}


@pytest.mark.claim("B4")
@pytest.mark.parametrize("seed", range(4))
def test_each_request_is_answered_as_the_model_says(store: Store, builder: WorkerByHand, seed: int) -> None:
    random, model, running = Random(seed), Model(), dict[int, Any]()
    for _ in range(LENGTH):
        event = random.choice(["ask", "ask", "ask", "rebuild", "begin", "end", "end", "retry"])
        waiting = [build for build in model.builds.values() if build.outcome is None and build.job not in running]
        if event in ("ask", "rebuild"):
            name = random.choice(list(CONTEXTS))
            expected = model.answer(name, event == "rebuild")
            received = ask(store, rebuild=event == "rebuild", **CONTEXTS[name])
            assert received.how == expected[0]
            assert expected[1] in (None, received.build.id)
            if received.how in ("new", "again"):
                model.builds[name] = Expected(received.build.id, name, received.build.job_id)
        elif event == "begin" and waiting and len(running) < 2:  # `throttle_limit` of the queue
            call = begin(store, builder)
            running[call.id] = call
        elif event == "end" and running:
            call = running.pop(random.choice(list(running)))
            build = next(each for each in model.builds.values() if each.job == call.id)
            build.outcome, build.read = random.choice(OUTCOMES), frozenset(random.sample(READABLE, random.randrange(3)))
            names = sorted(build.read)
            assert store.complete_build(call.id, call.attempt, None, [], build.outcome, names)
            if build.outcome == "success":
                builder.succeed(call)
            else:
                builder.fail(call, "failed" if build.outcome == "failed" else "exception")
        elif event == "retry" and (ended := [each for each in model.builds.values() if each.outcome is not None]):
            build = random.choice(ended)
            build.job, build.outcome = store.retry_build(build.id, "somebody").build.job_id, None
    found = {
        build.id: (build.job_id, build.outcome)
        for build in (store.build(each.id, 10) for each in model.builds.values())
    }
    assert found == {each.id: (each.job, each.outcome) for each in model.builds.values()}
    keys = [store.get(each.job).job_key for each in model.builds.values() if each.outcome is None]
    assert len(keys) == len(set(keys))
    assert all(key is not None and key.startswith(f"demo:{ONE}") for key in keys)
