"""docs/reference/errors.md: the error tree with its codes."""

from docs.generator import text
from holdfast.errors import HoldfastError


def page() -> str:
    rows = [
        (
            f"{'&emsp;' * depth}`{error.__name__}`",
            text.code(error.code),
            error.exit_code,
            error.http_status,
            error.__doc__,
        )
        for error, depth in tree(HoldfastError)
    ]
    return "\n".join(
        [
            "# Errors\n",
            text.MADE,
            "What Holdfast raises to its callers derives from `HoldfastError`. A handler's failure is not one of these: it "
            "is an [outcome](states.md#outcomes) of its job.\n",
            text.table(("error", "`code`", "`exit_code`", "`http_status`", ""), rows),
            "`exit_code` is what the [command line](cli.md) ends with. `TimeoutError` is Python's own: `job.wait` and "
            "`job.unwrap` raise it when their time is over.\n",
        ]
    )


def tree(root: type[HoldfastError], depth: int = 0) -> list[tuple[type[HoldfastError], int]]:
    """The classes that callers meet, each behind its parent."""
    below = [
        pair
        for child in root.__subclasses__()
        if child.__module__ == root.__module__
        for pair in tree(child, depth + 1)
    ]
    return [(root, depth), *below]
