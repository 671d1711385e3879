"""The report on a config: its servers, the names clients see, findings; with `--connect`, what the servers offer."""

from __future__ import annotations

import argparse
import logging
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import fastmcp_aggregator as package
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.cli.output.findings import at_most, findings_in_brief, findings_in_full, named
from fastmcp_aggregator.cli.output.name_report import (
    ClientGroup,
    accepted_by,
    client_groups,
    notes,
    pattern,
    plain_name,
)
from fastmcp_aggregator.cli.output.report import WHOSE, is_running, line_of, summary_of, why_failed
from fastmcp_aggregator.cli.running.starting import load, load_named_groups, run_command, started, tolerant
from fastmcp_aggregator.cli.terminal.console import counted, put_json, put_lines, say
from fastmcp_aggregator.cli.terminal.exits import CONFIGURATION, FINE, SERVER_FAILED
from fastmcp_aggregator.cli.terminal.logs import tell
from fastmcp_aggregator.config import McpConfig, StdioServer
from fastmcp_aggregator.doctor.examination import Examination, examined
from fastmcp_aggregator.doctor.findings import Source
from fastmcp_aggregator.errors import ConfigError, ConfigProblem
from fastmcp_aggregator.extensions import table as extensions
from fastmcp_aggregator.groups import Groups
from fastmcp_aggregator.isolation.decision import Decision, decide
from fastmcp_aggregator.libraries import installed_version
from fastmcp_aggregator.settings.model import AggregatorSettings, defaults_of_hub
from fastmcp_aggregator.settings.options import ChildOptions
from fastmcp_aggregator.status.server_status import ServerStatus
from fastmcp_aggregator.version import PROGRAM, VERSION

_LOGINS = "Logins (OAuth):"
_FINE = "No problems found."
_FINE_FILES = "No problems found in the files."
_FINE_BUT_LOGINS = "No problems found in the files. What logins need comes last."


@dataclass(frozen=True)
class _Checked:
    """The findings to report, and what was read."""

    config: McpConfig
    settings: AggregatorSettings
    named_groups: Groups
    examination: Examination

    @property
    def refused(self) -> Sequence[ConfigProblem]:
        """Findings that `serve` would refuse to start with."""
        return self.config.problems if self.settings.strict else ()

    @property
    def has_errors(self) -> bool:
        """True if there is an error; those of servers do not count if it is right to go on without them."""
        errors = (finding for finding in self.examination.findings if finding.severity == "error")
        return any(self.settings.strict or finding.server is None for finding in errors)

    @cached_property
    def clients(self) -> Sequence[ClientGroup]:
        return client_groups(separator=self.settings.separator, prefix=self.settings.prefix)

    @cached_property
    def decisions(self) -> Mapping[str, Decision]:
        """The isolation of each server, as a hub would decide now."""
        catalogues, settings, found = CatalogueStore(is_of_hub=True), _of_hub(self.settings), {}
        for key, server in self.config.servers.items():
            options = ChildOptions.from_settings(settings, server)
            found[key] = decide(server, options, catalogues.known(server, options).shown)
        return found

    @property
    def not_shared(self) -> str:
        """The heading of servers that not all clients share."""
        if "isolation" in self.settings.model_fields_set:
            return "Not shared by all clients, where there are several:"
        return "With `attach`, not shared by all clients:"

    def targets(self) -> Iterator[tuple[str, str, str]]:
        for key, server in self.config.servers.items():
            yield key, "stdio" if isinstance(server, StdioServer) else server.transport, server.label


def run(options: argparse.Namespace) -> int:
    groups_file = options.groups
    try:
        config, settings = load(options, examines=True)
        groups_file = str(settings.groups_file)
        named_groups = load_named_groups(options, config, settings)
    except ConfigError as error:
        problems = _problems(error.details, groups_file if error.source == groups_file else options.config)
        if options.json:
            put_json({"config": options.config, "problems": problems})
        else:
            _tell_refusal(error, [problem["line"] for problem in problems])
        return CONFIGURATION
    files = [options.settings, options.env_file, named_groups.source or None]
    checked = _Checked(config, settings, named_groups, examined(config, settings, files, named_groups))
    code = _check(options, checked)
    if checked.refused and not options.json:
        say(f"{config.source} is refused without --no-strict: {_counted(checked.refused)}")
    return CONFIGURATION if checked.has_errors else code


