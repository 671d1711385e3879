"""All that is looked at, in the order in which it is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fastmcp_aggregator.config import McpConfig, UnresolvedServer
from fastmcp_aggregator.doctor.findings import Finding, Source
from fastmcp_aggregator.doctor.network import silent_servers, taken_port
from fastmcp_aggregator.doctor.packages import unpinned_packages
from fastmcp_aggregator.doctor.programs import Program, missing_programs, programs_of
from fastmcp_aggregator.doctor.written_secrets import written_secrets
from fastmcp_aggregator.settings.model import AggregatorSettings

_ORDER = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Examination:
    """The programs that the config needs, and what was found, the gravest first."""

    programs: list[Program]
    findings: list[Finding]


def examined(config: McpConfig, settings: AggregatorSettings) -> Examination:
    """Look at everything. Takes as long as the slowest program takes to say its version; starts no server."""
    source = Source(config.source)
    findings = [
        *unset_variables(config, source),
        *missing_programs(config, source),
        *unpinned_packages(config, source),
        *silent_servers(config, source),
        *taken_port(settings.host, settings.port),
        *written_secrets(config, source),
    ]
    findings.sort(key=lambda finding: _ORDER.index(finding.severity))
    return Examination(programs_of(config), findings)


def unset_variables(config: McpConfig, source: Source) -> Iterator[Finding]:
    """Servers with a variable that has no value, and each place where it is used."""
    for server in config.servers.values():
        for problem in server.problems if isinstance(server, UnresolvedServer) else ():
            yield Finding("error", server.key, problem.message, problem.path, source.line(problem.path))
