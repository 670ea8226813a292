"""A task as the function of its step sees it. What it publishes takes effect with its success, in the same transaction."""

from collections.abc import Collection
from typing import Any

from msgspec import Struct, field

from holdfast.errors import Invalid, backticked, quoted
from holdfast.workflows import partition as partitions
from holdfast.workflows.definition import nearest
from holdfast.workflows.partition import Pack, Shard


class TaskContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything there is to know about a task when it is begun."""

    run: int
    workflow: str
    trigger: str
    step: str
    name: str = ""
    index: int = 0
    shard: Shard | None = None
    pack: Pack | None = None
    item: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    dependencies: dict[str, str] = field(default_factory=dict)
    makes_items: bool = False  # it is the one that makes the step's tasks
    produced: int = 0
    room: int = 0
    most_undone: int = 0
    enough: int = 0  # room for which a maker waits a moment; 0: it does not wait, for nobody runs tasks beside it
    cursor: Any = None


class Task:
    """The only argument of a step's function."""

    def __init__(self, context: TaskContext, steps: Collection[str] | None = None) -> None:
        self._context = context
        self._steps = steps  # that the code knows; None: nobody asked it
        self._effects: dict[str, dict[str, Any]] | None = None  # of most tasks: there are millions

    @property
    def run_id(self) -> int:
        return self._context.run

    @property
    def workflow(self) -> str:
        return self._context.workflow

    @property
    def trigger(self) -> str:
        return self._context.trigger

    @property
    def step(self) -> str:
        return self._context.step

    @property
    def name(self) -> str:
        """`calc`, `calc.shard-3`, `calc.pack-0` or `calc.item-41`."""
        return self._context.name

    @property
    def index(self) -> int:
        """Which of the step's tasks it is, from 0."""
        return self._context.index

    @property
    def shard(self) -> Shard:
        """Its `index` among `total`; only of a step with shards."""
        if self._context.shard is None:
            raise Invalid(f"Task `{self.name}` is no shard: its step was not declared with shards.")
        return self._context.shard

    @property
    def pack(self) -> Pack:
        """Its range, from `start` to `end`, both inclusive; only of a step with packs."""
        if self._context.pack is None:
            raise Invalid(f"Task `{self.name}` is no pack: its step was not declared with packs.")
        return self._context.pack

    @property
    def item(self) -> Any:
        """What the step's items gave for it."""
        return self._context.item

    @property
    def params(self) -> dict[str, Any]:
        """Of definition, request, step and what was published before it was made; later ones win (F13)."""
        return self._context.params

    @property
    def dependencies(self) -> dict[str, str]:
        """The states of the steps it comes after, and of all steps of earlier phases."""
        return self._context.dependencies

    def publish(self, **params: Any) -> None:
        """Params for tasks that are made after this one has succeeded (F13)."""
        if params:
            self._bring_about("publish", params)

    def repartition(self, step: str, *, shards: int | None = None, packs: Any = None) -> None:
        """Cut a step otherwise than it was declared, if it still sleeps when this task has succeeded (F13)."""
        if shards is None and packs is None:
            raise Invalid(f"repartition({quoted(step)}): give shards= or packs=.")
        if self._steps is not None and step not in self._steps:
            raise Invalid(
                f"Workflow `{self.workflow}` has no step {backticked(step)}.{nearest(step, list(self._steps))}"
            )
        if step == self.step:
            raise Invalid(f"Step `{step}` has begun: only one that still sleeps can be cut otherwise.")
        self._bring_about("repartition", {step: partitions.of(shards, packs)})

    def _bring_about(self, effect: str, values: dict[str, Any]) -> None:
        self._effects = self._effects or {}
        self._effects.setdefault(effect, {}).update(values)

    @property
    def effects(self) -> dict[str, Any] | None:
        """What its success brings about; None if nothing."""
        return self._effects

    def __repr__(self) -> str:
        return f"Task({self.workflow}/{self.trigger}: {self.name})"


class Published(Struct, frozen=True):
    """What a step's function returned, and what its task brings about."""

    value: Any
    effects: dict[str, Any]
