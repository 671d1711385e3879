"""OAuth errors: the authorization server is unreachable or refuses, or a person has to log in."""

from __future__ import annotations

from fastmcp_aggregator.errors import AggregatorError


class OAuthError(AggregatorError):
    """Base of these errors. What they say is for users, and repeats nothing that was received but known codes."""


class Unreachable(OAuthError):
    """There was no answer, or a malformed one; it may be tried again."""


class NoAnswer(Unreachable):
    """The connection failed, or no answer came."""


class LoginRequired(OAuthError):
    """A person has to log in, for this reason."""


class ClientRefused(OAuthError):
    """The client, or what it asks for, is refused; somebody has to change the settings."""


class NothingAsked(OAuthError):
    """The server asks for no login."""
