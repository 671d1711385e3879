"""Attacks on who somebody is: without credentials, with wrong ones, with forged tokens, with somebody else's."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from joserfc.jwk import RSAKey
from support.account_hub import around, mixed_up
from support.harness import config, lean
from support.remote_server import Request, remote_server
from support.tokens import AUDIENCE, ISSUER, OTHER_PAIR, PAIR, claims_of, signed, token

from attack.rooms import Machine, Team, hub_of_its_own, jwt_for
from attack.table import attack
from fastmcp_aggregator.oauth.account import kept_accounts

HEADING = "Who somebody is"
_NOW = int(time.time())
_OWN_KEY: Any = serialization.load_pem_private_key(OTHER_PAIR.private_key.get_secret_value().encode(), None)
_PROVIDERS_KEY: Any = serialization.load_pem_private_key(PAIR.private_key.get_secret_value().encode(), None)
CLOSED = [
    *(("POST", path) for path in ("/mcp", "/mcp/tools/list", "/mcp/messages?session_id=x", "/groups/red/mcp")),
    *(("POST", path) for path in ("/groups/red/mcp/tools/call", "/groups/none/mcp", "/groups/red/mcp/messages")),
    *(("GET", path) for path in ("/mcp", "/mcp/sse", "/status", "/metrics", "/groups", "/openapi.json")),
    *(("GET", path) for path in ("/dashboard/state", "/dashboard/names", "/groups/red/mcp", "/groups/red/mcp/sse")),
    *(("DELETE", path) for path in ("/mcp", "/groups/red/mcp")),
]


async def stays_out(room: Team, headers: Mapping[str, str], query: str = "") -> str:
    """Every route but those that are open to everybody refuses these headers."""
    for method, path in CLOSED:
        joined = f"{path}{'&' if '?' in path else '?'}{query}" if query else path
        status = await room.one.status_of(method, joined, **headers)
        assert status == 401, f"{method} {path.partition('?')[0]}: {status}"
    return f"401 at {len(CLOSED)} routes"


@attack("identity-none", "no credentials", "closed but for `/health`, `/ready` and the page's files")
async def none(room: Team) -> str:
    return await stays_out(room, {})


def _digest(room: Team) -> str:
    return hashlib.sha256(room.one.keys["root"].encode()).hexdigest()


KEYS: dict[str, tuple[str, Callable[[Team], str]]] = {
    "unknown": ("a well-formed key that was never made", lambda room: "fma_01234567_" + "A" * 43),
    "id": ("a key's id with another secret", lambda room: room.one.keys["root"][:13] + "A" * 43),
    "half": ("a key without its last character", lambda room: room.one.keys["root"][:-1]),
    "case": ("a key in capitals", lambda room: room.one.keys["root"].upper()),
    "expired": ("an expired key", lambda room: room.one.keys["late"]),
    "revoked": ("a revoked key", lambda room: room.one.keys["gone"]),
    "digest": ("the digest from the keys file", _digest),
    "id-alone": ("a key's id alone", lambda room: room.one.keys["root"][:13]),
    "long": ("a key of 60,000 characters", lambda room: "fma_" + "x" * 60_000),
}


async def _with_key(make: Callable[[Team], str], room: Team) -> str:
    await stays_out(room, {"X-API-Key": make(room)})
    return await stays_out(room, {"Authorization": f"Bearer {make(room)}"})


for _id, (_tries, _make) in KEYS.items():
    attack(f"key-{_id}", _tries, "401")(partial(_with_key, _make))


@attack("key-elsewhere", "a good key as query, cookie, Basic password, or `X_API_Key`", "only the two headers count")
async def elsewhere(room: Team) -> str:
    key = room.one.keys["root"]
    for name in ("api_key", "access_token", "key", "token", "authorization"):
        await stays_out(room, {}, f"{name}={key}")
    basic = base64.b64encode(f"root:{key}".encode()).decode()
    for headers in ({"Cookie": f"authorization={key}"}, {"Authorization": f"Basic {basic}"}, {"X_API_Key": key}):
        await stays_out(room, headers)
    return "401 at every route"


async def _statuses(room: Team, *headers: tuple[str, str]) -> list[int]:
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    got = await room.one.raw(f"GET /groups HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{head}\r\n".encode())
    return [int(got.split()[1])] if got else []


@attack(
    "key-two",
    "two different credentials in one request",
    "400 or 401",
)
async def two(room: Team) -> str:
    ann, bob = (room.one.keys[name] for name in ("ann", "bob"))
    pairs = {
        "Authorization and X-API-Key": (("Authorization", f"Bearer {ann}"), ("X-API-Key", bob)),
        "X-API-Key twice": (("X-API-Key", ann), ("X-API-Key", bob)),
        "Authorization twice": (("Authorization", f"Bearer {ann}"), ("Authorization", f"Bearer {bob}")),
        "a good and a bad one": (("Authorization", f"Bearer {ann}"), ("Authorization", "Bearer x")),
        "a bad and a good one": (("X-API-Key", "x"), ("Authorization", f"Bearer {ann}")),
        "with a comma": (("Authorization", f"Bearer {ann}, Bearer {bob}"),),
    }
    for name, headers in pairs.items():
        got = await _statuses(room, *headers)
        assert got in ([400], [401]), f"{name}: {got}"
    return "400 or 401 for each of 6 pairs"


@attack("key-odd-header", "credentials with NUL, line breaks, other alphabets, spaces", "400 or 401, no traceback")
async def odd_header(room: Team) -> str:
    key = room.one.keys["root"].encode()
    for value in (
        b"Bearer " + key + b"\0",
        b"Bearer\0" + key,
        b"Bearer \xff\xfe",
        b"Bearer  ",
        b"Bearer",
        b"bearer\t" + key,
    ):
        got = await room.one.raw(
            b"GET /groups HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\nauthorization: " + value + b"\r\n\r\n"
        )
        assert got.split()[1] in (b"400", b"401"), f"{value!r}: {got[:40]!r}".replace(key.decode(), "KEY")
    return "400 or 401"


# Tokens.


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _unsigned(header: Mapping[str, Any], signature: str = "", **claims: Any) -> str:
    return f"{_part(header)}.{_part(claims_of(groups=['red', 'blue'], **claims))}.{signature}"


def _mac(header: Mapping[str, Any], secret: bytes) -> str:
    body = _unsigned(header)[:-1]
    made = hmac.new(secret, body.encode(), hashlib.sha256).digest()
    return f"{body}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


def _own(header: Mapping[str, Any]) -> str:
    """Signed with a key of the attacker's own."""
    body = _unsigned({"alg": "RS256", **header})[:-1]
    signed = _OWN_KEY.sign(body.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{body}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}"


