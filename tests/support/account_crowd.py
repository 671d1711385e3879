"""Many principals that call servers with accounts of their own, while tokens end, are renewed, and are revoked."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.account_hub import Around, address_in, around, log_in, retried
from support.wire_http import HttpClient

_AT_ONCE = 10
_MOST_LOGINS = 5
"""Over one call: its tokens may be revoked again before it is made."""


class Crowd:
    """The callers of one hub. `ended` counts how calls ended, and logins; `told` are the errors among them."""

    def __init__(self, place: Around, clients: dict[str, HttpClient], keys: list[str], chance: random.Random) -> None:
        self.place = place
        self.ended: Counter[str] = Counter()
        self.told: list[Any] = []
        self._clients = clients
        self._keys = keys
        self._chance = chance

    @property
    def is_clean(self) -> bool:
        """Whether no call went to another's account, and each ended with its result."""
        known = {f"{who}-there" for who in self._clients}
        made = {who for server in self.place.servers for who in server.calls}
        return made <= known and not self.ended.keys() - {"result", "login"}

    async def make(self, calls: int) -> None:
        """Make so many calls, a few at once; after each few, somebody's tokens are revoked somewhere."""
        while calls > 0:
            few = min(_AT_ONCE, calls)
            pairs = [(self._chance.choice(list(self._clients)), self._chance.choice(self._keys)) for _ in range(few)]
            await asyncio.gather(*(self._call(*pair) for pair in pairs))
            calls -= few
            server, who = self._chance.choice(self.place.servers), self._chance.choice(list(self._clients))
            server.revoke(f"{who}-there", also_refresh=self._chance.random() < 0.3)

    async def _call(self, who: str, key: str) -> None:
        asking: dict[str, Any] = {"name": f"{key}:whoami", "arguments": {}}
        message = asking
        for _ in range(_MOST_LOGINS):
            answer = await self._clients[who].send("tools/call", message)
            result = answer.get("result", {})
            if result.get("resultType") != "input_required":
                self._end(who, answer)
                return
            self.ended["login"] += 1
            page = await log_in(self.place, address_in(result), who)
            if page.status_code not in (200, 404):  # another call of this principal may have finished the same login
                self.told.append(page.text)
                self.ended["page"] += 1
            message = {**asking, **{name: retried(result)[name] for name in ("requestState", "inputResponses")}}
        self.ended["asked again and again"] += 1

    def _end(self, who: str, answer: dict[str, Any]) -> None:
        if answer.get("result", {}).get("structuredContent") == {"who": f"{who}-there"}:
            self.ended["result"] += 1
            return
        self.ended["error" if "error" in answer else "another's"] += 1
        self.told.append(answer)


@asynccontextmanager
async def crowd(folder: Path, people: int, servers: int, seed: int = 1) -> AsyncIterator[Crowd]:
    """So many principals, none of which has logged in to any of the servers."""
    names = [f"p{number}" for number in range(people)]
    keys = ["crm", *(f"crm{number}" for number in range(1, servers))]
    settings = {"max_isolated_sessions": people * servers, "rate_limit": 0}
    async with around(folder, servers=servers, people=names, **settings) as place:
        clients = {who: await place.client(who, modern=True) for who in names}
        yield Crowd(place, clients, keys, random.Random(seed))
