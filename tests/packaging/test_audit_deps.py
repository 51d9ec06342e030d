"""The look at licences: expressions are read as SPDX means them, and nothing unknown passes."""

from __future__ import annotations

import pytest

from scripts.audit_deps import ALLOWED, Package, is_permissive, refused


@pytest.mark.parametrize(
    "expression, permissive",
    [
        ("MIT", True),
        ("MIT OR GPL-3.0", True),
        ("MIT AND GPL-3.0", False),
        ("GPL-3.0 OR MIT AND Apache-2.0", True),
        ("GPL-3.0 AND MIT OR Apache-2.0", True),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("(MIT OR Apache-2.0) AND GPL-3.0", False),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", True),
        ("GPL-3.0 WITH GCC-exception-3.1", False),
        ("MIT/Apache-2.0", True),
        ("MPL-2.0", False),
        ("", False),
        ("Proprietary", False),
    ],
)
def test_an_expression_passes_where_permissive_licences_can_be_chosen(expression: str, permissive: bool) -> None:
    assert is_permissive(expression) is permissive


def test_what_is_neither_permissive_nor_allowed_is_named() -> None:
    known = [Package("package", name, "1", "MPL-2.0") for name in ALLOWED]
    assert refused(known) == []
    found = refused([*known, Package("crate", "closed", "2.0", ""), Package("crate", "copyleft", "1.0", "GPL-3.0")])
    assert found == ["crate closed 2.0: licence unknown", "crate copyleft 1.0: licence GPL-3.0"]


def test_a_reason_that_is_no_longer_needed_is_named() -> None:
    rest = [Package("package", name, "1", "MIT") for name in sorted(ALLOWED)[1:]]
    assert refused(rest) == [f"ALLOWED names {min(ALLOWED)}, which nothing depends on"]