def _provided(claims: str) -> str:
    """Signed by the provider, whatever its claims are."""
    body = f"{_part({'alg': 'RS256'})}.{base64.urlsafe_b64encode(claims.encode()).rstrip(b'=').decode()}"
    signed = _PROVIDERS_KEY.sign(body.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{body}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}"


def _good(**claims: Any) -> str:
    return token(groups=["red"], **claims)


_JWK = RSAKey.import_key(OTHER_PAIR.public_key).as_dict()
TOKENS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "none": (
        "`alg` `none` in every spelling, and no `alg`",
        lambda trap: [_unsigned({"alg": name}) for name in ("none", "None", "nOnE", "", "RS256")] + [_unsigned({})],
    ),
    "hmac": (
        "`HS256`, signed with the provider's public key or nothing",
        lambda trap: [
            _mac({"alg": "HS256"}, secret)
            for secret in (PAIR.public_key.encode(), PAIR.public_key.strip().encode(), b"", b"\0")
        ],
    ),
    "kid": (
        "`kid` as a path, a query or a null device",
        lambda trap: [
            _mac({"alg": "HS256", "kid": kid}, secret)
            for kid in ("../../../../dev/null", "/dev/null", "x' OR '1'='1", "", None, {"a": 1})
            for secret in (b"", b"\0")
        ],
    ),
    "key": (
        "`jwk`, `jku`, `x5u` and `x5c` with the attacker's key",
        lambda trap: [
            _own(header)
            for header in (
                {"jwk": _JWK},
                {"jku": f"{trap}/jwks.json"},
                {"x5u": f"{trap}/x5u.pem"},
                {"x5c": ["AA=="]},
                {"jku": f"{trap}/jwks.json", "kid": "1"},
            )
        ],
    ),
    "signature": (
        "a good token with other claims, another signature, none, or more parts",
        lambda trap: [
            _good().rpartition(".")[0] + ".",
            _good()[:-4] + "AAAA",
            _good().partition(".")[0] + "." + _part(claims_of(sub="root")) + "." + _good().rpartition(".")[2],
            _good() + ".x",
            "." + _good(),
            _good().replace(".", ".."),
            ".".join([_part({"alg": "dir", "enc": "A128GCM"}), "", "AA", "AA", "AA"]),
        ],
    ),
    "audience": (
        "another `aud`, none, an empty list, a part of ours",
        lambda trap: [_good(aud=aud) for aud in ("other", None, [], "our", "our-hub ", ["OUR-HUB"], {"our-hub": 1})],
    ),
    "issuer": (
        "another `iss`, none, a list, ours with a slash",
        lambda trap: [_good(iss=iss) for iss in ("https://evil.example", None, "https://login.example.com/", "", 1)],
    ),
    "time": (
        "a token expired, not yet valid, without expiry, or with times that are no numbers",
        lambda trap: [
            *(_good(exp=exp) for exp in (_NOW - 60, None, "never", 0, -1, [_NOW + 99], {"a": 1})),
            *(_good(nbf=nbf) for nbf in (_NOW + 3600, "never", [1])),
        ],
    ),
    "calendar": (
        "an expiry that no calendar has: `1e999`, 10^400, milliseconds",
        lambda trap: [
            _provided(json.dumps(claims_of(groups=["red"], exp=0)).replace('"exp": 0', f'"exp": {exp}'))
            for exp in ("1e999", "Infinity", "1" + "0" * 400, "1e300", str(_NOW * 1000), "253402300800")
        ],
    ),
    "purpose": (
        "a token that is for a logout, an introspection, an event, or nothing that is known",
        lambda trap: [
            signed(claims_of(groups=["red"]), typ=kind)
            for kind in (
                "logout+jwt",
                "application/logout+JWT",
                "token-introspection+jwt",
                "secevent+jwt",
                "dpop+jwt",
                "",
            )
        ],
    ),
    "bound": (
        "a token that is bound to a key or certificate of its client (`cnf`), brought by somebody else",
        lambda trap: [_good(cnf=cnf) for cnf in ({"jkt": "x"}, {"x5t#S256": "x"}, {"jwk": _JWK}, {}, "x")],
    ),
    "crit": (
        "a header that demands extensions: `crit`, `b64`, `zip`",
        lambda trap: [_own({"crit": ["x"], "x": 1}), _own({"b64": False, "crit": ["b64"]}), _own({"zip": "DEF"})],
    ),
}