def _tell_refusal(error: ConfigError, lines: Sequence[int | None]) -> None:
    problems = [
        problem if line is None else replace(problem, path=f"{problem.path} (line {line})")
        for problem, line in zip(error.details, lines, strict=True)
    ]
    tell(str(ConfigError(error.source, problems)), logging.ERROR)
    if error.code != "file_not_found":
        tell("More is checked once this is fixed.")


def _counted(problems: Sequence[ConfigProblem]) -> str:
    lacking = sum(problem.code == "missing_env_var" for problem in problems)
    wrong = len(problems) - lacking
    told = [counted(wrong, "problem") + " of its entries"] if wrong else []
    return ", ".join([*told, *([counted(lacking, "variable") + " without a value"] if lacking else [])])


def _check(options: argparse.Namespace, checked: _Checked) -> int:
    """Tell what is found of the servers, also if the entries of some of them cannot be used."""
    if not options.json:
        told = _in_full if options.all else _in_brief
        put_lines(map(str.rstrip, told(checked, _fine(checked, connects=options.connect))))
    if options.connect:
        return run_command(_connect(checked, as_json=options.json, shows_all=options.all))
    if _has_logins(checked):
        return run_command(_tell_logins(checked, as_json=options.json))
    if options.json:
        put_json({**_document(checked), "logins": {}})
    return FINE


async def _tell_logins(checked: _Checked, *, as_json: bool) -> int:
    reports, lines = await _logins(checked, ())
    if as_json:
        put_json({**_document(checked), "logins": reports})
    else:
        put_lines(["", *_section(_LOGINS, lines)])
    return FINE


