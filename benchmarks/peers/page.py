"""Writes what was found of other aggregators into `docs/benchmarks.md`: `python -m benchmarks.peers.page`.

Its tables and charts are made of `docs/peers.json` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks.charts import Bar, charts_of
from benchmarks.clients import ERAS
from benchmarks.page import DOCS, write
from benchmarks.peers.conduct import STEPS
from benchmarks.peers.costs import COUNTS, DIRECT_CALL
from benchmarks.peers.table import OURS, PEERS
from benchmarks.rounds import Figures
from benchmarks.tables import short

FILE = DOCS / "peers.json"
MISSING = "Not measured in this run."
ERA_PAIRS = [f"{client} to {server}" for client in ERAS for server in ERAS]


class Notes:
    """The reasons of what failed, each with a number that stands in its cell."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def cell(self, why: str) -> str:
        """What stands in a cell that has no figure."""
        return f"– [{self._numbers.setdefault(why, len(self._numbers) + 1)}]"

    def lines(self) -> list[str]:
        """The reasons, under the table."""
        return [f"[{number}] {sentence(why)}  " for why, number in self._numbers.items()]


def sentence(why: str) -> str:
    """A reason as it can stand on a page."""
    text = why.replace("`", "'").replace("|", "\\|").replace("<", "&lt;")
    return text if text.startswith("not ") else f"`{why.replace('`', chr(39))}`"


def parts(results: Figures) -> dict[str, str]:
    """What stands between the marks of the page, by their names."""
    rows = results["rows"]
    starts = {count: rows[f"first_list_{count}"] for count in COUNTS if f"first_list_{count}" in rows}
    return {
        "peers-versions": versions(results["peers"]),
        "peers-calls": calls(rows["calls"]) if "calls" in rows else MISSING,
        "peers-lists": lists(starts, rows.get("lists")) if starts else MISSING,
        "peers-conduct": conduct(rows["conduct"]) if "conduct" in rows else MISSING,
        "peers-real": real(rows["real"]) if "real" in rows else MISSING,
    }


def versions(peers: Figures) -> str:
    """What is compared, and what could not be installed."""
    pinned = {peer.name: ", ".join(f"`{pin}`" for pin in (*peer.python, *peer.node)) for peer in PEERS}
    lines = [
        [name, found.get("version", ""), pinned.get(name, ""), found.get("absent", "")] for name, found in peers.items()
    ]
    return table(["", "version", "installed as", "not measured here, because"], lines)


def calls(row: Figures) -> str:
    """Calls, one at a time and at once."""
    notes = Notes()
    lines = []
    for line in row["lines"]:
        ratio = line["against"].get(DIRECT_CALL, {}).get("p50_ms")
        is_direct = line["name"] == DIRECT_CALL
        cells = [
            *figures(line, ("p50_ms", "p99_ms"), notes),
            "" if is_direct else short(ratio[1]) if ratio else notes.cell(line["absent"]),
            *(figures(line, ("calls_per_s",), notes)),
            *(["", ""] if is_direct else figures(line, ("cpu_us", "rss_mb"), notes)),
        ]
        lines.append([name_of(line), *cells])
    heads = ["", "p50 ms", "p99 ms", "× direct", "calls/s, 16 at once", "CPU µs a call", "MB"]
    return under(table(heads, lines), notes, row["about"])


def lists(starts: dict[int, Figures], listing: Figures | None) -> str:
    """The first list after the start, by the number of servers; and a list of 1000 tools."""
    notes = Notes()
    names = {line["name"]: line for row in starts.values() for line in row["lines"]}
    columns: list[tuple[str, dict[str, Figures], str]] = [
        (f"{count} server{'s'[: count > 1]}, s", by_name(row), "first_list_s") for count, row in starts.items()
    ]
    if 10 in starts:
        columns.append(("the next start with 10, s", by_name(starts[10]), "next_list_s"))
    most = max(starts)
    columns.append((f"MB with {most}", by_name(starts[most]), "rss_mb"))
    if listing is not None:
        columns.append(("list of 1000 tools, ms", by_name(listing), "p50_ms"))
    lines = [
        [name_of(line), *(figures(found.get(name, {}), (key,), notes)[0] for _, found, key in columns)]
        for name, line in names.items()
    ]
    abouts = [row["about"] for row in (*starts.values(), *([listing] if listing else []))]
    return under(table(["", *(head for head, _, _ in columns)], lines), notes, *abouts)


