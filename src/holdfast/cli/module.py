"""The app that a user's module holds: `module:app`."""

import importlib
import os
import sys
from types import ModuleType

from holdfast.app import App
from holdfast.cli.command import Call
from holdfast.config import Settings
from holdfast.errors import HoldfastError, Invalid


def import_app(call: Call, settings: Settings, target: str) -> App:
    """The app at `module:name`. What its code leaves open comes from the settings, through the environment."""
    if call.url is not None:
        raise Invalid(
            f"--url beside {target}: the code says which database. Leave --url out, or set HOLDFAST_URL for code that names none."
        )
    os.environ.update(settings.environment())
    path, _, name = target.partition(":")
    app = _attribute(_module(path, target), name or "app", target)
    if call.instance is not None and app.name != call.instance:
        raise Invalid(
            f"--instance {call.instance}: {target} is instance `{app.name}` by its code. Leave --instance out."
        )
    return app


def _module(path: str, target: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(path)
    except HoldfastError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise Invalid(f"{target} cannot be imported: {error}. Install it, or correct the import.") from error
        raise Invalid(
            f"{target}: there is no module `{error.name}` in {folder} or on Python's path. Write the module as an import "
            "statement would and start in the folder that holds it, for example `holdfast worker shop:app`."
        ) from error
    except SystemExit as error:
        raise Invalid(
            f"{target} cannot be imported: the module calls sys.exit({'' if error.code is None else repr(error.code)}). What a "
            'program does when it is started belongs under `if __name__ == "__main__":`. --debug shows where.'
        ) from error
    except Exception as error:
        raise Invalid(
            f"{target} cannot be imported: {type(error).__qualname__}: {error}. --debug shows where."
        ) from error


def _attribute(module: ModuleType, name: str, target: str) -> App:
    found = getattr(module, name, None)
    if isinstance(found, App):
        return found
    apps = [known for known, value in vars(module).items() if isinstance(value, App)]
    cure = (
        f"It has {', '.join(f'`{module.__name__}:{known}`' for known in apps)}."
        if apps
        else "Make one with holdfast.App(…)."
    )
    what = f"has no `{name}`" if found is None else f"has a `{name}` that is no App but a {type(found).__qualname__}"
    raise Invalid(f"{target}: module `{module.__name__}` {what}. {cure}")
