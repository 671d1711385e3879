"""The bridge: passes lines between the client on stdio and a hub, from one hub to the next.

Theory. One loop over three descriptors. Whatever takes time is a time by which it must have happened: a hub that does
not greet, one that cannot be started. While no hub serves, what the client says waits, and a client that was served
before is told first what it was told then; to any other a hub that starts answers the handshake, which it is told with
the greeting. What the next hub must know of the client is `ClientSession`'s business; in
which order it is told is decided here: the repeated handshake, the rest of what is repeated, what waits.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.client_end import ClientEnd, client_of_process
from fastmcp_aggregator.attach.client_session import ClientSession
from fastmcp_aggregator.attach.connection import Connection, ConnectionState
from fastmcp_aggregator.attach.envelope import read as envelope_of
from fastmcp_aggregator.attach.folder import Unusable, known_hubs, log_of, made_hub_folder
from fastmcp_aggregator.attach.identity import HubIdentity, difference, how_to_share
from fastmcp_aggregator.attach.peer import has_sent
from fastmcp_aggregator.attach.probe import DEFAULT_TIMINGS, Probe, Timings, Work
from fastmcp_aggregator.attach.starting import begin, connected, own_server, record_of
from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.early.answers import read as read_answers
from fastmcp_aggregator.early.known_client import KnownClient

_END_TIMEOUT = 60.0
"""Seconds that a hub which ends may keep the next one from being started."""
_RETRY = 0.02
"""Seconds between attempts to connect to a hub that somebody else starts or ends."""
_FIRST_WORD = 0.05
"""Seconds in which a client begins to speak, as a rule: a hub is told its handshake."""
_LONGEST_HANDSHAKE = 4096
"""Bytes, of which each takes 12 in a greeting at most."""
_WARM = 0.05
"""Seconds in which a hub that runs already greets, as a rule; so long the client is not read."""
_MOST_FAILURES = 3
"""Hubs in a row that end before they have served: then there is no sense in another."""
_MOST_HELD = 32 * 1024**2
"""Bytes of the client's lines that wait for a hub; then it is not read."""
_UNKNOWN = "whether the server has done what was asked is not known, and it is not asked again"
_LOST = f"the hub ended while it served this request; {_UNKNOWN}"
_HANGS = f"the hub does not answer; {_UNKNOWN}"


