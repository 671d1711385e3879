"""The removal from a client's config, which becomes what it was before `install`."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.actions.install import allowed, client_file
from fastmcp_aggregator.cli.terminal.console import put, put_json, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE
from fastmcp_aggregator.client_configs.documents import read
from fastmcp_aggregator.client_configs.installing import FileChanged, removal, restore, shown_diff
from fastmcp_aggregator.escaping import printable


def run(options: argparse.Namespace) -> int:
    client, path = client_file(options)
    while True:
        change, is_exact = removal(client, path, options.name)
        if change.before == change.after:
            say(f"{path} has no server {options.name!r}; if it is called otherwise there, give --name NAME")
            return FAILED
        if not options.json:
            ours = read(change.before or "", client.format, str(path))[client.servers_key][options.name]
            put("\n".join(map(printable, shown_diff(change, ours))))
        if not allowed(options, f"Write {path}?"):
            return FAILED
        try:
            restore(change, is_exact=is_exact)
        except FileChanged as error:
            say(f"{error}. It is read again.")
            continue
        break
    if options.json:
        put_json({"client": client.id, "path": str(path), "name": options.name, "restored": is_exact})
    elif is_exact:
        say(f"{path} is what it was before." if change.after is not None else f"{path} is gone, as it was before.")
    else:
        say(f"{path} has changed since, so only the entry {options.name!r} was taken out.")
    return FINE
