"""Calls to servers at which each caller has an account of its own: with it, or after the person was asked to log in.

| the client | who has no account there |
|---|---|
| legacy, can be asked to open an address | is asked, and the call goes on when the login is finished |
| modern, the same | gets an `InputRequiredResult`; the call that comes back goes on when the login is finished |
| any other | an error (-32042) with the address, in words that a person can follow |

A modern client is asked over a call, a read or a prompt alone, for other requests have no such answer.

An address is for one principal, and links nothing for anybody else (`oauth/logins.py`). A call that a server has
refused for its token was not executed, so it may be made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, URL_ELICITATION_REQUIRED
from mcp_types.methods import INPUT_REQUIRED_METHODS

from fastmcp_aggregator.callers.call import Call, Denied
from fastmcp_aggregator.callers.caller import ignore_progress
from fastmcp_aggregator.catalogue.login import login_tool
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.session.transport_failure import HttpFailed
from fastmcp_aggregator.concurrency.limiter import released_while_waiting
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.oauth.account import Account, ExchangeAccount
from fastmcp_aggregator.oauth.accounts import Accounts
from fastmcp_aggregator.oauth.authorization import Refused
from fastmcp_aggregator.oauth.logins import LOGIN_LIFETIME, Login, LoginOverError, Logins, Site
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.protocol import client_capabilities
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.protocol.methods import (
    ELICIT,
    ELICITATION_COMPLETE,
    METHODS,
    PROMPTS_GET,
    TOOLS_CALL,
    Recipient,
)
from fastmcp_aggregator.relay.instances.caller_catalogues import CallerCatalogues
from fastmcp_aggregator.relay.instances.instances import Instances
from fastmcp_aggregator.relay.remote_tasks import RemoteCaller
from fastmcp_aggregator.relay.rounds import RETRY_PARAMS, forwarded
from fastmcp_aggregator.relay.tasks import Tasks

_PREFIX = "login-"
"""How the `requestState` of a call begins that waits for a login."""
_NAME = "login"
_URL: Mapping[str, Any] = {"elicitation": {"url": {}}}
_NAMED = {TOOLS_CALL.name: Kind.TOOL, PROMPTS_GET.name: Kind.PROMPT}
_LOGINS = 2
"""How often a person is asked over one call: the first tokens may not do."""


class AccountCalls:
    """Makes calls with the accounts of their callers. Owned by one `Runtime`."""

    def __init__(
        self, accounts: Accounts, logins: Logins, instances: Instances, tasks: Tasks, catalogues: CallerCatalogues
    ) -> None:
        self._accounts = accounts
        self._logins = logins
        self._instances = instances
        self._tasks = tasks
        self._catalogues = catalogues

    async def ask(self, call: Call, site: Site) -> Result:
        """The result of a call, or what the person is to do first.

        Raises:
            ChildServerError: the server cannot be asked, or the call is unauthenticated.
            MCPError: the server's own error, or the person has to log in and cannot be asked, or did not.
        """
        principal = call.caller.account
        if not isinstance(principal, str):
            reason = "it is called with each caller's own account, so callers have to authenticate"
            raise ChildServerError(site.key, "runtime", reason)
        if METHODS[call.method].recipient is Recipient.CHILDREN:
            return await (self._proceed(call) if site.settings.lists == "caller" else _listed_to_all(call))
        if site.settings.account == "exchange":
            return await self._exchanged(call, site, principal)
        try:
            return await self._called(call, site, principal)
        except (VaultError, LoginOverError, Refused) as error:
            raise _not_logged_in(site.key, str(error)) from None

    async def _called(self, call: Call, site: Site, principal: str) -> Result:
        if _continues_login(call):
            login = await self._resumed_login(call, site, principal)
            call.params = {name: value for name, value in call.params.items() if name not in RETRY_PARAMS}
            if login is not None:
                await self._until_finished(login, call, site)
        for _ in range(_LOGINS):
            is_needed = await self._is_needed(call, site, principal)
            if not is_needed:
                try:
                    return await self._proceed(call)
                except ChildServerError as error:
                    if not error.login_needed:
                        raise
            login = await self._logins.begin(principal, site.key)
            if is_needed and not await self._is_needed(call, site, principal):
                continue  # the person has just logged in, over another call
            if call.caller.is_modern:
                return self._asked_first(call, login)
            await self._ask(call, login, site)
        raise _not_logged_in(site.key, "it does not take the account that was logged in to")

    async def _exchanged(self, call: Call, site: Site, principal: str) -> Result:
        """A call with what the caller's own token is exchanged for."""
        account = self._accounts.account(site.url, site.settings, principal)
        assert isinstance(account, ExchangeAccount)
        if call.caller.bearer is None:
            reason = "it is called with a token of an identity provider, and this caller has authenticated otherwise"
            raise ChildServerError(site.key, "runtime", reason)
        account.offer(call.caller.bearer)
        had_failed = account.why_refused is not None
        try:
            await _authorize(account, call)
        except HttpFailed as error:
            raise ChildServerError(site.key, "runtime", error.failure.reason) from None
        if had_failed:
            self._instances.renew(call.child, principal)
        return await self._proceed(call)

    async def _is_needed(self, call: Call, site: Site, principal: str) -> bool:
        """True if there are no usable tokens."""
        try:
            await _authorize(self._accounts.account(site.url, site.settings, principal), call)
        except HttpFailed as error:
            if error.failure.kind == "login":
                return True
            raise ChildServerError(site.key, "runtime", error.failure.reason) from None
        return False

    async def _proceed(self, call: Call) -> Result:
        async with self._tasks.serving(call) as child:
            if call.task is None and call.child.stands_for_instances:
                if child.session is None:
                    await child.calls.session(call.caller)
                if not self._is_listed(call, child):
                    return _after_login(call)
            return await self._tasks.ask(child, call)

    def _is_listed(self, call: Call, instance: Child) -> bool:
        """True if the caller's own account sees the component; it may have been named before there was one."""
        kind = _NAMED.get(call.method)
        if kind is not None:
            return self._catalogues.has(instance, kind, call.name)
        return instance.catalogue is None or not instance.catalogue.withholds(call.name)

    def _asked_first(self, call: Call, login: Login) -> Result:
        """The request to a modern client for a login before it calls again."""
        self._require_askable(call, login)
        question = {"method": ELICIT.name, "params": self._question(login)}
        return {
            "resultType": "input_required",
            "inputRequests": {_NAME: question},
            "requestState": f"{_PREFIX}{login.id}",
        }

    async def _ask(self, call: Call, login: Login, site: Site) -> None:
        """Ask a legacy client, and wait until the login is finished."""
        self._require_askable(call, login)
        answer = await call.caller.ask(
            ELICIT.name, {**self._question(login), "elicitationId": login.id}, ignore_progress
        )
        _require_accepted(answer, site.key)
        await self._until_finished(login, call, site)
        call.caller.notify(ELICITATION_COMPLETE.name, {"elicitationId": login.id})

    async def _resumed_login(self, call: Call, site: Site, principal: str) -> Login | None:
        """The login for which a modern client has come back; None: it is over, with tokens or without.

        Raises:
            MCPError: it is none of this principal and server, or the person has refused.
        """
        login_id = str(call.params["requestState"]).removeprefix(_PREFIX)
        answers = call.params.get("inputResponses")
        if not isinstance(answers, Mapping):
            raise MCPError(INVALID_PARAMS, "Invalid request parameters: inputResponses: must be an object")
        _require_accepted(answers.get(_NAME), site.key)
        login = await self._logins.known(login_id)
        if login is not None and (login.principal, login.server) != (principal, site.key):
            told = _not_logged_in(site.key, "this login is over; call again, and open the new address")
            raise Denied(told.code, told.message, reason="the login belongs to another caller, or to another server")
        return login

    async def _until_finished(self, login: Login, call: Call, site: Site) -> None:
        with released_while_waiting.get()():
            is_finished = await self._logins.until_finished(login, site.url, LOGIN_LIFETIME)
        if not is_finished:
            raise _not_logged_in(site.key, "nobody has logged in in time; call again, and open the new address")
        if self._logins.ends(login):  # over the first of its calls; the others go on with what that one has begun
            self._accounts.account(site.url, site.settings, login.principal).forget()
            self._instances.renew(call.child, login.principal)

    def _require_askable(self, call: Call, login: Login) -> None:
        """Tell a client that cannot be asked what its person is to do."""
        is_answered_by_question = call.method in INPUT_REQUIRED_METHODS and not call.is_inner
        if client_capabilities.has(call.caller.capabilities, _URL) and (
            is_answered_by_question or not call.caller.is_modern
        ):
            return
        question = {**self._question(login), "elicitationId": login.id}
        text = f"server {login.server!r}: {question['message']} Open {question['url']} and then call again."
        raise MCPError(URL_ELICITATION_REQUIRED, text, {"elicitations": [question]})

    def _question(self, login: Login) -> dict[str, Any]:
        message = f"Log in to {login.server!r} with your own account, as {login.principal}, to go on."
        return {"mode": "url", "url": self._logins.address(login), "message": message}


