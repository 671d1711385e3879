"""What is said of protocol versions before the SDK is imported."""

from mcp_types import CLIENT_CAPABILITIES_META_KEY, version

from fastmcp_aggregator.cli.running import introduction


def test_the_versions_are_those_of_the_sdk() -> None:
    assert introduction.HANDSHAKE_VERSIONS == version.HANDSHAKE_PROTOCOL_VERSIONS
    assert (introduction.MODERN_VERSION,) == version.MODERN_PROTOCOL_VERSIONS
    assert introduction.CLIENT_CAPABILITIES == CLIENT_CAPABILITIES_META_KEY
