"""What real servers say and ask unasked reaches the client as it does directly: the same, in the same order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from real_answers import Event, Message, canonical, events
from real_fronts import ASKABLE_FRONTS, LEGACY_FRONTS, RESIDENT_FRONTS
from real_requests import Asked, call
from real_servers import requires_servers
from real_talks import Both, Talk
from support.wire import until

pytestmark = [pytest.mark.real, requires_servers, pytest.mark.asyncio(loop_scope="session")]

each_askable_front = pytest.mark.parametrize("both", ASKABLE_FRONTS, ids=str, indirect=True)
each_resident_front = pytest.mark.parametrize("both", RESIDENT_FRONTS, ids=str, indirect=True)
each_legacy_front = pytest.mark.parametrize("both", LEGACY_FRONTS, ids=str, indirect=True)

SAMPLING = call("everything", "trigger-sampling-request", prompt="Grüße", maxTokens=50)
FORM = call("everything", "trigger-elicitation-request")
URL = call("everything", "trigger-url-elicitation", url="https://example.org/", message="Open", elicitationId="an id")
URL_FIRST = call("everything", "trigger-url-elicitation", url="https://example.org/", errorPath=True)
LOGGING = call("everything", "toggle-simulated-logging")
UPDATES = call("everything", "toggle-subscriber-updates")
UPDATED = "notifications/resources/updated"
DECLINED: Message = {"result": {"action": "decline"}}
CANCELLED: Message = {"result": {"action": "cancel"}}
STREAM_IS_OVER = {"code": -32800, "message": "Request cancelled"}
"""What the SDK's HTTP server ends the stream of a legacy client's cancelled request with."""


def long(duration: float, steps: int) -> Asked:
    return call("everything", "trigger-long-running-operation", duration=duration, steps=steps)


def entity(name: str) -> Asked:
    return call("memory", "create_entities", entities=[{"name": name, "entityType": "person", "observations": []}])


@each_askable_front
@pytest.mark.parametrize(
    ("asked", "answers"),
    [
        (SAMPLING, {}),
        (FORM, {}),
        (FORM, {"elicitation": DECLINED}),
        (FORM, {"elicitation": CANCELLED}),
        (URL, {"elicitation": {"result": {"action": "accept"}}}),
        (URL, {"elicitation": DECLINED}),
    ],
)
async def test_a_question_and_what_comes_of_the_answer_are_the_servers_own(
    both: Both, asked: Asked, answers: dict[str, Message]
) -> None:
    async def scene(talk: Talk) -> None:
        with talk.answering(**answers):
            await talk.ask(asked)

    front, direct = both.talks("everything")
    heard = await front.heard(scene)
    assert [kind for kind, *_ in heard] == ["asked", "answered"]
    assert canonical(heard) == canonical(await direct.heard(scene))


@each_legacy_front
async def test_a_client_that_refuses_to_answer_is_understood_as_it_is_directly(both: Both) -> None:
    async def scene(talk: Talk) -> None:
        refusal = {"error": {"code": -1, "message": "The user said no", "data": {"reason": "ünwilling"}}}
        with talk.answering(sampling=refusal):
            await talk.ask(SAMPLING)

    front, direct = both.talks("everything")
    heard = await front.heard(scene)
    assert "The user said no" in canonical(heard[-1])
    assert canonical(heard) == canonical(await direct.heard(scene))


@each_askable_front
async def test_a_url_that_must_be_opened_first_is_named_in_the_error_and_the_next_call_goes_on(both: Both) -> None:
    async def scene(talk: Talk) -> None:
        await talk.ask(URL_FIRST)
        await talk.ask(URL_FIRST)

    front, direct = both.talks("everything")
    heard = await front.heard(scene)
    assert [kind for kind, *_ in heard] == ["answered", "asked", "answered"]
    assert heard[0][2]["error"]["data"]["elicitations"]
    assert canonical(heard) == canonical(await direct.heard(scene))


@each_askable_front
async def test_the_roots_are_asked_for_and_used_as_they_are_directly(both: Both) -> None:
    """A server that has its client for itself asks after the handshake; any other when a call first needs them."""
    front, direct = both.talks("everything")
    asked, logged = [event for event in events(direct.client.messages) if event[0] != "answered"][:2]
    assert asked[:2] == ("asked", "roots/list")
    meta = await front.want_logs("info") if front.client.is_modern else {}
    roots = call("everything", "get-roots-list")
    heard = await front.heard(lambda talk: talk.ask(roots, **meta))
    (answered,) = await direct.heard(lambda talk: talk.ask(roots))
    assert "file:///nowhere/two" in canonical(answered)
    assert canonical(heard) == canonical([answered] if both.kind.is_resident else [asked, logged, answered])


@each_resident_front
async def test_changed_roots_are_asked_for_again_by_every_server_that_has_the_client_for_itself(both: Both) -> None:
    async def changed(talk: Talk, readers: int) -> None:
        talk.client.notifications.clear()
        before = len(talk.client.questions)
        talk.client.notify("notifications/roots/list_changed")
        await talk.client.heard("notifications/message")
        await until(lambda: len(talk.client.questions) == before + readers)

    front, direct = both.talks("everything")
    asked, logged = await direct.heard(lambda talk: changed(talk, 1))
    assert asked[:2] == ("asked", "roots/list")
    expected = [*[asked] * len(both.roots_readers), logged]
    heard = await front.heard(lambda talk: changed(talk, len(both.roots_readers)))
    assert canonical(sorted(heard)) == canonical(expected)


@each_askable_front
@pytest.mark.parametrize("token", ["the caller's", 7, None])
async def test_progress_arrives_under_the_callers_token_in_order_and_before_the_result(both: Both, token: Any) -> None:
    meta = {} if token is None else {"progressToken": token}
    front, direct = both.talks("everything")
    heard = await front.heard(lambda talk: talk.ask(long(0.2, 4), **meta))
    assert [kind for kind, *_ in heard] == ["told"] * (0 if token is None else 4) + ["answered"]
    assert canonical(heard) == canonical(await direct.heard(lambda talk: talk.ask(long(0.2, 4), **meta)))


@each_askable_front
async def test_progress_of_calls_at_the_same_time_arrives_under_the_token_of_each(both: Both) -> None:
    async def scene(talk: Talk) -> None:
        await asyncio.gather(*(talk.ask(long(0.3, steps), progressToken=f"{steps} steps") for steps in (2, 3, 6)))

    def in_groups(heard: list[Event]) -> dict[str, list[Event]]:
        groups: dict[str, list[Event]] = {}
        for event in heard:
            groups.setdefault(event[2].get("progressToken", "answered"), []).append(event)
        return {**groups, "answered": sorted(groups["answered"], key=canonical)}

    front, direct = both.talks("everything")
    heard = in_groups(await front.heard(scene))
    assert [len(heard[f"{steps} steps"]) for steps in (2, 3, 6)] == [2, 3, 6]
    assert canonical(heard) == canonical(in_groups(await direct.heard(scene)))


@each_askable_front
async def test_log_messages_of_a_call_arrive_from_the_wanted_level_on_and_before_its_result(both: Both) -> None:
    async def scene(talk: Talk) -> None:
        meta = await talk.want_logs("warning")
        for _ in range(8 * 2):  # every second call begins to log, with the next of the eight levels
            await talk.ask(LOGGING, **meta)
        await talk.want_logs("debug")

    front, direct = both.talks("everything")
    heard = calls_alone(await front.heard(scene))
    levels = [event[2]["level"] for event in heard if event[0] == "told"]
    assert levels == ["warning", "error", "critical", "alert", "emergency"]
    assert canonical(heard) == canonical(calls_alone(await direct.heard(scene)))


def calls_alone(heard: list[Event]) -> list[Event]:
    """Without the answers to `logging/setLevel`, which modern clients do not send."""
    return [event for event in heard if event != ("answered", "", {"result": {}})]


@each_askable_front
async def test_changes_of_a_followed_resource_are_told_under_its_public_address_until_it_is_left(both: Both) -> None:
    async def scene(talk: Talk) -> None:
        leave = await talk.follow("memory://knowledge-graph")
        for name in ("Ada", "Bob"):
            await talk.ask(entity(name))
            await talk.client.heard(UPDATED)
        await leave()
        await talk.ask(entity("Eve"))

    front, direct = both.talks("memory")
    heard = calls_alone(await front.heard(scene))
    assert [event[2] for event in heard if event[1] == UPDATED] == [{"uri": "memory://memory/knowledge-graph"}] * 2
    assert both.sequence(heard) == both.sequence(calls_alone(await direct.heard(scene)))


@each_askable_front
async def test_updates_and_what_a_server_logs_about_them_are_the_servers_own(both: Both) -> None:
    """A server that has its client for itself can log to it between calls; otherwise nobody knows for whom that is."""

    async def scene(talk: Talk) -> None:
        leave = await talk.follow("demo://resource/dynamic/text/3")
        await talk.ask(UPDATES)
        await talk.client.heard(UPDATED)
        await talk.ask(UPDATES)
        await leave()

    front, direct = both.talks("everything")
    heard = calls_alone(await front.heard(scene))
    expected = calls_alone(await direct.heard(scene))
    logs = [event for event in expected if event[1] == "notifications/message"]
    assert len(logs) == 2
    if not both.kind.is_resident:
        expected = [event for event in expected if event not in logs]
    assert both.sequence(heard) == both.sequence(expected)


@each_askable_front
async def test_a_cancelled_call_gets_no_result_and_the_next_one_does(both: Both) -> None:
    async def scene(talk: Talk) -> None:
        talk.client.notifications.clear()
        params = {**talk.params(long(0.5, 5)), "_meta": {"progressToken": "cancelled"}}
        request_id, answer = talk.client.begin("tools/call", params)
        await talk.client.heard("notifications/progress")
        talk.cancel(request_id)
        await talk.ask(long(0.6, 1))
        assert not answer.done() or answer.result()["error"] == STREAM_IS_OVER

    def is_of_the_server(event: Event) -> bool:
        # How far a server goes with what is cancelled is its own affair.
        return event[2].get("progress", 1) == 1 and event[2].get("error") != STREAM_IS_OVER

    front, direct = both.talks("everything")
    heard = [event for event in await front.heard(scene) if is_of_the_server(event)]
    assert [kind for kind, *_ in heard] == ["told", "answered"]
    assert canonical(heard) == canonical([event for event in await direct.heard(scene) if is_of_the_server(event)])
