"""The report on a config: its servers, the names clients see, findings; with `--connect`, what the servers offer."""

from __future__ import annotations

import argparse
import logging
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import fastmcp_aggregator as package
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.cli.output.findings import at_most, findings_in_brief, findings_in_full
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
    examination = examined(config, settings, files, named_groups)
    code = _check(options, config, settings, named_groups, examination)
    refused = _refused(config, settings)
    if refused and not options.json:
        say(f"{config.source} is refused without --no-strict: {_counted(refused)}")
    return CONFIGURATION if _has_errors(examination, settings) else code


def _has_errors(examination: Examination, settings: AggregatorSettings) -> bool:
    """Whether there is an error; those of servers do not count if it is right to go on without them."""
    errors = (finding for finding in examination.findings if finding.severity == "error")
    return any(settings.strict or finding.server is None for finding in errors)


def _tell_refusal(error: ConfigError, lines: Sequence[int | None]) -> None:
    places = [
        problem if line is None else replace(problem, path=f"{problem.path} (line {line})")
        for problem, line in zip(error.details, lines, strict=True)
    ]
    tell(str(ConfigError(error.source, places)), logging.ERROR)
    if error.code != "file_not_found":
        tell("What else there is to find is looked for once this is mended.")


def _counted(problems: Sequence[ConfigProblem]) -> str:
    lacking = sum(problem.code == "missing_env_var" for problem in problems)
    wrong = len(problems) - lacking
    told = [counted(wrong, "problem") + " of its entries"] if wrong else []
    return ", ".join([*told, *([counted(lacking, "variable") + " without a value"] if lacking else [])])


def _refused(config: McpConfig, settings: AggregatorSettings) -> Sequence[ConfigProblem]:
    """What `serve` would not begin with."""
    return config.problems if settings.strict else ()


def _check(
    options: argparse.Namespace,
    config: McpConfig,
    settings: AggregatorSettings,
    named_groups: Groups,
    examination: Examination,
) -> int:
    """Tell what is found of the servers, also if the entries of some of them cannot be used."""
    groups = client_groups(separator=settings.separator, prefix=settings.prefix)
    if not options.json:
        told = _in_full if options.all else _in_brief
        fine = _fine(settings, connects=options.connect)
        put_lines(map(str.rstrip, told(config, settings, named_groups, groups, examination, fine)))
    if not options.connect:
        return _without_connecting(options, config, settings, groups, examination)
    work = _connect(config, settings, groups, examination if options.json else None, shows_all=options.all)
    return run_command(work)


def _without_connecting(
    options: argparse.Namespace,
    config: McpConfig,
    settings: AggregatorSettings,
    groups: Sequence[ClientGroup],
    examination: Examination,
) -> int:
    """Tell what the logins of servers need, which their authorization servers are asked for."""
    logins = _Logins()
    code = run_command(logins.look(config, settings, ())) if _has_logins(settings) else FINE
    if options.json:
        put_json({**_document(config, settings, groups, examination), "logins": logins.document})
    elif logins.lines:
        put_lines(["", *_section(_LOGINS, logins.lines)])
    return code


def _fine(settings: AggregatorSettings, *, connects: bool) -> str:
    """What is said if nothing is found. What else there is to tell comes below it."""
    if _has_logins(settings):
        return _FINE_BUT_LOGINS
    return _FINE_FILES if connects else _FINE


def _has_logins(settings: AggregatorSettings) -> bool:
    """Whether a server has OAuth, for which there is an authorization server to ask."""
    return any(own.oauth is not None for own in settings.servers.values())