async def _authorize(account: Account, call: Call) -> None:
    """Have tokens that can be used, by the deadline of a call, of which it takes what it waits for them. A renewal goes
    on without it.

    Raises:
        HttpFailed: there are none.
        ChildServerError: no answer came in time.
    """
    deadlines = call.child.options.deadlines
    limit = deadlines.by_method.get(call.method, deadlines.call)
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(limit - call.spent):
            await account.authorization()
    except TimeoutError:
        reason = f"its authorization server has not answered within {limit:g} s"
        raise ChildServerError(call.child.key, "runtime", reason) from None
    finally:
        call.spent += loop.time() - began


async def _listed_to_all(call: Call) -> Result:
    """A page of what the hub's own account sees, asked for in nobody's name."""
    nobody = RemoteCaller(None, call.caller.capabilities)
    nobody.holder = call.caller.holder
    return await call.child.calls.request(
        call.method, forwarded(call.child, call.params, call.target.address), caller=nobody
    )


def _after_login(call: Call) -> Result:
    """The answer to a call of a component that is not listed to the caller, if the call was to log in.

    Raises:
        MCPError: it was not.
    """
    key = call.child.key
    if call.method == TOOLS_CALL.name and call.name == login_tool(key, prefix=call.child.options.settings.prefix):
        text = f"You are logged in to {key!r}. What it offers is listed now."
        return {"content": [{"type": "text", "text": text}]}
    raise MCPError(INVALID_PARAMS, f"server {key!r}: there is no {call.name[:200]!r} for your account there")


def _continues_login(call: Call) -> bool:
    state = call.params.get("requestState")
    return call.caller.is_modern and isinstance(state, str) and state.startswith(_PREFIX)


def _require_accepted(answer: Any, key: str) -> None:
    """Raises: MCPError, if the person did not accept."""
    action = answer.get("action") if isinstance(answer, Mapping) else None
    if action != "accept":
        raise _not_logged_in(key, "the person did not log in")


def _not_logged_in(key: str, why: str) -> MCPError:
    return MCPError(INVALID_REQUEST, f"server {key!r}: {why}", {"server": key, "loginNeeded": True})
