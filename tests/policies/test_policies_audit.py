"""What the audit log says about calls, denials and failed authentication, and when it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from support.doubles import Clock, call, run
from support.harness import until

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.observability.audit_log import AuditLog
from fastmcp_aggregator.policies.audit import Audit, audit_of, canonical
from fastmcp_aggregator.policies.policy import CallEnd, Rejected
from fastmcp_aggregator.policies.stack import Policies, PolicyStack
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.settings.model import load_settings

ANN = Principal("ann", frozenset({"web"}))
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Entries(AuditLog):
    """An audit log that keeps its entries."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []
        self.refusing = False

    @property
    def must_reject(self) -> bool:
        return self.refusing

    def record(self, event: str, fields: Mapping[str, Any]) -> None:
        self.all.append((event, {name: value for name, value in fields.items() if value is not None}))


class Refusing:
    def before(self, call: Call) -> None:
        raise Rejected(-32003, "too many calls")

    def after(self, call: Call, end: CallEnd) -> None:
        raise AssertionError("it refused")


def call_of(method: str = "tools/call", name: str = "log", /, **params: Any) -> Call:
    return call(ANN, "web", method, "git", name, params, request_id="7")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def answered(result: dict[str, Any]) -> dict[str, Any]:
    return result


async def failed(error: Exception) -> dict[str, Any]:
    raise error


USUAL = {"principal": "ann", "group": "web", "server": "git", "request_id": "7"}
TOOL = {**USUAL, "method": "tools/call", "tool": "log"}


@pytest.mark.parametrize(
    ("call", "forward", "fields"),
    [
        pytest.param(
            call_of(name="git:log", arguments={"b": 2, "a": "é"}),
            lambda _: answered({"content": []}),
            {
                **TOOL,
                "outcome": "ok",
                "request_bytes": len('{"name":"git:log","arguments":{"b":2,"a":"é"}}'.encode()),
                "response_bytes": 14,
                "arguments_sha256": digest('{"a":"é","b":2}'),
            },
            id="a tool answers",
        ),
        pytest.param(
            call_of(name="git:log", _meta={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}),
            lambda _: answered({"content": [], "isError": True}),
            {**TOOL, "outcome": "tool_error", "request_bytes": 100, "response_bytes": 29, "trace_id": TRACE},
            id="a tool fails, within a trace",
        ),
        pytest.param(
            call_of(name="git:log"),
            lambda _: failed(MCPError(-32602, "bad path /home/ann")),
            {**TOOL, "outcome": "error", "error_code": -32602, "request_bytes": 18, "response_bytes": 0},
            id="the server answers with an error",
        ),
        pytest.param(
            call_of(name="git:log"),
            lambda _: failed(ChildServerError("git", "runtime", "it exited")),
            {**TOOL, "outcome": "error", "error_code": -32000, "request_bytes": 18, "response_bytes": 0},
            id="the server is gone",
        ),
        pytest.param(
            call_of("prompts/get", "review", name="git:review", arguments={"lang": "en"}),
            lambda _: answered({}),
            {
                **USUAL,
                "method": "prompts/get",
                "prompt": "review",
                "outcome": "ok",
                "request_bytes": len('{"name":"git:review","arguments":{"lang":"en"}}'),
                "response_bytes": 2,
                "arguments_sha256": digest('{"lang":"en"}'),
            },
            id="a prompt",
        ),
        pytest.param(
            call_of("resources/read", "file:///a", uri="file://git/a"),
            lambda _: answered({}),
            {
                **USUAL,
                "method": "resources/read",
                "uri": "file:///a",
                "outcome": "ok",
                "request_bytes": 22,
                "response_bytes": 2,
            },
            id="a resource",
        ),
        pytest.param(
            call_of("completion/complete", "file:///{path}", argument={"name": "path", "value": "s"}),
            lambda _: answered({}),
            {
                **USUAL,
                "method": "completion/complete",
                "uri": "file:///{path}",
                "outcome": "ok",
                "request_bytes": len('{"argument":{"name":"path","value":"s"}}'),
                "response_bytes": 2,
                "arguments_sha256": digest('{"name":"path","value":"s"}'),
            },
            id="a completion",
        ),
    ],
)
async def test_each_call_has_an_entry(call: Call, forward: Callable[[], Any], fields: dict[str, Any]) -> None:
    entries = Entries()
    try:
        await run(PolicyStack([Audit(entries)]), call, forward)
    except (MCPError, ChildServerError):
        assert fields["outcome"] == "error"
    ((event, written),) = entries.all
    assert event == "call"
    assert written.pop("duration_ms") >= 0
    assert written == fields


