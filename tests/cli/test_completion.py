"""Shell completion: what bash asks for when Tab is pressed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def completed(*words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    asked = {"_GPUSIZE_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", "from gpusize.cli import main; main()"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    "words, expected",
    [
        (("gpusize", "ru"), ["run", "runs"]),
        (("gpusize", "pipeline", ""), ["run", "show", "clean"]),
        (("gpusize", "run", "--conc"), ["--concurrencies"]),
        (("gpusize", "estimate", "runs", "--token"), ["--token-rate"]),
    ],
)
def test_tab_completes_commands_and_options_of_ours(words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(*words) == expected


def test_the_help_says_how_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpusize", "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "--install-completion" in done.stdout
    assert "--show-completion" in done.stdout