async def _logins(checked: _Checked, also: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The requirements of the authorization servers of the servers with OAuth and those that are named, as a document
    and in words: they are asked.
    """
    from fastmcp_aggregator.cli.actions.accounts.providers import login_reports, told  # noqa: PLC0415 - it needs the SDK

    reports = await login_reports(checked.config, checked.settings, also)
    return {key: asdict(report) for key, report in reports.items()}, list(told(reports))


def _fine(checked: _Checked, *, connects: bool) -> str:
    """The line for a check without findings; more to tell comes below it."""
    if _has_logins(checked):
        return _FINE_BUT_LOGINS
    return _FINE_FILES if connects else _FINE


def _has_logins(checked: _Checked) -> bool:
    """True if a server has OAuth, for which there is an authorization server to ask."""
    servers = checked.settings.servers
    return any(key in servers and servers[key].oauth is not None for key in checked.config.servers)


def _problems(problems: Sequence[ConfigProblem], config: str) -> list[dict[str, Any]]:
    source = Source(config)
    lines = (source.line(problem.path.removeprefix(f"{config} ")) for problem in problems)
    return [{**asdict(problem), "line": line} for problem, line in zip(problems, lines, strict=True)]


def _document(checked: _Checked) -> dict[str, Any]:
    config = checked.config
    return {
        "config": config.source,
        "servers": {
            key: {
                "transport": kind,
                "target": label,
                "isolation": checked.decisions[key].isolation,
                "isolationReason": checked.decisions[key].reason,
            }
            for key, kind, label in checked.targets()
        },
        "clients": [
            {
                "clients": list(group.labels),
                "accepts": accepted_by(group.rule),
                "names": {
                    key: {"pattern": pattern(group.rule, key), "why": notes(group.rule, key)} for key in config.servers
                },
            }
            for group in checked.clients
        ],
        "versions": _versions(),
        "programs": [asdict(program) for program in checked.examination.programs],
        "findings": [asdict(finding) for finding in checked.examination.findings],
        **({"problems": _problems(checked.refused, config.source)} if checked.refused else {}),
    }


def _in_full(checked: _Checked, fine: str) -> Iterator[str]:
    findings, source = checked.examination.findings, checked.config.source
    yield from _servers(checked)
    yield from _groups(checked.named_groups)
    decisions = checked.decisions.items()
    others = [_isolation(key, decision) for key, decision in decisions if decision.isolation != "shared"]
    yield from _section(checked.not_shared, others)
    yield ""
    yield from _names(checked)
    yield ""
    yield from _versions_and_programs(checked.examination)
    yield ""
    yield from findings_in_full(findings, source) if findings else [fine]


def _in_brief(checked: _Checked, fine: str) -> Iterator[str]:
    """The report on a screen at most, whatever the number of servers."""
    findings, source, servers = checked.examination.findings, checked.config.source, checked.config.servers
    yield f"{source}: {counted(len(servers), 'server')}"
    yield from _groups(checked.named_groups)
    others = [key for key, decision in checked.decisions.items() if decision.isolation != "shared"]
    if others:
        yield f"{checked.not_shared} {named(others)}"
    changed = [key for key in servers if any(notes(group.rule, key) for group in checked.clients)]
    if changed:
        yield f"Names that some clients see changed or shortened: those of {named(changed)}"
    yield from findings_in_brief(findings, source) if findings else [fine]
    yield "More of all this, the names that each client sees, and the programs: --all"


def _servers(checked: _Checked) -> Iterator[str]:
    servers = checked.config.servers
    yield f"{checked.config.source}: {counted(len(servers), 'server')}"
    width = max((len(key) for key in servers), default=0)
    for key, kind, label in checked.targets():
        yield f"  {key:{width}}  {kind:5}  {label}"


def _of_hub(settings: AggregatorSettings) -> AggregatorSettings:
    return settings.model_copy(update=defaults_of_hub(settings))


def _isolation(key: str, decision: Decision) -> str:
    return f"  {key}: {WHOSE[decision.isolation]}: {decision.reason}"


def _isolations_shown(
    before: Mapping[str, Decision], statuses: Sequence[ServerStatus]
) -> Iterator[tuple[str, Decision]]:
    """The decisions that are others than were told before the servers ran."""
    for status in statuses:
        decision = Decision(status.isolation, status.isolation_reason)
        if before.get(status.server_key) != decision:
            yield status.server_key, decision


def _groups(groups: Groups) -> Iterator[str]:
    if groups.source:
        yield f"{groups.source}: {counted(sum(not group.is_implied for group in groups), 'group')}"


def _names(checked: _Checked) -> Iterator[str]:
    yield "What clients see:"
    for group in checked.clients:
        yield f"  {group.title}"
        if not group.rule.prefix:
            yield "    <tool>"
            continue
        patterns = {key: pattern(group.rule, key) for key in checked.config.servers}
        width = max((len(shape) for shape in patterns.values()), default=0)
        for key, shape in patterns.items():
            yield f"    {shape:{width}}  {'; '.join(notes(group.rule, key))}"


async def _connect(checked: _Checked, *, as_json: bool, shows_all: bool) -> int:
    """Start the servers and report; as JSON, everything is one document."""
    settings, before = checked.settings, checked.decisions
    async with started(checked.config, tolerant(_of_hub(settings)), offers_roots=True) as (app, _):
        statuses = list(app.health().values())
        conflicts = _conflicts(app, checked.clients)
        changes = list(_changes(app, checked.clients))
        strays = list(_strays(app, settings))
        withheld = dict(_withheld(app))
        isolations = list(_isolations_shown(before, statuses))
    refused = [status.server_key for status in statuses if status.auth_error]
    logins, lines = await _logins(checked, refused)
    if as_json:
        failed = {status.server_key: why_failed(status) for status in statuses if not is_running(status)}
        connected = {
            "failed": failed,
            "conflicts": conflicts,
            "changedNames": dict(changes),
            "strayTools": strays,
            "withheldExtensions": withheld,
            "isolation": {key: asdict(decision) for key, decision in isolations},
        }
        put_json({**_document(checked), "connected": connected, "logins": logins})
    else:
        sections = [
            [summary_of(statuses), *(f"  {line_of(status)}" for status in statuses if not is_running(status))],
            _section(checked.not_shared, [_isolation(key, decision) for key, decision in isolations]),
            _section(_LOGINS, lines),
            _section("Name conflicts:", [f"  {conflict}" for conflict in conflicts]),
            _section("Settings for tools that no server has:", [f"  {stray}" for stray in strays]),
            _section(
                "Extensions of servers that are not passed on:",
                [f"  {key}: {', '.join(names)}" for key, names in withheld.items()],
            ),
            _section("Names that some clients see changed:", list(_all_changes(changes, in_full=shows_all))),
        ]
        shown = [section if shows_all else [*section[:1], *at_most(section[1:])] for section in sections if section]
        put_lines(line.rstrip() for section in shown for line in ["", *section])
    is_fine = not conflicts and all(map(is_running, statuses))
    return FINE if is_fine or not settings.strict else SERVER_FAILED


def _conflicts(app: package.Aggregator, groups: Sequence[ClientGroup]) -> list[str]:
    found = (str(conflict) for group in groups for conflict in app.routes.conflicts(group.rule))
    return list(dict.fromkeys(found))


def _strays(app: package.Aggregator, settings: AggregatorSettings) -> Iterator[str]:
    """The tools that the settings show otherwise and that their server, which is up, does not have."""
    for key, changes in settings.tool_changes.items():
        child = app.children.get(key)
        if child is not None and child.catalogue is not None:
            offered = {tool["name"] for tool in child.catalogue.of(Kind.TOOL)}
            yield from (f"{key}:{name}" for name in changes if name not in offered)


def _withheld(app: package.Aggregator) -> Iterator[tuple[str, list[str]]]:
    """Each server, of those that are up, that has declared extensions that are not passed on, and these."""
    for key, child in app.children.items():
        if child.catalogue is not None and (names := list(extensions.withheld(child.catalogue.capabilities))):
            yield key, names


def _changes(app: package.Aggregator, groups: Sequence[ClientGroup]) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Each name of which some client sees more changed than the separator, and who sees what."""
    routes = [route for kind in (Kind.TOOL, Kind.PROMPT) for route in app.routes.served(kind)]
    names = dict.fromkeys((route.child.key, route.name) for route in routes)
    for key, original in names:
        seen: dict[str, list[str]] = {}
        for group in groups:
            name = group.rule.public_name(key, original)
            if name != plain_name(group.rule, key, original):
                seen.setdefault(name, []).extend(group.labels)
        if seen:
            yield f"{key}:{original}", seen


def _all_changes(changes: Sequence[tuple[str, dict[str, list[str]]]], *, in_full: bool) -> Iterator[str]:
    """Each name; in brief, how many of each server."""
    if in_full:
        yield from (line for change in changes for line in _change(*change))
        return
    of_server: dict[str, list[dict[str, list[str]]]] = {}
    for original, seen in changes:
        of_server.setdefault(original.partition(":")[0], []).append(seen)
    for key, names in of_server.items():
        labels = dict.fromkeys(label for seen in names for each in seen.values() for label in each)
        yield f"  {key}: {counted(len(names), 'name')} in {', '.join(labels)}"


def _change(original: str, seen: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield f"  {original}"
    yield from (f"    {name}  {', '.join(labels)}" for name, labels in seen.items())


def _section(heading: str, lines: Sequence[str]) -> list[str]:
    return [heading, *lines] if lines else []


def _versions_and_programs(examination: Examination) -> Iterator[str]:
    yield f"Versions: {', '.join(f'{name} {number}' for name, number in _versions().items())}"
    if examination.programs:
        yield "Programs:"
        width = max(len(program.command) for program in examination.programs)
        for program in examination.programs:
            where = "" if program.path == program.command else program.path or "not found"
            yield f"  {program.command:{width}}  {program.version or '':10}  {where}"


def _versions() -> dict[str, str]:
    """Versions of this program and its main dependencies."""
    found = {PROGRAM: VERSION, "Python": platform.python_version()}
    for library in ("fastmcp", "mcp"):
        if number := installed_version(library):
            found[library] = number
    return {**found, "system": sys.platform}
