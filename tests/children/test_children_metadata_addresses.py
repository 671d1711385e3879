"""The addresses at which clouds hand out credentials, in all their spellings."""

from __future__ import annotations

import pytest

from fastmcp_aggregator.children.http.metadata_addresses import is_metadata_address

AWS = "169.254.169.254"


@pytest.mark.parametrize(
    "host",
    [
        *(AWS, "169.254.170.2", "169.254.170.23", "169.254.169.123", "169.254.0.23", "168.63.129.16"),
        *("192.0.0.192", "100.100.100.200", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "[fd20:CE::254]"),
        *("metadata.google.internal", "METADATA.google.internal.", "metadata.goog"),
        # Spellings of IPv4 that a resolver takes.
        *("2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.16689662", "169.254.43518", "169.254.169.254."),
        *("0xA9.0xFE.0xA9.0xFE", "１６９.254.169.254", "169。254。169。254"),
        # Addresses of IPv6 that lead to one of IPv4.
        *(
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:a9fe:a9fe",
            "fe80::a9fe:a9fe",
            "fe80::a9fe:a9fe%eth0",
        ),
        *("64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::", "2001:db8:a9fe:a9fe::"),
        *("2001:db8:1234:56:a9:fea9:fe00:0", "2001:db8::5efe:a9fe:a9fe"),
        *("2002:a9fe:a9fe::", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::", "2001:0:1:2:3:4:5601:5601"),
        *("::ffff:169.254.77.7", "64:ff9b::a9fe:4d07", "2002:a9fe:4d07::", "::ffff:c000:c0"),
    ],
)
def test_every_spelling_of_a_metadata_address_is_known(host: str) -> None:
    assert is_metadata_address(host)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.100.100.201", "192.0.0.193", "fd00::1"),
        *("fe80::1", "2001:db8::1", "64:ff9b::8.8.8.8", "2002:808:808::", "localhost", "metadata", "example.com"),
        *("169.254.169.254.example.com", "1", "", "::ffff:10.0.0.1"),
    ],
)
def test_other_addresses_of_a_private_network_are_allowed(host: str) -> None:
    assert not is_metadata_address(host)
