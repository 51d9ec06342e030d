"""`gpusize autoscale report`: what it prints and writes, the figure, the page, and runs held against each other."""

from __future__ import annotations

import io
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

import gpusize
from gpusize.analysis.compare.gates import Gate, judge
from gpusize.api.judged_autoscaler import judge_autoscaler
from gpusize.api.over_time import gpus_over_time
from gpusize.base.errors import UsageError
from gpusize.estimate.plan.over_time.policies import ScalingRules
from gpusize.report.comparison.words import remarks
from gpusize.report.figures.autoscale import judged_figure
from gpusize.report.plans.judged import conclusion, print_judgement, write_judgement
from gpusize.report.summary.terminal import make_console
from gpusize.report.text import percent
from tests.autoscale.judged import Pulled, Truth, level, records, run_of, scraped, simulated, stages
from tests.whatif.folder import SLO, run_folder

RATES = [(300.0, 1.0), (300.0, 5.0), (300.0, 2.0)]


@pytest.fixture(scope="module")
def truth() -> Truth:
    return simulated(RATES, seed=4)


def made(out: Path, truth: Truth, *, name: str = "judged", replicas: int | None = None) -> Path:
    """A judged run: of the autoscaler, or of as many replicas all the time."""
    run = run_of(out, stages(RATES, truth), name=name, slo=["p95 runtime <= 3s"])
    course = truth if replicas is None else Truth(truth.due_s, truth.end_s, [(0.0, replicas)], 0.0, truth.end)
    scraped(course).write(run / "series")
    return run


def test_the_page_of_the_run_shows_it(truth: Truth, tmp_path: Path) -> None:
    run = made(tmp_path, truth)
    result = gpusize.open_run(run)
    before = result.plot("autoscale")
    assert before.texts[0].get_text().startswith("Kept: 100% within p95 runtime <= 3s")
    write_judgement(judge_autoscaler(run, None, "p95 runtime <= 510ms", gpus_per_replica=8), run, plots=False)
    # As it was judged last.
    assert result.plot("autoscale").texts[0].get_text().startswith("Missed: ")
    page = result.report().read_text()
    assert '"autoscale":{' in page
    assert (run / "plots" / "autoscale.svg").is_file()
    with pytest.raises(UsageError, match="no figure"):
        gpusize.open_run(made_plain(tmp_path / "plain", truth)).plot("autoscale")


def made_plain(out: Path, truth: Truth) -> Path:
    return run_of(out, stages(RATES, truth), slo=["p95 runtime <= 3s"])


def labels(found) -> list[str]:
    return [axes.get_ylabel() for axes in judged_figure(found).axes]


def test_panels_without_data_are_left_out_with_a_line(truth: Truth, tmp_path: Path) -> None:
    run = made(tmp_path, truth)
    found = judge_autoscaler(run)
    assert labels(found) == ["requests/s", "replicas", "runtime (s)", "within the SLO (%)"]
    assert "no data for: queue, cache and GPU use, GPU power" in judged_figure(found).texts[1].get_text()
    at = np.arange(-15.0, 960.0, 15.0)
    pulled = scraped(truth)
    for pod in "ab":
        for name, value in (("running", 3.0), ("waiting", 1.0), ("kv_cache_use", 0.25), ("gpu_power", 500.0)):
            pulled.add(name, at, np.full(at.size, value), pod=pod)
        pulled.add("gpu_use", at, np.full(at.size, 80.0), pod=pod)
    pulled.write(run / "series")
    found = judge_autoscaler(run)
    assert labels(found)[4:] == ["requests", "mean (%)", "all GPUs (kW)"]
    queue, shares, power = judged_figure(found).axes[4:]

    def last(axes, number: int) -> float:
        main = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
        return float(main[number].get_ydata()[-1])

    assert [last(queue, k) for k in (0, 1)] == [6, 2]
    # A share becomes per cent, what is in per cent stays.
    assert [last(shares, k) for k in (0, 1)] == [25, 80]
    assert last(power, 0) == 1.0


