"""Refuses a setuptools that cannot read pyproject.toml, where everything else about the build is."""

import sys

import setuptools

NEEDED = 77  # the first that takes `license` as an expression

if int(setuptools.__version__.partition(".")[0]) < NEEDED:
    sys.exit(
        f"Holdfast is built with setuptools {NEEDED} or later, and this is {setuptools.__version__}. "
        f"Upgrade it: pip install --upgrade 'setuptools>={NEEDED}'."
    )
setuptools.setup()
