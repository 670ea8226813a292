"""The reference pages, made from the code: `python -m docs.generator --write`, or `--check`.

A page is a module with `page() -> str`. What the code cannot say in its own words (what a field means) stands beside
it in a table that must name exactly what the code has; a name too many or too few is an error, not a stale page.
"""
