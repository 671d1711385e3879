"""A lean child that talks: it says and asks what the script in a call tells it to, after the call too.

    python talking_child.py '{"era": "modern"}'

It takes the options of the lean child, `both` as its era (then the first handshake decides), and:

- `hints`: what its lists carry besides, by key, such as `{"tools": {"ttlMs": 5}}`.
- `errors`: the error that requests of a method are answered with, by method.
- `gate`: a method whose requests wait until `open_gate` is called.

Its tools beside those of the lean child:

- `play` plays a `script`, a list of steps; the result is what the steps that bring something brought. The prompt `play`
  does the same with JSON in its argument `script`, and so does the resource `talk://play/SCRIPT`, percent-encoded.
- `open` lets the scripts go on that wait at a `gate`.
- `report` tells what the child has been told and asked so far; see `Talk.report`.

| step | what it does |
|---|---|
| `{"say": METHOD, "params": {…}}` | sends a notification |
| `{"progress": [1, 3, "message"]}` | reports progress on the call, if progress was asked for |
| `{"ask": {NAME: {"method": …, "params": …}, …}}` | asks the client all of it at once; brings the answers by name |
| `{"again": true}` | a modern child: answers with a `requestState` and no question, once |
| `{"wait": GATE}` | waits for the gate |
| `{"fail": {"code": …}}` | answers with this error |
| `{"update": URI}` | tells those who follow it that a resource has changed |
| `{"changed": "tools"}` | tells that a list has changed |
| `{"later": [STEP, …]}` | keeps a script that is played when the process gets SIGUSR1, with no call in flight |
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
from typing import Any
from urllib.parse import unquote

from lean_child import SUBSCRIPTION_ID, Child

CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
FILTERS = {"tools": "toolsListChanged", "resources": "resourcesListChanged", "prompts": "promptsListChanged"}
SCRIPT = "talk://play/"
Message = dict[str, Any]


class Play:
    """A script that is being played, for one request or for none. `out` is where what it says goes."""

    def __init__(self, script: list[Message], *, request: Message | None = None, out: Any = None) -> None:
        self.script = script
        self.request = request
        self.out = out
        self.at = 0
        self.brought: list[Any] = []
        self.answers: dict[str, Any] = {}
        self.open: set[str] = set()

    @property
    def params(self) -> Message:
        return (self.request or {}).get("params") or {}

    @property
    def meta(self) -> Message:
        return self.params.get("_meta") or {}


class Talk(Child):
    """The child. `out` takes what it says now; over HTTP that is another stream for each request."""

    def __init__(
        self,
        *,
        hints: dict[str, Message] | None = None,
        errors: dict[str, Message] | None = None,
        gate: str | None = None,
        **options: Any,
    ) -> None:
        extra = {"tool_names": ["play", "open", "report", *options.pop("tool_names", [])]}
        defaults = {
            "capabilities": CAPABILITIES,
            "resources": [{"uri": "note:///a", "name": "a"}],
            "templates": [{"uriTemplate": "note:///{id}", "name": "notes"}],
            "prompts": [{"name": "play", "arguments": [{"name": "script"}]}],
        }
        super().__init__(**{**defaults, **options, **extra})
        self.hints = hints or {}
        self.errors = errors or {}
        self.gate = gate
        self.at_gate: list[tuple[Message, Any]] = []
        self.out: Any = self.write
        self.plays: list[Play] = []
        self.gates: dict[str, list[Play]] = {}
        self.kept: list[Message] = []
        self.questions = itertools.count(1)
        self.client: Message = {}
        self.notifications: list[list[Any]] = []
        self.requests: list[list[Any]] = []
        self.answers_outside: list[Any] = []
        self.followed: dict[Any, Message] = {}
        self.stream_outs: dict[Any, Any] = {}

    # Wire.

    def write(self, *messages: Message) -> None:
        self.write_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def send(self, *messages: Message) -> None:
        self.out(*({"jsonrpc": "2.0", **message} for message in messages))

    def asked(self, message: Message) -> None:
        if self.era == "both":
            self.era = "legacy" if message["method"] == "initialize" else "modern"
        if message["method"] == self.gate:
            self.at_gate.append((message, self.out))
            return
        self.request = message
        if message["method"] not in ("tools/call", "server/discover", "initialize"):
            self.requests.append([message["method"], message.get("params") or {}])
        super().asked(message)

    def open_gate(self) -> None:
        """Take the requests that wait, and those to come."""
        self.gate = None
        for message, out in self.at_gate:
            self.out = out
            self.asked(message)

    def told(self, method: str, params: Message) -> None:
        self.notifications.append([method, params])
        super().told(method, params)

    def answered(self, message: Message) -> None:
        play = next((play for play in self.plays if message["id"] in play.open), None)
        if play is None:
            return
        play.open.remove(message["id"])
        answer = message["result"] if "result" in message else {"error": message["error"]}
        play.answers[message["id"].partition("/")[2]] = answer
        if not play.open:
            self.bring(play, play.answers)

    def cancel(self, request_id: Any) -> None:
        self.followed.pop(request_id, None)
        for play in [play for play in self.plays if play.request and play.request["id"] == request_id]:
            self.plays.remove(play)
            for waiting in self.gates.values():
                waiting[:] = [other for other in waiting if other is not play]
            for question in sorted(play.open):
                self.notify("notifications/cancelled", {"requestId": question})
        super().cancel(request_id)

    # Requests.

    def answer(self, request_id: Any, method: str, params: Message) -> Message | None:
        if method in self.errors:
            raise LookupError(self.errors[method])
        if method == "completion/complete":
            params.pop("_meta", None)
            return {"completion": {"values": [json.dumps(params, sort_keys=True)], "hasMore": False}}
        if method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel") and self.era == "legacy":
            return {}
        if method == "subscriptions/listen":
            self.followed[request_id] = params["notifications"]
            self.stream_outs[request_id] = self.out
        return super().answer(request_id, method, params)

    def page(self, key: str, params: Message) -> Message:
        return {**super().page(key, params), **self.hints.get(key, {})}

    def read(self, params: Message) -> Message | None:
        if params["uri"].startswith(SCRIPT):
            return self.start(json.loads(unquote(params["uri"].removeprefix(SCRIPT))))
        return super().read(params)

    def prompt(self, params: Message) -> Message | None:
        if script := (params.get("arguments") or {}).get("script"):
            return self.start(json.loads(script))
        return super().prompt(params)

    def call_play(self, _: Any, arguments: Message, __: Any) -> None:
        return self.start(arguments["script"])

    def call_open(self, _: Any, arguments: Message, __: Any) -> Message:
        plays = self.gates.pop(arguments["gate"], [])
        out = self.out
        for play in plays:
            self.bring(play, arguments["gate"])
        self.out = out
        return self.text({"opened": len(plays)})

    def call_report(self, _: Any, __: Any, params: Message) -> Message:
        return self.text(self.report(params.get("_meta")))

    def report(self, meta: Any = None) -> Message:
        return {
            "client": self.client,
            "meta": meta,
            "notifications": self.notifications,
            "requests": self.requests,
            "answers": self.answers_outside,
            "waiting": sorted(gate for gate, plays in self.gates.items() if plays),
            "playing": len(self.plays),
            "followed": list(self.followed.values()),
        }

    # Playing.

    def start(self, script: list[Message]) -> None:
        play = Play(script, request=self.request, out=self.out)
        self.plays.append(play)
        state = play.params.get("requestState")
        if state is None:
            self.go_on(play)
            return
        play.at, play.brought, play.answers = json.loads(state)
        step = play.script[play.at]
        play.answers |= play.params.get("inputResponses") or {}
        if "again" in step or play.answers.keys() >= step["ask"].keys():
            self.bring(play, play.answers or "again")
        else:
            self.go_on(play)

    def bring(self, play: Play, what: Any) -> None:
        play.brought.append(what)
        play.answers = {}
        play.at += 1
        self.go_on(play)

    def go_on(self, play: Play) -> None:
        self.out = play.out
        while play.at < len(play.script):
            ((verb, value), *rest) = play.script[play.at].items()
            if not getattr(self, f"do_{verb}")(play, value, **dict(rest)):
                return
            play.at += 1
        self.end(play)

    def end(self, play: Play) -> None:
        self.plays.remove(play)
        if play.request is None:
            self.answers_outside += play.brought
            return
        text = self.text(play.brought)
        shapes: dict[str, Message] = {
            "tools/call": text,
            "prompts/get": {"messages": [{"role": "user", "content": text["content"][0]}]},
            "resources/read": {
                "contents": [{"uri": play.params.get("uri"), **text["content"][0]}],
                **({"ttlMs": 0, "cacheScope": "private"} if self.era == "modern" else {}),
            },
        }
        self.reply(play.request["id"], shapes[play.request["method"]])

    def do_say(self, play: Play, method: str, params: Message | None = None) -> bool:
        self.notify(method, params)
        return True

    def do_progress(self, play: Play, values: list[Any]) -> bool:
        if "progressToken" in play.meta:
            fields = dict(zip(("progress", "total", "message"), values, strict=False))
            self.notify("notifications/progress", {"progressToken": play.meta["progressToken"], **fields})
        return True

    def do_ask(self, play: Play, questions: dict[str, Message]) -> bool:
        if self.era == "modern":
            missing = {name: question for name, question in questions.items() if name not in play.answers}
            self.ask_for_input(play, missing)
            return False
        number = next(self.questions)
        play.open = {f"question-{number}/{name}" for name in questions}
        self.send(*({"id": f"question-{number}/{name}", **question} for name, question in questions.items()))
        return False

    def do_again(self, play: Play, _: Any) -> bool:
        self.ask_for_input(play, {})
        return False

    def ask_for_input(self, play: Play, questions: dict[str, Message]) -> None:
        assert play.request is not None
        self.plays.remove(play)
        state = json.dumps([play.at, play.brought, play.answers])
        asked = {"inputRequests": questions} if questions else {}
        self.reply(play.request["id"], {"resultType": "input_required", "requestState": state, **asked})

    def do_wait(self, play: Play, gate: str) -> bool:
        self.gates.setdefault(gate, []).append(play)
        self.complain(f"waiting at {gate}")
        return False

    def do_fail(self, play: Play, error: Message) -> bool:
        assert play.request is not None
        self.plays.remove(play)
        self.send({"id": play.request["id"], "error": error})
        return False

    def do_update(self, play: Play, uri: str) -> bool:
        if self.era == "legacy":
            self.notify("notifications/resources/updated", {"uri": uri})
        for stream, wanted in self.followed.items():
            if any(uri.startswith(followed) for followed in wanted.get("resourceSubscriptions") or ()):
                self.notify_stream(stream, "notifications/resources/updated", {"uri": uri})
        return True

    def do_changed(self, play: Play, kind: str) -> bool:
        if self.era == "legacy":
            self.notify(f"notifications/{kind}/list_changed")
        for stream, wanted in self.followed.items():
            if wanted.get(FILTERS[kind]):
                self.notify_stream(stream, f"notifications/{kind}/list_changed", {})
        return True

    def notify_stream(self, stream: Any, method: str, params: Message) -> None:
        out, self.out = self.out, self.stream_outs[stream]
        self.notify(method, {**params, "_meta": {SUBSCRIPTION_ID: stream}})
        self.out = out

    def do_later(self, play: Play, script: list[Message]) -> bool:
        self.kept = script
        return True

    def play_outside(self, *script: Message) -> None:
        """Play a script for no request."""
        play = Play(list(script), out=self.write)
        self.plays.append(play)
        self.go_on(play)


class SignalledTalk(Talk):
    """It plays the script that was kept when SIGUSR1 comes, between two messages: not while it writes one."""

    def serve(self) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: self.play_outside(*self.kept))
        super().serve()

    def take(self, message: Message) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        try:
            super().take(message)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


if __name__ == "__main__":
    child = SignalledTalk(**(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}))
    child.serve()
