"""Every name under which a tool or prompt can be called, whoever calls."""

from __future__ import annotations

from fastmcp_aggregator.naming.clients import every_rule

_PREFIXED = every_rule(prefix=True)
_UNPREFIXED = every_rule(prefix=False)


def every_spelling(server_key: str, original_name: str, *, prefix: bool = True) -> tuple[str, ...]:
    """All public names of a component, without duplicates.

    `key:name` comes first; with `prefix=False` (the setting) the original name and what strict clients see of
    it come before that. Spellings of two components can be equal (`a_b` + `c` and `a` + `b_c`, joined with
    `_`), so a route table must give a name to the component that is listed under it before any other.
    """
    rules = _PREFIXED if prefix else (*_UNPREFIXED, *_PREFIXED)
    return tuple(dict.fromkeys(rule.public_name(server_key, original_name) for rule in rules))