async def test_a_call_that_another_policy_refuses_has_an_entry_with_the_reason() -> None:
    entries = Entries()
    with pytest.raises(MCPError):
        await run(PolicyStack([Audit(entries), Refusing()]), call_of(), lambda _: failed(AssertionError()))
    ((_, written),) = entries.all
    assert (written["outcome"], written["error_code"], written["reason"]) == ("denied", -32003, "too many calls")


async def test_arguments_are_written_out_when_that_is_asked_for_unless_they_are_huge() -> None:
    entries = Entries()
    stack = PolicyStack([Audit(entries, with_arguments=True)])
    await run(stack, call_of(arguments={"path": "a"}), lambda _: answered({}))
    await run(stack, call_of(arguments={"path": "a" * 100_000}), lambda _: answered({}))
    small, huge = (fields for _, fields in entries.all)
    assert small["arguments"] == {"path": "a"}
    assert "arguments_sha256" not in small
    assert "arguments" not in huge
    assert huge["arguments_sha256"] == digest(f'{{"path":"{"a" * 100_000}"}}')


async def test_arguments_with_half_a_surrogate_pair_have_a_digest_too() -> None:
    entries = Entries()
    await run(PolicyStack([Audit(entries)]), call_of(arguments={"path": "\ud83d"}), lambda _: answered({}))
    assert len(entries.all[0][1]["arguments_sha256"]) == 64


async def test_nothing_is_forwarded_while_it_could_not_be_recorded() -> None:
    entries = Entries()
    entries.refusing = True
    stack = PolicyStack([Audit(entries)])
    with pytest.raises(MCPError, match="the audit log cannot be written") as caught:
        await run(stack, call_of(), lambda _: failed(AssertionError("was forwarded")))
    assert caught.value.error.code == -32000
    assert caught.value.error.data == {"retryIn": 1.0}
    entries.refusing = False
    assert await run(stack, call_of(), lambda _: answered({"content": []})) == {"content": []}


@pytest.mark.parametrize(
    ("method", "name", "field"),
    [("tools/call", "db:drop", "tool"), ("resources/read", "x", "uri"), ("prompts/get", "db:review", "prompt")],
)
def test_what_was_denied_before_it_became_a_call_has_an_entry(method: str, name: str, field: str) -> None:
    entries = Entries()
    Audit(entries).denied(ANN, "web", method, name, "7", "not in the group")
    what = {field: name, "method": method, "outcome": "denied", "request_id": "7"}
    fields = {"principal": "ann", "group": "web", **what, "reason": "not in the group"}
    assert entries.all == [("denied", fields)]


def test_a_flood_of_failed_authentication_is_counted_and_not_written_out() -> None:
    entries = Entries()
    policy = Audit(entries)
    failures = 0
    while not any("unrecorded" in fields for _, fields in entries.all):
        policy.authentication_failed("192.0.2.7", "/mcp", "no such key")
        failures += 1
    assert {event for event, _ in entries.all} == {"authentication_failed"}
    assert entries.all[0][1] == {
        "principal": "anonymous",
        "client": "192.0.2.7",
        "path": "/mcp",
        "outcome": "denied",
        "reason": "no such key",
    }
    assert len(entries.all) > 100
    assert failures == len(entries.all) + entries.all[-1][1]["unrecorded"]


REFUSE: dict[str, Callable[[Audit, Principal, str], None]] = {
    "inside of a request": lambda audit, who, name: audit.denied(who, "web", "tools/call", name, "7", "not yours"),
    "a request": lambda audit, who, name: audit.request_denied(who, "web", name, "not yours"),
}


@pytest.mark.parametrize("refuse", REFUSE.values(), ids=REFUSE)
def test_a_flood_of_refusals_of_one_caller_is_counted_and_not_written_out(
    refuse: Callable[[Audit, Principal, str], None],
) -> None:
    entries, clock = Entries(), Clock()
    audit = Audit(entries, clock=clock)
    for _ in range(5000):
        refuse(audit, ANN, "db:drop")
    assert len(entries.all) == 100
    refuse(audit, Principal("bob"), "db:drop")
    assert entries.all[-1][1]["principal"] == "bob"
    clock.now += 0.11
    refuse(audit, ANN, "db:drop")
    assert (len(entries.all), entries.all[-1][1]["unrecorded"]) == (102, 4900)


