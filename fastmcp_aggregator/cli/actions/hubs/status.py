"""The status of the hubs of this user; with a URL, of an instance that serves HTTP."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.asking import ask
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.attach.identity import how_to_share
from fastmcp_aggregator.cli.actions import status as of_instance
from fastmcp_aggregator.cli.output.report import WHOSE
from fastmcp_aggregator.cli.parser.command import HERE
from fastmcp_aggregator.cli.running.instance import InstanceError, NoInstanceError
from fastmcp_aggregator.cli.running.local_hubs import (
    HANGS,
    NO_HUB,
    NOTHING,
    Status,
    chosen,
    is_named,
    others_of,
    running_hubs,
)
from fastmcp_aggregator.cli.terminal.console import put, put_json, put_table, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE
from fastmcp_aggregator.cli.terminal.signals import end_on_signals
from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.version import PROGRAM

_IN_FULL = f"{PROGRAM} status --json"


def run(options: argparse.Namespace, *, here: str = HERE) -> int:
    """`here` is where an instance is looked for if no hub runs."""
    if options.open is not None:
        return _open(options.open or None)
    if options.url is not None or options.wake is not None:
        options.url = options.url or here
        return of_instance.run(options)
    hubs, none = _named(options.hub), _no_hub(options.hub)
    if not hubs and options.hub is None:
        try:
            return _of_instance(options, here)
        except InstanceError as error:
            none = nothing_runs(error)
    if options.watch:
        return _watch(options)
    if options.json:
        put_json(_document(hubs))
    elif hubs:
        put_table(_table(hubs), _IN_FULL)
    if not hubs:
        say(none)
    return FINE if hubs else FAILED


def _named(word: str | None) -> list[Status]:
    return [hub for hub in running_hubs() if is_named(hub, word)]


def _no_hub(word: str | None) -> str:
    return NO_HUB if word is None else f"no hub {word!r} runs"


def nothing_runs(error: InstanceError) -> str:
    """The message if no hub runs, and no instance answers here either."""
    return NOTHING if isinstance(error, NoInstanceError) else f"{NO_HUB}; {error}"


def _of_instance(options: argparse.Namespace, here: str) -> int:
    """Show an instance that serves HTTP here. Raises InstanceError: none does, or something else."""
    options.url = here
    if options.watch:  # which would wait for one
        of_instance.instance_of(options).sample()
    return of_instance.run(options)


def _watch(options: argparse.Namespace) -> int:
    """Until a signal. Hubs end and start meanwhile."""
    end_on_signals(FINE)
    none = _no_hub(options.hub)
    found = (_named(options.hub) for _ in of_instance.regularly(options.every))
    if options.json:
        for hubs in found:
            put_json(_document(hubs), indent=None)
    elif sys.stdout.isatty():
        return of_instance.show_in_place(
            of_instance.text_of([*(_table(hubs) or [none]), "Ctrl-C ends."]) for hubs in found
        )
    else:
        for hubs in found:
            if hubs:
                put("\n".join([*_table(hubs), ""]))
            else:
                say(none)
    return FINE


def _document(hubs: Sequence[Status]) -> dict[str, Any]:
    return {"hubs": [{name: value for name, value in hub.items() if name != "hub"} for hub in hubs]}


def _table(hubs: Sequence[Status]) -> list[str]:
    tables = [[*_lines(hub, others_of(hub, hubs)), ""] for hub in hubs]
    return [*chain.from_iterable(tables)][:-1]


def _open(word: str | None) -> int:
    hub = chosen(word, running_hubs())
    try:
        answer = None if hub is None else ask(hub["id"], greeting.OPEN)
    except Unusable as why:
        say(str(why))
        return FAILED
    if answer is None:
        say(NO_HUB)
        return FAILED
    import webbrowser  # noqa: PLC0415 - for this alone

    if not webbrowser.open(answer["url"]):
        say("no browser can be opened here; the address is good once, for a minute:")
        put(answer["url"])
    return FINE


def _lines(hub: Status, others: Mapping[str, list[str]]) -> Iterator[str]:
    name = f"{printable(hub['name'])} ({hub['id']})" if hub["name"] else hub["id"]
    if silent := hub.get("silent"):
        advice = f"; to end it: fastmcp-aggregator stop {hub['id']}" if silent == HANGS else ""
        process = f"process {hub['pid']}, " if hub["pid"] else ""
        yield f"hub {name}: {process}{silent}{advice}"
        if hub["config"]:
            yield f"  serves {printable(str(hub['config']))}"
        return
    memory = f", {hub['memory'] / 1024**2:.0f} MiB with its servers" if hub["memory"] else ""
    yield f"hub {name}: process {hub['pid']}, for {of_instance.duration(hub['since'])}{memory}"
    yield f"  serves {printable(hub['config'])}"
    if hub["config_problem"]:
        problem = printable(" ".join(hub["config_problem"].split()))
        since = of_instance.duration(hub.get("config_refused_for"))
        change = f"its change {since} ago" if since else "its last change"
        yield f"           as it was before {change}, which cannot be used: {problem}"
    for other, differs in others.items():
        what = printable(", ".join(differs)) or "nothing"
        yield f"  differs  in {what} from the hub {printable(other)}"
    if others:
        yield f"           to share one, {how_to_share(chain.from_iterable(others.values()))}"
    yield from _rows("clients", [*_clients(hub["clients"])] or ["none"])
    width = max((len(printable(key)) for key in hub["servers"]), default=0)
    yield from _rows("servers", [_server(key, server, width) for key, server in hub["servers"].items()] or ["none"])


def _rows(title: str, rows: list[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"  {title if number == 0 else '':8} {row}".rstrip()


def _clients(clients: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each client, or for all of one folder and group."""
    together: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for client in clients:
        together.setdefault((client["folder"], client["group"]), []).append(client)
    for (folder, group), alike in together.items():
        if len(alike) == 1:
            yield _client(alike[0])
            continue
        counts = Counter(client["name"] or "yet unknown" for client in alike)
        names = ", ".join(name if count == 1 else f"{count} {name}" for name, count in counts.items())
        where = f" in {folder}" if folder else ""
        yield printable(f"{len(alike)}{where}{f', group {group}' if group else ''}: {names}")


def _client(client: dict[str, Any]) -> str:
    words = [
        client["name"] or "yet unknown",
        f"process {client['pid']}",
        f"for {of_instance.duration(client['since'])}",
    ]
    if client["folder"]:
        words.insert(1, f"in {client['folder']}")
    if client["group"]:
        words.append(f"group {client['group']}")
    return printable(", ".join(words))


def _server(key: str, server: dict[str, Any], width: int) -> str:
    row = f"{printable(key).ljust(width)}  {server['state']}"
    if server["instances"]:
        row += f", {server['instances']} more instance{'s' if server['instances'] > 1 else ''}"
        if server["isolation"] == "shared":
            row += " for clients of the other protocol era"
        if starting := server.get("instances_starting"):
            row += ", which is starting" if server["instances"] == 1 else f", {starting} of them starting"
    if server.get("dropped_stderr_lines"):
        row += f", {of_instance.flood_of(server['dropped_stderr_lines'])}"
    if server["last_error"]:
        return f"{row}: {printable(server['last_error'].partition(chr(10))[0])}"
    if server["isolation"] != "shared" and (whose := WHOSE.get(server["isolation"])):
        row += f", {whose}"
    return row
