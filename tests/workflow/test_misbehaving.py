"""Whatever a workflow raises or gives back, each of its requests is counted once, with an outcome."""

from __future__ import annotations

import pytest

from gpusize.targets.workflow.recorder import Recorder
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.workload.load import Load
from tests.workflow.conftest import Measure

PATH = "tests.workflow.flows"
FATES = [
    ("mute", "api_error", "Mute: no message, as its __str__ fails"),
    ("raw", "api_error", "Raw: half ? a character"),
    ("riddle", "api_error", "Riddle: half ? a character"),
    ("odd", "api_error", "Odd: odd"),
    ("sour", "api_error", "RuntimeError: sour"),
    ("unmovable", "api_error", "KeyboardInterrupt: "),
    ("calls", "api_error", "UsageError: call: kind and name of a call are texts"),
    ("half a name", "ok", ""),
]


@pytest.mark.parametrize("function", ["misbehave", "misbehave_later"])
@pytest.mark.parametrize("question, outcome, message", FATES)
def test_no_request_is_lost(measure: Measure, function: str, question: str, outcome: str, message: str) -> None:
    load = Load(concurrencies=(2,), count=6, max_error_share=1.0)
    result = measure(WorkflowTarget(f"{PATH}:{function}"), ["fine", question], load)
    [level] = result.levels
    meta = level.meta
    assert (meta["state"], meta["sent"], meta["rows"], meta["write_error"]) == ("done", 6, 6, None)
    assert result.records["outcome"].to_list().count(outcome) == (6 if outcome == "ok" else 3)
    if outcome != "ok":
        [error] = meta["errors"]
        assert (error["outcome"], error["count"]) == (outcome, 3)
        assert error["message"].startswith(message)


def test_a_recorder_keeps_what_cannot_be_put_into_words(tmp_path) -> None:
    from gpusize.result import open_run
    from tests.workflow.flows import Mute

    with Recorder(tmp_path) as recorder, recorder.level(1) as level:
        with pytest.raises(Mute), level.request():
            raise Mute
        with level.request() as request, pytest.raises(ValueError, match="not a count"):
            request.report(tokens_out=2.5)  # type: ignore[arg-type]
    assert open_run(recorder.path).records["outcome"].to_list() == ["api_error", "ok"]