def conduct(row: Figures) -> str:
    """What each does: a line for each, with the reasons below."""
    notes = Notes()
    shown: list[tuple[str, str, Callable[[Figures], str]]] = [
        ("back after `kill -9`, s", "death", lambda found: short(found["seconds"])),
        ("listed beside one that hangs, s", "hang", lambda found: short(found["seconds"])),
        ("progress", "progress", lambda found: f"{found['told']} of {STEPS}"),
        ("changed list", "changes", changed),
        *((f"{pair.replace(' to ', ' → ')}", pair, lambda found: "Y") for pair in ERA_PAIRS),
    ]
    lines = [
        [name_of(line), *(cell(line.get(key, {}), show, notes) for _, key, show in shown)] for line in row["lines"]
    ]
    tried_once = {**row["about"], "size": {"rounds": 1}}
    return under(table(["", *(head for head, _, _ in shown)], lines), notes, tried_once)


def changed(found: Figures) -> str:
    """Whether a client is told, and whether its next list is right."""
    return {
        (True, True): "told, listed",
        (False, True): "not told, listed",
        (True, False): "told, not listed",
        (False, False): "neither",
    }[found["is_told"], found["is_listed"]]


def real(row: Figures) -> str:
    """Real servers behind each."""
    notes = Notes()
    keys = ("first_list_s", "tools", "p50_ms", "rss_mb")
    lines = [[name_of(line), *figures(line, keys, notes)] for line in row["lines"]]
    return under(table(["", "first list, s", "tools", "a call, ms", "MB"], lines), notes, row["about"])


def cell(found: Figures, show: Callable[[Figures], str], notes: Notes) -> str:
    """What was seen, or the number of why it was not."""
    return notes.cell(found["absent"]) if "absent" in found else show(found) if found else ""


def figures(line: Figures, keys: Iterable[str], notes: Notes) -> list[str]:
    """The cells of some figures."""
    return [cell(line, lambda found, key=key: short(found.get(key)), notes) for key in keys]


def by_name(row: Figures) -> dict[str, Figures]:
    """The lines of a row."""
    return {line["name"]: line for line in row["lines"]}


def name_of(line: Figures) -> str:
    """The first cell; our own lines stand out."""
    return f"**{line['name']}**" if line.get("peer") == OURS else str(line["name"])


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of a page."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *lines))


def under(text: str, notes: Notes, *abouts: Figures) -> str:
    """A table with its reasons, and with when and of what it is."""
    return "\n\n".join(part for part in (text, "\n".join(notes.lines()), *machines(abouts)) if part)


def machines(abouts: Sequence[Figures]) -> Iterator[str]:
    """Where, when and of which commit the rows of a table are: a line for those that differ in the load alone."""
    loads: dict[str, set[float]] = {}
    for about in abouts:
        loads.setdefault(machine({**about, "load": "{load}"}), set()).add(about["load"])
    for line, found in loads.items():
        yield line.format(load=" to ".join(map(str, sorted({min(found), max(found)}))))


def machine(about: Figures) -> str:
    """Where, when and of which commit a row is."""
    rounds = about["size"]["rounds"]
    return (
        f"*{about['date']}, commit `{about['commit']}`, {rounds} round{'s' * (rounds != 1)}; {about['system']}, "
        f"{about['cores']} cores of {about['processor']}, load {about['load']} at the start, Python {about['python']}*"
    )


def charts(results: Figures) -> dict[str, str]:
    """The charts, by the names of their files. Those of calls are logarithmic: the slowest takes a thousand times."""
    rows = results["rows"]
    wanted = {
        "peers-call": ("calls", "p50_ms", "A call: median, ms (logarithmic)", True),
        "peers-at-once": ("calls", "calls_per_s", "Calls a second, 16 at once (logarithmic)", True),
        "peers-memory": ("calls", "rss_mb", "Memory with 10 servers, MB", False),
        "peers-start": ("first_list_50", "first_list_s", "First list after the start with 50 servers, s", False),
        "peers-list": ("lists", "p50_ms", "A repeated list of 1000 tools, ms (logarithmic)", True),
    }
    drawn = [
        charts_of(name, title, bars, is_logarithmic=is_logarithmic)
        for name, (row, key, title, is_logarithmic) in wanted.items()
        if row in rows and (bars := bars_of(rows[row]["lines"], key))
    ]
    return {file: text for charts in drawn for file, text in charts.items()}


def bars_of(lines: Iterable[Figures], key: str) -> list[Bar]:
    """A bar for each that has the figure: a direct call, ours and the others in three colours."""
    kinds = {OURS: "", None: "anchor"}
    return [Bar(line["name"], line[key], kinds.get(line.get("peer"), "before")) for line in lines if key in line]


def main() -> None:
    """Write all of it."""
    results = json.loads(FILE.read_text(encoding="utf-8"))
    write(parts(results), charts(results))


if __name__ == "__main__":
    main()