class Bridge:
    """One client's bridge."""

    def __init__(
        self,
        identity: HubIdentity,
        about: Mapping[str, Any],
        own_arguments: Sequence[str],
        answers: str,
        client: ClientEnd | None = None,
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        """`about` is what a hub is told of the client; `own_arguments` those of a server for this client alone;
        `answers` the name of what it is told first.
        """
        self._identity = identity
        self._about = about
        self._own_arguments = own_arguments
        self._answers = answers
        self._client = client or client_of_process()
        self._session = ClientSession()
        self._connection: Connection | None = None
        self._timings = timings
        self._greeting_timeout = timings.start_timeout
        """Seconds that the hub has to greet."""
        self._work = Work({})
        self._probe = Probe(identity.id, timings)
        self._known: KnownClient | None = None
        self._is_known_read = False
        self._listed: dict[str, str] = {}
        """Digests of the lists that the client has, as sent to the hub."""
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._is_idle = False
        """True if no hub is wanted before the client's next line."""
        self._was_served = False
        """True if a hub that is gone has served the client."""
        self._handshake: bytes | None = None
        """The client's first line, if the hub was told it."""
        self._wanted_since = time.monotonic()
        self._next_attempt = self._wanted_since + _FIRST_WORD
        self._poll = system.poll()
        self._watched: dict[int, int] = {}
        """Event masks by descriptor."""
        self._failures = 0
        """Hubs in a row that have ended before they served."""
        self._why_alone = ""
        """Why the client has a server of its own, until that has answered."""
        self._unsaid = ""
        """The message that is logged then."""
        self._exit_code: int | None = None
        """Set when there is nothing more to serve."""

    def run(self) -> int:
        """Serve the client until it leaves; the exit code."""
        try:
            while True:
                self._find_hub()
                if (code := self._end()) is not None:
                    return code
                self._wait()
                self._relay()
        finally:
            self._client.close()

    def _end(self) -> int | None:
        """Return the exit code once there is nothing left to do."""
        if self._client.is_gone:
            return 0
        is_served = self._connection is not None and self._connection.state is not ConnectionState.GREETING
        is_done = self._is_idle or not self._session.has_open
        if self._client.has_left and not is_served and not self._held and is_done:
            return 0
        return self._exit_code

    # Waiting for something to do.

    def _relay(self) -> None:
        """Pass on what comes, turn by turn, for as long as there is nothing else to do, as nearly always."""
        client, connection = self._client, self._connection
        if connection is None or not self._is_relaying(connection):
            return
        hub = connection.peer.fileno()
        self._watch({hub: system.POLLIN, client.stdin: system.POLLIN})
        while True:
            due_in = self._check_liveness(connection)
            if not self._is_relaying(connection):
                return
            ready = dict(self._poll.poll(_milliseconds(due_in)))
            if hub in ready:
                self._from_hub(connection)
            if client.stdin in ready:
                self._from_client(client.read())

    def _is_relaying(self, connection: Connection) -> bool:
        """True if the client and its server are both there and read without delay, and nothing else is awaited."""
        return (
            self._connection is connection
            and connection.state is ConnectionState.OPEN
            and not connection.has_unwritten
            and not self._client.has_unwritten
            and not self._client.has_left
            and not self._client.is_gone
            and not self._held
            and self._probe.descriptor is None
        )

    def _watch(self, masks: dict[int, int]) -> None:
        if masks != self._watched:
            for descriptor in self._watched:
                self._poll.unregister(descriptor)
            for descriptor, mask in masks.items():
                self._poll.register(descriptor, mask)
            self._watched = masks

    def _wait(self) -> None:
        masks = self._masks()
        self._watch(masks)
        ready = dict(self._poll.poll(self._poll_timeout()))
        client, connection = self._client, self._connection
        if client.stdout in ready and client.has_unwritten:
            client.flush()
        if connection is not None:
            if connection.write_end.fileno() in ready:
                connection.flush()
            if self._probe.descriptor is not None and self._probe.descriptor in ready:
                self._probe.heard()
            if connection.peer.fileno() in ready and masks[connection.peer.fileno()] & system.POLLIN:
                self._from_hub(connection)
        if client.stdin in ready and masks.get(client.stdin, 0) & system.POLLIN:
            self._from_client(client.read())

    def _masks(self) -> dict[int, int]:
        """Event masks to wait for, by descriptor."""
        client, connection, masks = self._client, self._connection, dict[int, int]()
        has_room = self._held_bytes < _MOST_HELD and (connection is None or connection.has_room)
        if not client.has_left and has_room and not self._is_warming_up:
            masks[client.stdin] = system.POLLIN
        if client.has_unwritten:
            masks[client.stdout] = masks.get(client.stdout, 0) | system.POLLOUT
        if connection is not None:
            if client.has_room:  # and not with an empty mask, for an end is told unasked
                masks[connection.peer.fileno()] = system.POLLIN
            if connection.has_unwritten:
                write_end = connection.write_end.fileno()
                masks[write_end] = masks.get(write_end, 0) | system.POLLOUT
        if self._probe.descriptor is not None:
            masks[self._probe.descriptor] = system.POLLIN
        return masks

    def _poll_timeout(self) -> float | None:
        """Milliseconds until something is to be done if nothing comes."""
        connection = self._connection
        if connection is None:
            return None if self._is_idle else max(0.0, self._next_attempt - time.monotonic()) * 1000
        if connection.state is not ConnectionState.GREETING:
            return _milliseconds(self._probe.due_in)
        bound = _WARM if self._is_warming_up else self._greeting_timeout
        return _milliseconds(max(0.0, bound - connection.age))

    @property
    def _is_warming_up(self) -> bool:
        """True if a hub that runs already has not greeted yet, as it will in a moment."""
        connection = self._connection
        if self._is_known_read or connection is None or connection.state is not ConnectionState.GREETING:
            return False
        return connection.age < _WARM

    # A hub.

    def _find_hub(self) -> None:
        """See that there is a hub, or that there will be."""
        if self._connection is not None:
            if self._connection.state is ConnectionState.GREETING:
                self._look_at_greeting(self._connection)
            else:
                self._check_liveness(self._connection)
            return
        now = time.monotonic()
        if self._is_idle or now < self._next_attempt or self._exit_code is not None:
            return
        try:
            made_hub_folder()
            peer = connected(self._identity.id)
            if peer is None and begin(self._identity):
                self._report_other_hubs()
                self._read_known()
                peer = connected(self._identity.id)
        except Unusable as why:
            self._serve_alone(str(why))
            return
        if peer is not None:
            self._listed = dict(self._session.listed)
            about = {**self._about, "listed": self._listed, **self._first_word()}
            self._connection = Connection(peer, greeting=greeting.line(greeting.CLIENT, **about))
            record = record_of(self._identity.id) or {}
            serves, timings = record.get("serves") is True, self._timings
            self._greeting_timeout = timings.greeting_timeout if serves else timings.start_timeout
            self._work = Work(record)
            return
        self._next_attempt = now + _RETRY
        self._read_known()
        if now > self._wanted_since + _END_TIMEOUT:
            self._serve_alone(
                f"the hub before it did not stop within {_END_TIMEOUT:g} s; `fastmcp-aggregator stop` kills it"
            )

    def _first_word(self) -> dict[str, str]:
        """The greeting to the hub, with the client's first lines."""
        is_first = bool(self._held) and not self._was_served
        self._handshake = self._held[0] if is_first and len(self._held[0]) <= _LONGEST_HANDSHAKE else None
        return {} if self._handshake is None else {"handshake": self._handshake.decode("utf-8", "replace")}

    def _look_at_greeting(self, connection: Connection) -> None:
        if connection.age > _WARM:
            self._read_known()
        if connection.age <= self._greeting_timeout:
            return
        if self._client.has_room and has_sent(connection.peer):
            return  # it came while this process had no processor, and is read now
        if self._work.goes_on():
            self._greeting_timeout = connection.age + self._timings.work_interval
            return
        self._drop(connection)
        self._serve_alone(f"the hub has not answered for {self._greeting_timeout:g} s")

    def _check_liveness(self, connection: Connection) -> float | None:
        """A hub that serves and then hangs is left: it keeps its lock, so there can be no other.

        Seconds until there is something to do; None: nothing is expected.
        """
        if not self._session.is_waiting or connection.exit_code is not None or not self._client.has_room:
            self._probe.rest()
            return None
        due_in = self._probe.look()
        if self._probe.is_dead:
            self._drop(connection)
            self._tell_lost(_HANGS)
            self._serve_alone("the hub has not answered for too long; `fastmcp-aggregator stop` ends it")
        return due_in

    def _read_known(self) -> None:
        if not self._is_known_read:
            self._is_known_read = True
            entries = read_answers(self._answers)
            self._known = KnownClient(entries) if entries else None
            self._flush_held()

    def _report_other_hubs(self) -> None:
        """A hub was started: say why those that serve the same config are others."""
        mine = self._identity
        for hub_id in known_hubs():
            record = None if hub_id == mine.id else record_of(hub_id)
            if record is None or record.get("config") != mine.config or record.get("name") != mine.name:
                continue  # who gives a hub a name wants another one
            differs = difference(mine.parts, record.get("parts") or {})
            greeting.say(
                f"The hub {record.get('name') or hub_id} serves {mine.config} too, and differs from that of this "
                f"client in {', '.join(differs)}. To share one, {how_to_share(differs)}."
            )

    def _serve_alone(self, why: str, *, is_failure: bool = False) -> None:
        """With `is_failure`, its own server most likely ends, too, and says the reason: that comes first, alone."""
        self._why_alone = why
        if is_failure:
            self._unsaid = f"No hub serves this client: {why}. It starts servers of its own."
        else:
            greeting.say(f"No hub serves this client: {why}. It starts servers of its own.")
        output, input_, exit_code = own_server(self._own_arguments)
        self._connection = Connection(output, write_end=input_, exit_code=exit_code)
        self._attached(self._connection)

    def _attached(self, connection: Connection) -> None:
        """Replay to the new connection what the client has set up."""
        connection.begin()
        self._known = None
        self._send(self._session.attached())
        if not self._session.is_introducing:
            self._flush_held()

    def _send(self, lines: Sequence[bytes]) -> None:
        if self._connection is not None and lines:
            self._connection.write(b"\n".join(lines) + b"\n")

    def _flush_held(self) -> None:
        held, self._held, self._held_bytes = self._held, deque(), 0
        self._from_client(held)

    # Input.

    def _from_hub(self, connection: Connection) -> None:
        told: list[bytes] = []
        self._probe.heard()
        for line in connection.read():
            if line.startswith(greeting.MARK):
                self._on_control_message(connection, line)
            elif connection.state is not ConnectionState.GREETING:
                was_introducing = self._session.is_introducing
                if (shown := self._session.received(line)) is not None:
                    told.append(shown)
                elif was_introducing and not self._session.is_introducing:
                    self._send(self._session.introduced())
                    self._flush_held()
            if self._connection is not connection:
                break
        if told:
            self._client.write(b"\n".join(told) + b"\n")
            if self._why_alone:
                if self._unsaid:
                    greeting.say(self._unsaid)
                self._why_alone = self._unsaid = ""
        if connection.is_lost and self._connection is connection:
            self._lost(connection)

    def _on_control_message(self, connection: Connection, line: bytes) -> None:
        try:
            what, about = greeting.read(line)
        except greeting.MalformedGreeting:
            return
        if what == greeting.INTRODUCED:
            self._introduced(str(about.get("answer")).encode())
        elif what == greeting.READY and self._listed != self._session.listed:
            self._drop(connection)  # the client has got lists while the hub started: tell it of these, too
        elif what == greeting.READY:
            if about.get("config") != self._identity.config:
                greeting.say(f"The hub {self._identity.name} serves {about.get('config')}.")
            self._attached(connection)
        elif what == greeting.STOPPING:
            connection.state = ConnectionState.ENDING
        elif what in (greeting.REFUSED, greeting.FAILED):
            self._drop(connection)
            log = log_of(self._identity.id)
            why = str(about.get("reason") or f"the hub has not started; {log} tells why")
            if what == greeting.FAILED and self._was_served:
                self._wait_for_mending(why)
            else:
                self._serve_alone(why, is_failure=what == greeting.FAILED)

    def _introduced(self, answer: bytes) -> None:
        """The hub, which starts, has answered the handshake."""
        if self._handshake is not None and self._held and self._held[0] is self._handshake:
            self._held_bytes -= len(self._held.popleft())
            self._tell_client(self._handshake, answer)

    def _tell_client(self, line: bytes, answer: bytes) -> None:
        """Answer a line of the client in the stead of what serves it."""
        self._session.sent(line)
        self._session.received(answer)
        self._client.write(answer + b"\n")

    def _from_client(self, lines: Sequence[bytes] | deque[bytes]) -> None:
        passed_on: list[bytes] = []
        for line in lines:
            if self._can_take(line):
                passed_on.append(line)
            elif (answer := None if self._known is None else self._known.answer(line)) is not None:
                self._tell_client(line, answer.rstrip())
            else:
                if not self._held:
                    self._next_attempt = 0.0
                self._held.append(line)
                self._held_bytes += len(line)
                if self._is_idle:
                    self._is_idle, self._wanted_since = False, time.monotonic()
        self._pass_on(passed_on)
        connection = self._connection
        is_served = connection is not None and connection.state is not ConnectionState.GREETING
        if connection is not None and is_served and self._client.has_left and not self._held:
            connection.finish()

    def _can_take(self, line: bytes) -> bool:
        connection = self._connection
        if connection is None or connection.state is ConnectionState.GREETING or self._session.is_introducing:
            return False
        if connection.state is ConnectionState.OPEN:
            return True
        message = envelope_of(line)
        return message.id is None or message.method is None

    def _pass_on(self, lines: Sequence[bytes]) -> None:
        self._send([sent for line in lines if (sent := self._session.for_hub(line)) is not None])
        for line in lines:  # the hub is at work meanwhile
            self._session.sent(line)

    # The end of a hub.

    def _lost(self, connection: Connection) -> None:
        was = connection.state
        self._drop(connection)
        self._wanted_since = time.monotonic()
        if connection.exit_code is not None:
            self._lost_own_server(connection.exit_code)
            return
        self._tell_lost(_LOST)
        self._was_served |= was is not ConnectionState.GREETING
        if self._client.has_left and not self._held:
            self._exit_code = 0
        elif was is ConnectionState.ENDING:
            self._is_idle = not self._held
        else:
            is_early = was is ConnectionState.GREETING or connection.age < self._timings.shortest_life
            self._failures = self._failures + 1 if is_early else 0
            if self._failures == _MOST_FAILURES:
                log = log_of(self._identity.id)
                self._serve_alone(f"{_MOST_FAILURES} hubs have ended before they could serve it; {log} may tell why")

    def _lost_own_server(self, exit_code: Callable[[], int]) -> None:
        if self._was_served and self._why_alone:
            why, self._why_alone, self._unsaid = self._why_alone, "", ""
            self._wait_for_mending(f"{why}, and a server of its own has ended with code {exit_code()}")
        else:
            self._tell_lost(_LOST)
            self._exit_code = exit_code()

    def _wait_for_mending(self, why: str) -> None:
        """No hub starts, and a server of its own fails alike: the client's next request tries again."""
        told = f"No hub can be started, and the next request tries again: {why}"
        greeting.say(told)
        held, self._held, self._held_bytes = self._held, deque(), 0
        for line in held:
            self._session.sent(line)
        self._tell_lost(told, is_last=True)
        self._failures, self._is_idle = 0, True

    def _tell_lost(self, why: str, *, is_last: bool = False) -> None:
        for line in self._session.lost(why, is_last=is_last):
            self._client.write(line + b"\n")

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._probe.rest()
        self._connection = None


def _milliseconds(seconds: float | None) -> float | None:
    """The timeout of a poll, rounded up so that it does not end before."""
    return None if seconds is None else seconds * 1000 + 1


def about_client(group: str | None, tool_search: bool | None) -> dict[str, Any]:
    """The description of this process's client that a hub gets."""
    try:
        folder: str | None = os.getcwd()
    except OSError:
        folder = None
    return {"folder": folder, "pid": os.getppid(), "group": group, "tool_search": tool_search}
