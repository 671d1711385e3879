"""A client's file as a document: read from text, and changed at one location; the rest of the text stays."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from fastmcp_aggregator.client_configs.known import ClientConfig, Format
from fastmcp_aggregator.config import jsonc
from fastmcp_aggregator.config.documents import Location
from fastmcp_aggregator.config.toml import parsed_toml
from fastmcp_aggregator.errors import ConfigError


def read(text: str, format_: Format, source: str) -> dict[str, Any]:
    """The object that a text is. Raises ConfigError: it is none."""
    location = Location(source)
    try:
        value = parsed_toml(text) if format_ == "toml" else jsonc.parse(text).value()
    except tomllib.TOMLDecodeError as error:
        where = str(error).rpartition("(at ")[2].rstrip(")")
        location.report(f"is not valid TOML at {where}", code="invalid_json")
    except jsonc.JsonError as error:
        location.report(f"is not valid JSON {error}", code="invalid_json")
    except (ValueError, RecursionError):
        location.report("is nested too deeply, or has an endless number or key", code="invalid_json")
    else:
        if isinstance(value, dict):
            return value
        location.report("must be an object", code="invalid_schema")
    raise ConfigError(source, location.problems)


def why_unreadable(text: str, client: ClientConfig) -> str | None:
    """Why the client itself cannot read a text that is read here; None: no reason is known."""
    refused = client.refuses and {extra: line for extra, line in jsonc.extras(text).items() if extra in client.refuses}
    if not refused:
        return None
    what = ", ".join(f"line {line} has {extra}" for extra, line in refused.items())
    return f"{client.label} cannot read this file: {what}. It reads plain JSON, and starts nothing until that is mended"


def with_entry(text: str, format_: Format, path: Sequence[str], key: str, entry: Mapping[str, Any]) -> str:
    """The text with an entry in the object at `path`, replaced or added.

    Raises:
        ValueError: the text is not what it should be.
    """
    if format_ == "json":
        return jsonc.with_member(text, path, key, entry)
    import tomlkit  # noqa: PLC0415 - for one client only

    document = tomlkit.parse(text)
    holder: Any = document
    for step in path:
        if step not in holder:
            holder[step] = tomlkit.table(is_super_table=True)
        holder = holder[step]
        if not isinstance(holder, Mapping):
            raise jsonc.JsonError(f"`{'.'.join(path)}` is not a table")
    table = _table(entry)
    last: Any = next((value for value in reversed(list(table.values())) if isinstance(value, Mapping)), table)
    last.add(tomlkit.nl())  # before whatever table comes next
    holder[key] = table
    changed = tomlkit.dumps(document)
    return changed if text.endswith("\n\n") else changed.rstrip("\n") + "\n"


def without_entry(text: str, format_: Format, path: Sequence[str], key: str) -> str:
    """The text without an entry of the object at `path`; the same text if there is none.

    Raises:
        ValueError: the text is not what it should be.
    """
    if format_ == "json":
        return jsonc.without_member(text, path, key)
    import tomlkit  # noqa: PLC0415 - as above

    document = tomlkit.parse(text)
    holder: Any = document
    for step in path:
        holder = holder.get(step, {})
    if key not in holder:
        return text
    holder.remove(key)
    return _with_comments(text, tomlkit.dumps(document))


def _with_comments(text: str, rest: str) -> str:
    """The rest of a text with the comments that ended what was taken out, which belong to what comes next."""
    begin = next((i for i, (a, b) in enumerate(zip(text, rest, strict=False)) if a != b), min(len(text), len(rest)))
    begin = text.rfind("\n", 0, begin) + 1
    end = begin + len(text) - len(rest)
    if text[:begin] + text[end:] != rest:
        return rest
    lines = text[begin:end].splitlines(keepends=True)
    content = [number for number, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")]
    after = lines[content[-1] + 1 if content else 0 :]
    first = next((number for number, line in enumerate(after) if line.strip()), len(after))
    return text[:begin] + "".join(after[first:]) + text[end:]


def _table(entry: Mapping[str, Any]) -> Any:
    import tomlkit  # noqa: PLC0415 - as above

    table = tomlkit.table()
    for name, value in entry.items():
        table[name] = _table(value) if isinstance(value, Mapping) else value
    return table
