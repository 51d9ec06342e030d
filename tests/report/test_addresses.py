"""What reports say of a host name that stands for several addresses."""

from __future__ import annotations

import pytest

from gpusize.analysis.addresses import addresses_of, addresses_text
from gpusize.report.summary.sweep import about


def use(address, connections, target=0):
    return {"target": target, "address": address, "connections": connections}


def test_each_address_of_a_run_has_the_most_connections_of_its_levels():
    first = {"addresses": [use("10.0.0.1:80", 2), use("10.0.0.2:80", 0)]}
    second = {"addresses": [use("10.0.0.1:80", 1), use("10.0.0.3:80", 1)]}
    found = addresses_of([first, {}, second, {"addresses": None}])
    assert found == [use("10.0.0.1:80", 2), use("10.0.0.2:80", 0), use("10.0.0.3:80", 1)]


@pytest.mark.parametrize(
    "found, text",
    [
        ([], None),
        ([use("10.0.0.1:80", 4)], None),
        ([use("10.0.0.1:80", 4), use("10.0.0.2:80", 0, 1)], None),
        ([use("10.0.0.1:80", 4), use("10.0.0.2:80", 0), use("10.0.0.3:80", 1)], "2 of 3 addresses used"),
    ],
)
def test_a_report_says_how_many_addresses_of_a_name_were_used(found, text):
    line = about({"targets": [{"url": "http://pods/v1"}], "addresses": found, "run": "r"})
    assert line == " · ".join(part for part in ("http://pods/v1", text, "r") if part)
    assert addresses_text(found) == text