def test_a_figure_of_nothing_but_records(truth: Truth, tmp_path: Path) -> None:
    run = made_plain(tmp_path, truth)
    pulled = Pulled()
    pulled.add("something_else", [0.0], [1.0])
    pulled.write(run / "series")
    found = judge_autoscaler(run)
    assert labels(found) == ["requests/s", "runtime (s)", "within the SLO (%)"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        print_judgement(found, make_console())
    assert "no series says how many replicas" in conclusion(found)


def test_needed_replicas_are_those_of_gpus_over_time(tmp_path: Path) -> None:
    """The second way: one who knows the day, whose replicas come at once and leave at once, asks for just those."""
    measured = run_folder(tmp_path / "one", first=True)
    rnd = np.random.default_rng(2)
    due = np.sort(np.concatenate([rnd.uniform(0, 600, 600), rnd.uniform(600, 1200, 6000)]))
    settings = [({"kind": "open", "rate": rate}, 600 * k) for k, rate in enumerate((1.0, 10.0))]
    levels = [
        level(setting, records(*(due[(due >= at) & (due < at + 600)],) * 2), at, at + 600, visit=int(at > 0))
        for setting, at in settings
    ]
    run = run_of(tmp_path, levels)
    scraped(Truth(due, due, [(0.0, 2)], 0.0, 1200.0)).write(run / "series")
    found = judge_autoscaler(run, None, SLO, needed=measured)
    arrivals = tmp_path / "due.csv"
    arrivals.write_text("time_s\n" + "\n".join(f"{each:.9f}" for each in due))
    rules = ScalingRules(start_delay_s=0.0, scale_down_after_s=0.0)
    # Times of a file count from its first request: only the windows' edges move, by half a second.
    planned = gpus_over_time(measured, arrivals, SLO, rules, policies=["planned"]).courses[1].schedule
    expected = planned.asked[np.searchsorted(planned.at_ns / 1e9, found.edges_s[:-1] + 30, "right") - 1]
    difference = found.needed.replicas - expected
    assert np.abs(difference).max() <= 1
    assert (difference == 0).mean() >= 0.7
    assert found.needed.replicas[:10].max() < found.needed.replicas[10:].min()
    second = found.responses[1]
    assert second.enough is None
    assert found.needed.at_rate(10.0) > 2
    assert found.elasticity.under_s > 0
    with pytest.raises(UsageError, match="as one replica"):
        judge_autoscaler(run, None, SLO, needed=measured, gpus_per_replica=4)
    closed = run_of(tmp_path / "closed", [level({"kind": "closed", "concurrency": 4}, records(due, due), 0, 1200)])
    scraped(Truth(due, due, [(0.0, 2)], 0.0, 1200.0)).write(closed / "series")
    assert "closed loop" in judge_autoscaler(closed, None, SLO, needed=measured).why_not


def test_the_run_itself_is_none_of_those_that_say_what_was_needed(truth: Truth, tmp_path: Path) -> None:
    """Both lie in one folder, as where an experiment names the folder that it writes into."""
    run = made(tmp_path / "runs", truth)
    alone = shutil.copytree(run, tmp_path / "alone" / run.name)
    with pytest.raises(UsageError, match="the run that is judged is the only one there"):
        judge_autoscaler(alone, None, SLO, needed=[alone.parent])
    one = run_folder(tmp_path / "one", first=True)
    shutil.copytree(one, run.parent / "one")
    apart = judge_autoscaler(run, None, SLO, needed=one)
    beside = judge_autoscaler(run, None, SLO, needed=[run.parent])
    assert beside.needed is not None
    assert beside.needed.replicas.tolist() == apart.needed.replicas.tolist()


def test_more_than_twice_what_was_needed_is_told_as_that(truth: Truth, tmp_path: Path) -> None:
    measured = run_folder(tmp_path / "one", first=True)
    found = judge_autoscaler(made(tmp_path, truth, replicas=8), None, SLO, needed=measured)
    assert found.elasticity.over > 2
    out = io.StringIO()
    print_judgement(found, make_console(out))
    assert f"; {100 * found.elasticity.over:.0f}% of what was needed" in " ".join(out.getvalue().split())


# --- held against each other


@pytest.fixture(scope="module")
def repeats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Three runs that were scaled, and three on eight replicas all the time."""
    place = tmp_path_factory.mktemp("repeats")
    found: dict[str, list[Path]] = {"scaled": [], "static": []}
    for seed in range(3):
        each = simulated(RATES, seed=10 + seed)
        for side, replicas in (("scaled", None), ("static", 8)):
            run = made(place / side, each, name=f"{side}-{seed}", replicas=replicas)
            write_judgement(judge_autoscaler(run, gpu_hour_price="2 EUR"), run, plots=False)
            found[side].append(run)
    return found


def test_whole_runs_are_compared(repeats: dict[str, list[Path]]) -> None:
    found = gpusize.compare({"static": repeats["static"], "scaled": repeats["scaled"]})
    whole = {each.figure: each for each in found.differences if each.load == "the whole run"}
    assert set(whole) == {"gpu-hours", "attainment", "cost"}
    assert found.loads == ["1 requests/s", "5 requests/s", "2 requests/s"]
    hours = [
        [json.loads((run / "autoscale.json").read_text())["paid"]["gpu_hours"] for run in repeats[side]]
        for side in ("static", "scaled")
    ]
    change = np.exp(np.mean(np.log(hours[1])) - np.mean(np.log(hours[0]))) - 1
    assert whole["gpu-hours"].change == pytest.approx(change)
    assert whole["gpu-hours"].verdict == "better"
    assert whole["cost"].change == pytest.approx(change)
    assert whole["attainment"].change == pytest.approx(0, abs=0.01)


def test_gates_judge_whole_runs(repeats: dict[str, list[Path]]) -> None:
    gates = [
        Gate.parse(each) for each in ("gpu-hours > -10%", "gpu-hours < -10%", "attainment < -5%", "p95 runtime > +5%")
    ]
    found = gpusize.compare(repeats | {}, also=[gate.figure for gate in gates])
    # The scaled ones are the first side here: the static ones take more.
    judged = judge(found, gates)
    by_gate = {gate.text: [each for each in judged if each.gate is gate] for gate in gates}
    [more], [less], [kept] = (by_gate[text] for text in ("gpu-hours > -10%", "gpu-hours < -10%", "attainment < -5%"))
    assert more.failed
    assert not less.failed
    assert more.judged
    assert less.judged
    assert not kept.failed
    # What levels have is judged by load, as ever, and not of the whole.
    assert [each.difference.load for each in by_gate["p95 runtime > +5%"]] == list(found.loads)
    with pytest.raises(UsageError, match="nothing was compared"):
        judge(found, [Gate.parse("gpu-hours at 1 requests/s > +5%")])


def gap(run: Path, pulled: Pulled, since: float, until: float) -> Path:
    """The run judged once more, as if nobody had scraped between two times."""
    pulled.rows = [row for row in pulled.rows if not since < row[0] < until]
    pulled.write(run / "series")
    write_judgement(judge_autoscaler(run, gpu_hour_price="2 EUR"), run, plots=False)
    return run


def test_a_gap_between_scrapes_is_no_saving(repeats: dict[str, list[Path]], tmp_path: Path) -> None:
    """Both sides are the same runs, of which the second lacks scrapes; both gates would pass by what is missing."""
    runs = []
    for seed, each in enumerate(repeats["scaled"]):
        copied = shutil.copytree(each, tmp_path / each.name)
        runs.append(gap(copied, scraped(simulated(RATES, seed=10 + seed)), 400, 700))
    known = judge_autoscaler(runs[0]).paid.known_s / judge_autoscaler(runs[0]).duration_s
    assert 0.6 < known < 0.8
    assert f"; in the {percent(known)} of the time that is known: " in conclusion(judge_autoscaler(runs[0]))
    title = judged_figure(judge_autoscaler(runs[0])).texts[0].get_text()
    assert title.endswith(f"GPU-hours in {percent(known)} of the time")
    assert " ready replicas on average, " in conclusion(judge_autoscaler(repeats["scaled"][0]))
    assert "of the time that is known" not in conclusion(judge_autoscaler(repeats["scaled"][0]))
    gates = [Gate.parse(each) for each in ("gpu-hours > -20%", "cost > +5%", "attainment < -5%")]
    found = gpusize.compare({"full": repeats["scaled"], "gap": runs}, also=[gate.figure for gate in gates])
    assert [each.figure for each in found.differences if each.load == "the whole run"] == ["attainment"]
    assert found.partly_known == {"gap": pytest.approx(known, abs=0.03)}
    assert any(text.startswith("left out of gap: GPU-hours and cost of runs whose rep") for text in remarks(found))
    judged = judge(found, gates)
    assert [each.judged for each in judged[:2]] == [False, False]
    told = f"the replicas are known for only {100 * found.partly_known['gap']:.3g} % of a run of gap"
    assert [each.why_not for each in judged[:2]] == [told, told]
    assert judged[2].why_not == "nothing says how much runs differ"
    # Where no run of either side knows them, and where one of three does not.
    others = [shutil.copytree(each, tmp_path / "others" / each.name) for each in runs]
    neither = gpusize.compare({"a": runs, "b": others}, figures=["gpu-hours"])
    assert [each.judged for each in judge(neither, gates[:1])] == [False]
    for each in others[:2]:
        gap(each, scraped(simulated(RATES, seed=10 + int(each.name[-1]))), 0, 0)
    one = gpusize.compare({"full": repeats["scaled"], "part": others}, figures=["gpu-hours"])
    assert next(each.runs for each in one.differences if each.figure == "gpu-hours") == (3, 2)
    assert [each.judged for each in judge(one, gates[:1])] == [False]


def test_runs_that_are_no_wholes_of_a_kind_are_refused(
    repeats: dict[str, list[Path]], truth: Truth, tmp_path: Path
) -> None:
    plain = made_plain(tmp_path / "plain", truth)
    with pytest.raises(UsageError, match="was not judged as a whole"):
        gpusize.compare({"a": repeats["static"], "b": plain}, figures=["gpu-hours"])
    # Unless somebody asks, they are left out.
    assert gpusize.compare({"a": repeats["static"], "b": plain}).differences
    other = made(tmp_path / "other", truth)
    write_judgement(judge_autoscaler(other, None, "p95 runtime <= 9s"), other, plots=False)
    with pytest.raises(UsageError, match="different SLOs"):
        gpusize.compare({"a": repeats["static"], "b": other}, figures=["attainment"])
    short = run_of(tmp_path / "short", stages(RATES, truth)[:2], name="short", slo=["p95 runtime <= 3s"])
    scraped(truth).write(short / "series")
    write_judgement(judge_autoscaler(short), short, plots=False)
    with pytest.raises(UsageError, match="different loads"):
        gpusize.compare({"a": repeats["static"], "b": short}, figures=["gpu-hours"])
    (other / "autoscale.json").write_text("[]")
    with pytest.raises(UsageError, match="was not judged as a whole"):
        gpusize.compare({"a": repeats["static"], "b": other}, figures=["attainment"])