class _Logins:
    """What the authorization servers want, as a document and in words."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self.lines: list[str] = []

    async def look(self, config: McpConfig, settings: AggregatorSettings, also: Sequence[str]) -> int:
        """Ask them, for the servers with OAuth and those that are named."""
        from fastmcp_aggregator.cli.actions.accounts.providers import (  # noqa: PLC0415 - it needs the SDK
            login_reports,
            told,
        )

        reports = await login_reports(config, settings, also)
        self.document = {key: asdict(report) for key, report in reports.items()}
        self.lines = list(told(reports))
        return FINE


def _problems(problems: Sequence[ConfigProblem], config: str) -> list[dict[str, Any]]:
    source = Source(config)
    lines = (source.line(problem.path.removeprefix(f"{config} ")) for problem in problems)
    return [{**asdict(problem), "line": line} for problem, line in zip(problems, lines, strict=True)]


def _document(
    config: McpConfig, settings: AggregatorSettings, groups: Sequence[ClientGroup], examination: Examination
) -> dict[str, Any]:
    refused, decisions = _refused(config, settings), dict(_decisions(config, settings))
    return {
        "config": config.source,
        "servers": {
            key: {
                "transport": kind,
                "target": label,
                "isolation": decisions[key].isolation,
                "isolationReason": decisions[key].reason,
            }
            for key, kind, label in _targets(config)
        },
        "clients": [
            {
                "clients": list(group.labels),
                "accepts": accepted_by(group.rule),
                "names": {
                    key: {"pattern": pattern(group.rule, key), "why": notes(group.rule, key)} for key in config.servers
                },
            }
            for group in groups
        ],
        **_described(examination),
        **({"problems": _problems(refused, config.source)} if refused else {}),
    }


def _targets(config: McpConfig) -> Iterator[tuple[str, str, str]]:
    for key, server in config.servers.items():
        yield key, "stdio" if isinstance(server, StdioServer) else server.transport, server.label


def _in_full(
    config: McpConfig,
    settings: AggregatorSettings,
    named_groups: Groups,
    groups: Sequence[ClientGroup],
    examination: Examination,
    fine: str,
) -> Iterator[str]:
    yield from _servers(config)
    yield from _groups(named_groups)
    yield from _isolations(config, settings)
    yield ""
    yield from _names(config, groups)
    yield ""
    yield from _versions_and_programs(examination)
    yield ""
    yield from findings_in_full(examination.findings, config.source) if examination.findings else [fine]


def _in_brief(
    config: McpConfig,
    settings: AggregatorSettings,
    named_groups: Groups,
    groups: Sequence[ClientGroup],
    examination: Examination,
    fine: str,
) -> Iterator[str]:
    """At most a screen, whatever the number of servers."""
    yield f"{config.source}: {counted(len(config.servers), 'server')}"
    yield from _groups(named_groups)
    others = [key for key, decision in _decisions(config, settings) if decision.isolation != "shared"]
    if others:
        yield f"{_not_shared(settings)} {', '.join(others)}"
    changed = [key for key in config.servers if any(notes(group.rule, key) for group in groups)]
    if changed:
        yield f"Names that some clients see changed or shortened: those of {', '.join(changed)}"
    yield from findings_in_brief(examination.findings, config.source) if examination.findings else [fine]
    yield "More of all this, the names that each client sees, and the programs: --all"


def _servers(config: McpConfig) -> Iterator[str]:
    yield f"{config.source}: {counted(len(config.servers), 'server')}"
    width = max((len(key) for key in config.servers), default=0)
    for key, kind, label in _targets(config):
        yield f"  {key:{width}}  {kind:5}  {label}"


def _decisions(config: McpConfig, settings: AggregatorSettings) -> Iterator[tuple[str, Decision]]:
    """Whom the instances of each server are for, as a hub would decide now."""
    catalogues, settings = CatalogueStore(is_of_hub=True), _of_hub(settings)
    for key, server in config.servers.items():
        options = ChildOptions.from_settings(settings, server)
        yield key, decide(server, options, catalogues.known(server, options).shown)


def _of_hub(settings: AggregatorSettings) -> AggregatorSettings:
    return settings.model_copy(update=defaults_of_hub(settings))


def _not_shared(settings: AggregatorSettings) -> str:
    whose = ", where there are several" if "isolation" in settings.model_fields_set else " that attach"
    return f"Not shared by all clients{whose}:"


def _isolations(config: McpConfig, settings: AggregatorSettings) -> Iterator[str]:
    others = [(key, each) for key, each in _decisions(config, settings) if each.isolation != "shared"]
    yield from _section(_not_shared(settings), [_isolation(key, decision) for key, decision in others])


def _isolation(key: str, decision: Decision) -> str:
    return f"  {key}: {WHOSE[decision.isolation]}: {decision.reason}"


def _isolations_shown(
    config: McpConfig, settings: AggregatorSettings, statuses: Sequence[ServerStatus]
) -> Iterator[tuple[str, Decision]]:
    """The decisions that are others than were told before the servers ran."""
    before = dict(_decisions(config, settings))
    for status in statuses:
        decision = Decision(status.isolation, status.isolation_reason)
        if before.get(status.server_key) != decision:
            yield status.server_key, decision


def _groups(groups: Groups) -> Iterator[str]:
    if groups.source:
        yield f"{groups.source}: {counted(sum(not group.is_implied for group in groups), 'group')}"


def _names(config: McpConfig, groups: Sequence[ClientGroup]) -> Iterator[str]:
    yield "What clients see:"
    for group in groups:
        yield f"  {group.title}"
        if not group.rule.prefix:
            yield "    <tool>"
            continue
        patterns = {key: pattern(group.rule, key) for key in config.servers}
        width = max((len(shape) for shape in patterns.values()), default=0)
        for key, shape in patterns.items():
            yield f"    {shape:{width}}  {'; '.join(notes(group.rule, key))}"


async def _connect(
    config: McpConfig,
    settings: AggregatorSettings,
    groups: Sequence[ClientGroup],
    examination: Examination | None,
    *,
    shows_all: bool,
) -> int:
    """With an examination, everything is one document."""
    async with started(config, tolerant(_of_hub(settings)), offers_roots=True) as (app, _):
        statuses = list(app.health().values())
        conflicts = _conflicts(app, groups)
        changes = list(_changes(app, groups))
        strays = list(_strays(app, settings))
        withheld = dict(_withheld(app))
        isolations = list(_isolations_shown(config, settings, statuses))
    refused = [status.server_key for status in statuses if status.auth_error]
    logins = _Logins()
    await logins.look(config, settings, refused)
    if examination is not None:
        failed = {status.server_key: why_failed(status) for status in statuses if not is_running(status)}
        connected = {
            "failed": failed,
            "conflicts": conflicts,
            "changedNames": dict(changes),
            "strayTools": strays,
            "withheldExtensions": withheld,
            "isolation": {key: asdict(decision) for key, decision in isolations},
        }
        document = {**_document(config, settings, groups, examination), "connected": connected}
        put_json({**document, "logins": logins.document})
    else:
        sections = [
            [summary_of(statuses), *(f"  {line_of(status)}" for status in statuses if not is_running(status))],
            _section(_not_shared(settings), [_isolation(key, decision) for key, decision in isolations]),
            _section(_LOGINS, logins.lines),
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


def _described(examination: Examination) -> dict[str, Any]:
    """What an examination found, as a part of the document."""
    return {
        "versions": _versions(),
        "programs": [asdict(program) for program in examination.programs],
        "findings": [asdict(finding) for finding in examination.findings],
    }


def _versions_and_programs(examination: Examination) -> Iterator[str]:
    yield f"Versions: {', '.join(f'{name} {number}' for name, number in _versions().items())}"
    if examination.programs:
        yield "Programs:"
        width = max(len(program.command) for program in examination.programs)
        for program in examination.programs:
            where = "" if program.path == program.command else program.path or "not found"
            yield f"  {program.command:{width}}  {program.version or '':10}  {where}"


def _versions() -> dict[str, str]:
    """Of ourselves and what we stand on."""
    found = {PROGRAM: VERSION, "Python": platform.python_version()}
    for library in ("fastmcp", "mcp"):
        if number := installed_version(library):
            found[library] = number
    return {**found, "system": sys.platform}
