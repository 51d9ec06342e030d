"""Fixtures of the loads."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def plain_schedule(request, monkeypatch):
    """Schedules by their definition, so that what is tested here does not rest on the engine."""
    if request.path.name == "test_against_the_engine.py":
        return
    from gpusize.workload.schedule import from_engine as home
    from tests.load import reference

    class Core:
        schedule = staticmethod(reference.schedule)
        schedule_count = staticmethod(reference.schedule_count)

    monkeypatch.setattr(home, "core", lambda: Core)
