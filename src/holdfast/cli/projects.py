"""The projects of the settings file, and the app that builds them."""

import os
import tomllib
from pathlib import Path

from holdfast.app import App
from holdfast.builds.project import BuildSettings, read_settings
from holdfast.cli import environment, instance
from holdfast.cli.command import Call
from holdfast.cli.module import import_app
from holdfast.config import Settings, locate
from holdfast.projects import Projects

OF_THE_DATABASE = ("HOLDFAST_URL", "PGPASSWORD")


def settings_of(call: Call) -> tuple[BuildSettings, Path] | None:
    """What the settings file says about builds, and the folder that its paths are relative to; None if it says nothing."""
    file = locate(call.config, Path.cwd())
    if file is None:
        return None
    found = read_settings(tomllib.loads(file.read_text("utf-8")), str(file))
    return None if found is None else (found, file.absolute().parent)


def attach(call: Call, app: App) -> Projects | None:
    """Make the app build what the settings file names; None if it names nothing. Takes the secrets of the environment."""
    found = settings_of(call)
    environment.conceal(OF_THE_DATABASE)
    if found is None:
        return None
    environment.hide_process()
    of_database = {name: os.environ[name] for name in OF_THE_DATABASE if name in os.environ}
    return Projects(app, *found, of_database | environment.take(variables_of(found[0])))


def conceal_secrets(call: Call) -> None:
    """For a process that only passes them on to one that it starts."""
    found = settings_of(call)
    environment.conceal((*OF_THE_DATABASE, *(() if found is None else variables_of(found[0]))))


def variables_of(settings: BuildSettings) -> list[str]:
    """The variables that hold secrets of projects."""
    return [secret.env for secret in settings.all_secrets if secret.env is not None]


def looking_at(call: Call, app: App) -> Projects:
    """To look at builds and to act on them, without being able to build."""
    settings, root = settings_of(call) or (BuildSettings(), Path.cwd())
    return Projects(app, settings, root, os.environ, declares=False)


def app_for(call: Call, settings: Settings, target: str) -> tuple[App, Projects | None]:
    """The app of a module, or without one that of the instance, and what it builds."""
    app = import_app(call, settings, target) if target else _of_instance(settings)
    return app, attach(call, app)


def _of_instance(settings: Settings) -> App:
    return instance.named(settings, instance.choose(settings, sets_up=True))
