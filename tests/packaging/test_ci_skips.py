"""CI fails on a skip that nobody allowed; elsewhere a skip is a skip."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

SKIPPING = """
import pytest

@pytest.mark.skip(reason="no nginx here")
def test_by_mark(): ...

def test_by_call():
    pytest.skip("no nginx here")

@pytest.mark.optional_in_ci("needs a GPU")
def test_allowed():
    pytest.skip("no GPU here")

@pytest.mark.xfail(strict=True)
def test_known_bug():
    raise AssertionError

def test_fine(): ...
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    # pytester itself may only be asked for by the outermost conftest.
    pytester.makeconftest(CONFTEST.read_text().replace('pytest_plugins = ["pytester"]', ""))
    pytester.makeini("[pytest]\nmarkers = optional_in_ci(reason): allowed")
    return pytester


def test_a_skip_fails_ci_and_says_why(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    suite.makepyfile(SKIPPING)
    result = suite.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1, errors=1, skipped=1, xfailed=1)  # a mark skips in set-up
    result.stdout.fnmatch_lines(["*test_by_call was skipped, and CI has to run it: *no nginx here*"])


def test_a_skip_outside_ci_is_a_skip(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    suite.makepyfile(SKIPPING)
    suite.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=1, skipped=3, xfailed=1)


def test_a_module_that_skips_itself_fails_ci(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    suite.makepyfile("import pytest\npytest.importorskip('no_such_module_anywhere')\ndef test_fine(): ...")
    result = suite.runpytest("-p", "no:cacheprovider")
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*CI has to run it: *no_such_module_anywhere*"])