async def _with_tokens(make: Callable[[str], list[str]], room: Team) -> str:
    tokens = make(f"http://127.0.0.1:{room.trap.port}")
    for good in (_good(), _provided(json.dumps(claims_of(groups=["red"])))):
        answer = await room.one.json_api(good, "tools/list", group="red")
        assert answer.status_code == 200, "a good token was refused"
    for number, made in enumerate(tokens):
        for headers in ({"Authorization": f"Bearer {made}"}, {"X-API-Key": made}):
            status = await room.one.status_of("POST", "/groups/red/mcp/tools/list", **headers)
            assert status == 401, f"variation {number}: {status}"
    assert not room.trapped, "an address in the token was fetched"
    return f"401 for each of {len(tokens)} tokens"


for _id, (_tries, _tokens) in TOKENS.items():
    attack(f"jwt-{_id}", _tries, "401, nothing fetched")(partial(_with_tokens, _tokens))


@attack(
    "jwt-groups",
    "a groups claim that is an object, a wildcard, another case, nested, a path",
    "only exact names count",
)
async def groups_claim(room: Team) -> str:
    odd: list[Any] = [
        {"red": 1},
        "*",
        ["*"],
        ["RED"],
        [["red"]],
        ["../red"],
        None,
        1,
        True,
        ["red "],
        "Red",
        ["red\0"],
        {},
    ]
    for number, claim in enumerate(odd):
        answer = await room.one.json_api(token(groups=claim), "tools/list", group="red")
        assert answer.status_code == 404, f"variation {number}: {answer.status_code}"
    answer = await room.one.json_api(token(groups=["red"]), "tools/list", group="red")
    assert answer.status_code == 200, "a good claim was refused"
    return f"404 for each of {len(odd)} claims"


