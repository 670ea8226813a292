"""docs/reference/fleet-file.md: what may stand in a description of a fleet, from the tables that read it."""

from collections.abc import Mapping

from docs.generator import text
from holdfast.simulation.description import QUEUE, SIMULATION, TYPE, WORKER, Key


def page() -> str:
    return "\n".join(
        [
            "# The description of a fleet\n",
            text.MADE,
            "A TOML file that `holdfast simulate` plays. The guide is [Plan capacity](../guides/plan-capacity.md).\n",
            "## `[simulation]`\n",
            table(SIMULATION),
            "## `[queues.NAME]`\n",
            table(QUEUE),
            "## `[types.NAME]`\n",
            table(TYPE),
            "## `[workers.NAME]`\n",
            table(WORKER),
        ]
    )


def table(keys: Mapping[str, Key]) -> str:
    return text.table(
        ("key", "takes", "means"), [(text.code(name), key.takes, key.means) for name, key in keys.items()]
    )
