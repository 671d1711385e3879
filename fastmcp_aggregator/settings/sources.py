"""The sources of settings (arguments, the environment, a file): reading, merging and validating them."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from fastmcp_aggregator.config.documents import Location, parse_json, path_step, read_text
from fastmcp_aggregator.config.toml import parsed_toml

ENV_PREFIX = "FASTMCP_AGGREGATOR_"
API_KEY_VARIABLE = f"{ENV_PREFIX}API_KEY"
"""The key of commands that ask a running instance; it is no setting."""

AnySettings = TypeVar("AnySettings", bound=BaseSettings)


@dataclass(frozen=True, slots=True)
class Layers:
    """The sources of the settings, the weakest first."""

    file: Mapping[str, Any]
    environment: Mapping[str, Any]
    overrides: Mapping[str, Any]

    def merged(self) -> dict[str, Any]:
        """Merge all layers; objects are merged key by key."""
        return _overlaid(_overlaid(self.file, self.environment), self.overrides)

    def path_of(self, location: tuple[int | str, ...]) -> str:
        """Return where the value in force was given: the variable's name, or a JSON path."""
        if _has(self.environment, location) and not _has(self.overrides, location):
            return _variable_of(location)
        return "$" + "".join(path_step(step) for step in location)


def _overlaid(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[name] = _overlaid(below, value)
        else:
            merged[name] = value
    return merged


def _has(values: Any, location: tuple[int | str, ...]) -> bool:
    for step in location:
        if not isinstance(values, Mapping) or step not in values:
            return False
        values = values[step]
    return True


def read_file(path: Path, root: Location) -> Mapping[str, Any]:
    """Read what a TOML or JSON file sets."""
    if path.suffix not in (".toml", ".json"):
        root.report("must be a TOML or JSON file, with a name that ends in .toml or .json")
        return {}
    text = read_text(path, root)
    if text is None:
        return {}
    values = _parse_toml(text, root) if path.suffix == ".toml" else parse_json(text, root, takes_comments=True)
    if isinstance(values, dict):
        return values
    if not root.problems:
        root.report("must be an object with settings in it")
    return {}


def _parse_toml(text: str, root: Location) -> Any:
    try:
        return parsed_toml(text)
    except tomllib.TOMLDecodeError as error:
        root.report(f"is not valid TOML: {error}", code="invalid_json")
    except (ValueError, RecursionError):
        root.report("cannot be read as TOML: it is nested too deeply, or has an endless number or key", "invalid_json")
    return None


def read_environment(model: type[BaseSettings], root: Location) -> Mapping[str, Any]:
    """Read what the environment sets; a variable with our prefix that is not a setting is a problem."""
    for name, value in os.environ.items():
        if value and _is_ours(name) and name.upper() != API_KEY_VARIABLE and not _sets_something(name, model):
            setting = name[len(ENV_PREFIX) :].lower()
            message = _unknown(setting, model.model_fields, _variable_name)
            root.named(name).report(message)
    try:
        return _environment(model, tuple((name, value) for name, value in os.environ.items() if _is_ours(name)))
    except SettingsError:  # it tells of the first only
        for name in _variables_not_json(model):
            root.named(name).report("is not valid JSON", code="invalid_json")
    return {}


def _is_ours(variable: str) -> bool:
    return variable.upper().startswith(ENV_PREFIX)


@lru_cache(maxsize=8)
def _environment(model: type[BaseSettings], variables: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    """Read these `variables`, which are those of the process; with so many settings that takes milliseconds."""
    return EnvSettingsSource(model)() if variables else {}


def _sets_something(variable: str, model: type[BaseSettings]) -> bool:
    setting, _, rest = variable[len(ENV_PREFIX) :].lower().partition("__")
    return setting in model.model_fields and (not rest or _is_object(setting, model))


def _is_object(setting: str, model: type[BaseSettings]) -> bool:
    return get_origin(model.model_fields[setting].annotation) is dict


def _variables_not_json(model: type[BaseSettings]) -> Iterator[str]:
    """Find the variables that must be JSON, because their settings are objects, and are not."""
    for setting in filter(lambda setting: _is_object(setting, model), model.model_fields):
        whole = _variable_name(setting)
        for name, value in os.environ.items():
            is_part = name.upper().startswith(whole + "__") and value.startswith(("[", "{"))
            if (is_part or name.upper() == whole) and value and not _is_json(value):
                yield name


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _variable_name(*location: int | str) -> str:
    return ENV_PREFIX + "__".join(map(str, location)).upper()


def _variable_of(location: tuple[int | str, ...]) -> str:
    """Return the environment variable that holds the location or what is around it."""
    names = {name.upper(): name for name in os.environ}
    wanted = [_variable_name(*location[:end]) for end in range(len(location), 0, -1)]
    return next((names[name] for name in wanted if name in names), wanted[-1])


def validated(model: type[AnySettings], layers: Layers, root: Location) -> AnySettings | None:
    """Build the model from all layers; None, with the problems in `root`, if a value is wrong."""
    values = layers.merged()
    for name in values.keys() - model.model_fields.keys():
        root.at(name).report(_unknown(name, model.model_fields))
        del values[name]
    settings = model.__new__(model)
    try:
        BaseModel.__init__(settings, **values)  # that of BaseSettings would read the environment once more
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False, include_context=False):
            root.named(layers.path_of(fault["loc"])).report(_message(fault, model))
        return None
    return settings


def _message(fault: ErrorDetails, model: type[BaseModel]) -> str:
    if fault["type"] != "extra_forbidden":
        return re.sub("^(Input should|String should|Value error, must)", "must", fault["msg"])
    *around, name = map(str, fault["loc"])
    steps = iter(around)
    for setting in steps:
        annotation = model.model_fields[setting].annotation
        model = next(part for part in get_args(annotation) if isinstance(part, type) and issubclass(part, BaseModel))
        if get_origin(annotation) is dict:  # it holds models by name, which is what stands between two of them
            next(steps)
    return _unknown(name, model.model_fields)


def _unknown(name: str, known: Iterable[str], spelled: Callable[[str], str] = str) -> str:
    similar = get_close_matches(name, list(known), n=1)
    return f"is not a setting; did you mean `{spelled(similar[0])}`?" if similar else "is not a setting; remove it"