def test_nobody_is_forgotten_whose_refusals_were_counted() -> None:
    entries = Entries()
    audit = Audit(entries)
    for _ in range(200):
        audit.request_denied(ANN, "web", "/", "not yours")
    for number in range(2000):
        audit.request_denied(Principal(f"p{number}"), "web", "/", "not yours")
    of_ann = [fields for _, fields in entries.all if fields["principal"] == "ann"]
    assert sum(fields.get("unrecorded", 1) for fields in of_ann) == 200
    assert len(audit._refused) <= 1000


@pytest.mark.parametrize("is_over", [False, True], ids=["a minute later", "at the end"])
async def test_the_last_refusals_of_a_flood_are_counted(tmp_path: Path, is_over: bool) -> None:
    file = tmp_path / "audit.jsonl"

    def counted() -> list[tuple[str, int]]:
        entries = [json.loads(line) for line in file.read_text().splitlines()]
        names = ("ann", "anonymous")
        return [(name, sum(e.get("unrecorded", 1) for e in entries if e["principal"] == name)) for name in names]

    counts_interval = 60.0 if is_over else 0.01
    policies = Policies(load_settings(audit=str(file)), has_auth=True, counts_interval=counts_interval)
    async with policies.open():
        for _ in range(500):
            policies.request_denied(ANN, "web", "/", "not yours")
            policies.authentication_failed("192.0.2.7", "/mcp", "no such key")
        if not is_over:
            await until(lambda: counted() == [("ann", 500), ("anonymous", 500)])
    assert counted() == [("ann", 500), ("anonymous", 500)]


@pytest.mark.parametrize("refuse", REFUSE.values(), ids=REFUSE)
def test_a_name_that_leads_nowhere_takes_little_of_the_log(refuse: Callable[[Audit, Principal, str], None]) -> None:
    entries = Entries()
    refuse(Audit(entries), ANN, "\U0001f600" * 4000)
    assert len(json.dumps(entries.all[-1][1])) < 900


def test_without_a_setting_there_is_no_audit() -> None:
    assert audit_of(load_settings()) is None


def test_the_settings_say_where_entries_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    before = os.umask(0)
    try:
        for place in ("~/log/audit.jsonl", "stdout"):
            policy = audit_of(load_settings(audit=place, audit_arguments="full"))
            assert policy is not None
            with policy.log:
                policy.after(call_of(arguments={"a": 1}), CallEnd("ok", 0.0123456))
    finally:
        os.umask(before)
    path = tmp_path / "log" / "audit.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for text in (path.read_text(), capfd.readouterr().out):
        entry = json.loads(text)
        assert list(entry)[:3] == ["time", "event", "principal"]
        assert (entry["arguments"], entry["duration_ms"]) == ({"a": 1}, 12.346)


def test_the_settings_say_how_large_files_become_and_how_many_are_kept(tmp_path: Path) -> None:
    policy = audit_of(load_settings(audit=str(tmp_path / "a"), audit_max_mb=0.0002, audit_keep=2))
    assert policy is not None
    for number in range(5):
        with policy.log:
            policy.denied(ANN, "web", "tools/call", f"tool{number}" + "x" * 100, "7", "no")
    names = [json.loads((tmp_path / name).read_text())["tool"][:5] for name in ("a", "a.1", "a.2")]
    assert names == ["tool4", "tool3", "tool2"]
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        {"z": 1, "a": None, "é": "ß", "\U0001f600": True, "\uffff": "", "": -5},
        {"text": "".join(map(chr, range(0x300))) + "\u2028\ufffd/"},
        {"lone": "\ud83d"},
        {"large": 2**70, "negative": -(2**63)},
        {"x": 1e16, "y": 1.0},
        {"nested": {"b": [1.5, {"d": 1, "c": 2}], "a": {}}},
        ["a", 1],
        "text",
    ],
)
def test_canonical_json_is_that_of_python(arguments: Any) -> None:
    usual = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical(arguments) == usual.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": [1, 2.5, "b c\\n\\"d\\" \xc3\xa9"], "b" : {}}',
        b'{"a":"\\u00e9 \\u0061"}',
        b'{"a":"\\/"}',
        b'{"a":"\\\\/"}',
    ],
)
def test_the_size_of_a_result_is_that_without_spaces_and_needless_escapes(text: bytes) -> None:
    usual = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()
    assert CallEnd("ok", 1.0, result=raw_json.read_parts(text)).response_bytes == len(usual)
