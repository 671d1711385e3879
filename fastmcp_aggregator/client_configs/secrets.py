"""A client's entry without what may not be shown: as dots for a person to see, or with variables in its place. Pure.

What may be shown is decided in `config/disclosure.py`. A reference to a variable may; what it stands for is not in the
file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastmcp_aggregator.client_configs.variables import variable_name
from fastmcp_aggregator.config.disclosure import DOTS, Field, fields_of, hidden_in, replaced, shown
from fastmcp_aggregator.config.expansion import expand

ChangeValue = Callable[[Field, str, str], str]
"""From the kind of field, the name of what has the value, and the value as it is written."""
_FIELDS: Mapping[str, Field] = {"url": "url", "command": "command", "cwd": "folder"}
_AS_THEY_ARE = ("type", "timeout", "disabled")
"""Fields of an entry that are ours: translated, and of a type or a few words."""


def masked_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry, for a person to see."""
    seen = _mapped(entry, lambda field, _, text: shown(field, text, "terminal"))
    known = {*_FIELDS, *_AS_THEY_ARE, "env", "headers", "args"}
    return {name: value if name in known else DOTS for name, value in seen.items()}


def shown_texts(entry: Mapping[str, Any]) -> list[str]:
    """The texts of an entry that a person may see as they are."""
    texts: list[str] = []

    def keep(field: Field, name: str, text: str) -> str:
        if not hidden_in(field, text, name):
            texts.append(text)
        return text

    _mapped(entry, keep)
    return texts


def with_variables(
    server_key: str, entry: Mapping[str, Any], taken: dict[str, str], is_plain: Callable[[str], bool] = lambda _: False
) -> dict[str, Any]:
    """The entry with `${NAME}` for all that may not be shown. The variables and their values are added to `taken`.

    `is_plain` tells of a text that it is no secret, such as a path of this machine, and stays.
    """

    def variable_for(part: str, hint: str) -> str:
        value = expand(part, {}).value
        variable = _free(server_key, hint, value, taken)
        taken[variable] = value
        return f"${{{variable}}}"

    def change(field: Field, name: str, text: str) -> str:
        if field in ("argument", "command", "folder", "value") and is_plain(text):
            return text
        return replaced(text, hidden_in(field, text, name), variable_for)

    return _mapped(entry, change)


def _free(server_key: str, hint: str, value: str, taken: Mapping[str, str]) -> str:
    plain, full = variable_name(hint), variable_name(server_key, hint)
    own = [plain] if hint.isupper() else []  # an environment variable keeps its name
    numbered = (f"{full}_{number}" for number in range(2, len(taken) + 3))
    return next(name for name in [*own, full, *numbered] if taken.get(name, value) == value)


def _mapped(entry: Mapping[str, Any], change: ChangeValue) -> dict[str, Any]:
    """The entry with its values changed; one that is of a wrong type is a value, whatever it is in."""
    changed = dict(entry)
    for field in ("env", "headers"):
        if isinstance(values := entry.get(field), Mapping):
            changed[field] = {k: change("value", str(k), str(v)) for k, v in values.items() if v is not None}
        elif values is not None:
            changed[field] = change("value", field, _text_of(values))
    if isinstance(arguments := entry.get("args"), list):
        changed["args"] = _arguments(entry.get("command"), arguments, change)
    elif arguments is not None:
        changed["args"] = change("value", "args", _text_of(arguments))
    for name, kind in _FIELDS.items():
        if (value := entry.get(name)) is not None:
            changed[name] = change(kind if isinstance(value, str) else "value", "", _text_of(value))
    return changed


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _arguments(command: Any, arguments: Sequence[Any], change: ChangeValue) -> list[str]:
    changed, flag = [], ""
    for field, argument in zip(fields_of(str(command), arguments), arguments, strict=True):
        text = str(argument)
        changed.append(change(field, flag or "argument", text))
        flag = text.lstrip("-") if text.startswith("-") and not hidden_in(field, text) else ""
    return changed