@attack(
    "jwt-spaces",
    "groups and roles as one text, with tabs, line breaks and spaces of other kinds",
    "divided at plain spaces alone",
)
async def spaces(room: Team) -> str:
    kinds = ("\t", "\n", "\x1c", "\x85", "\u00a0", "\u2003", "\u2028", "\u3000")
    for kind in kinds:
        answer = await room.one.json_api(token(groups=f"x{kind}red"), "tools/list", group="red")
        assert answer.status_code == 404, f"{kind!r} in groups: {answer.status_code}"
        status = await room.one.status_of("GET", "/keys", jwt_for("mallory", "red", roles=f"call{kind}operate"))
        assert status == 403, f"{kind!r} in roles: {status}"
    answer = await room.one.json_api(token(groups="x red"), "tools/list", group="red")
    assert answer.status_code == 200, "a good claim was refused"
    return f"404 and 403 for each of {len(kinds)} kinds"


@attack(
    "jwt-subject",
    "a `sub` that is missing, no text, a line break, or a megabyte",
    "401, or a name of its own",
)
async def subject(room: Team) -> str:
    for number, sub in enumerate([None, 1, {"a": 1}, ["ann"], "", "a\r\nx: y", "\u202eann", "x" * 30_000]):
        status = (await room.one.json_api(token(sub=sub, groups=["red"]), "tools/list", group="red")).status_code
        assert status in (200, 401), f"variation {number}: {status}"
    return "200 as itself, or 401"


@attack(
    "jwt-like-key",
    "a token whose `sub` is a key's name",
    "limits, audit and sessions tell them apart",
    finding=15,
)
async def like_key(room: Team) -> str:
    for _ in range(4):
        await room.one.call("few", "red", "red:echo")
    spent = await room.one.call("few", "red", "red:echo")
    assert spent.status_code == 429, f"the limit of the key does not hold: {spent.status_code}"
    answer = await room.one.call(jwt_for("few", "red"), "red", "red:echo")
    assert answer.status_code == 200, "a token has used up what the key of that name has"
    names = {entry["principal"] for entry in room.one.audit()[-1:]} | {"few"}
    assert len(names) == 2, "the audit log has one name for both"
    return "counted and named apart"


_PRIVATE = RSAKey.import_key(OTHER_PAIR.private_key.get_secret_value()).as_dict(private=True)
SETS: dict[str, bytes] = {
    "330 private keys": json.dumps({"keys": [{**_PRIVATE, "kid": str(number)} for number in range(330)]}).encode(),
    "a private key of 400 KB": json.dumps({"keys": [{**_PRIVATE, "kid": "x", "d": "A" * 400_000}]}).encode(),
    "no end": b"",
}


@attack(
    "jwt-set",
    "a key set of the provider with 330 private keys, a huge one, or no end",
    "nobody is let in; others go on",
    room="machine",
)
async def key_set(machine: Machine) -> str:
    for name, document in SETS.items():
        async with remote_server(partial(_publish, document)) as provider:
            settings = f'jwt_issuer = "{ISSUER}"\njwt_audience = "{AUDIENCE}"\njwt_jwks_url = "{provider.url}"\n'
            async with hub_of_its_own(machine, config(a=lean()), settings) as hub, hub.watched(slowest=2.0):
                status = (await hub.call(token(pair=OTHER_PAIR, kid="y"), None, "a:echo")).status_code
                assert status == 401, f"{name}: {status}"
            assert provider.requests, "the keys were not asked for"
    return f"401 with each of {len(SETS)} sets"


async def _publish(document: bytes, request: Request) -> bool:
    """Answer with a document; without one, with spaces for ever."""
    if document:
        await request.respond(200, document, content_type="application/json")
        return True
    with suppress(ConnectionError):
        await request.start(200, content_type="application/json", transfer_encoding="chunked")
        while not request.writer.is_closing():
            request.writer.write(b"10000\r\n%b\r\n" % (b" " * 65536))
            await request.writer.drain()
            await asyncio.sleep(0)
    return True


@attack(
    "login-mix-up",
    "a hostile server sends a login on to an honest one without `iss` (RFC 9700, 4.4)",
    "the honest one's code goes to nobody",
)
async def login_mix_up(room: Team) -> str:
    for back in ("honest", "hostile"):
        with tempfile.TemporaryDirectory() as folder:
            async with around(Path(folder), servers=2, lists="caller") as place:
                page = await mixed_up(place, "alice", "bob", comes_back_to=back)
                assert page.status_code in (400, 403), f"{back}: {page.status_code}"
                assert not any(server.grants["authorization_code"] for server in place.servers), f"{back}: sent"
                assert not await kept_accounts(place.vault), f"{back}: logged in"
    return "403 at the honest one's address, 400 at the hostile one's"
