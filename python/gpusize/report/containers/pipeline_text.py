"""A run of a pipeline in words and tables, in the form of CPOST, with what that leaves out after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpusize.base.units import with_cores
from gpusize.report.containers.cpost import (
    OperatorSummary,
    metrics_table,
    operator_table,
    pipeline_table,
    summarise,
    summarise_usage,
)
from gpusize.report.containers.request_blocks import clara_requests, memory_text, request_text
from gpusize.report.text import clean, duration, plain_number

if TYPE_CHECKING:
    from gpusize.containers.pipeline.execution import Execution
    from gpusize.containers.pipeline.outcome import OperatorResult, PipelineResult
    from gpusize.containers.recommend import Recommendation
    from gpusize.containers.recommend.cpost_rule import Row
    from gpusize.observe.usage.readings import Readings

__all__ = ["advice_of", "after_operator", "all_operators", "rows_text", "summary_of"]

LOG_LINES: Final = 10
LINE_CHARS: Final = 200


def advice_of(result: OperatorResult) -> Recommendation:
    """What is recommended for an operator; one that refuses itself where it was not asked for, or not run."""
    from gpusize.containers.recommend import Recommendation

    if result.sized is not None:
        return result.sized.recommendation
    return Recommendation(policy="none", refused=f"it was {result.outcome.replace('_', ' ')}")


def summary_of(result: OperatorResult) -> OperatorSummary:
    """The operator as the tables show it: figures of its first execution, and what is recommended.

    Of a file of CPOST's they are those of its rows by any rule: it has no 100 ms, and a second would hide its maximum.
    """
    from gpusize.containers.recommend.cpost_rule import stored_rows
    from gpusize.observe.usage.usage import usage_of

    readings, advice = _readings(result), advice_of(result)
    if readings is None or advice.policy == "cpost" or stored_rows(readings) is not None:
        return summarise(result.name, _rows(result), advice, failed=not result.ok)
    ran_s = result.executions[0].duration_s
    return summarise_usage(result.name, usage_of(readings), advice, ran_s=ran_s, failed=not result.ok)


def _readings(result: OperatorResult) -> Readings | None:
    return result.executions[0].readings if result.executions else None


def _rows(result: OperatorResult) -> list[Row]:
    from gpusize.containers.recommend.cpost_rule import cpost_rows

    readings = _readings(result)
    return [] if readings is None else cpost_rows(readings)


def rows_text(result: OperatorResult) -> str:
    """All rows of 200 ms of an operator, as CPOST prints them where it writes no files; empty where there are none."""
    readings = _readings(result)
    rows = _rows(result)
    if readings is None or not rows:
        return ""
    clock = readings.facts.clock
    return metrics_table(result.name, rows, 0 if clock is None else clock[1] - clock[0])


def after_operator(result: OperatorResult) -> str:
    """What is printed when an operator has ended: why it failed, with its last words, and its table."""
    lines = []
    for execution in result.executions:
        if not execution.ok:
            lines += _failure(result.name, execution)
    if _readings(result) is not None:
        lines.append(operator_table(summary_of(result)))
    return "\n".join(lines)


def _failure(name: str, execution: Execution) -> list[str]:
    if execution.outcome == "failed" and execution.exit_code is not None:
        told = f"Operator {clean(name)} failed with exitcode {execution.exit_code}"
    else:
        told = f"Operator {clean(name)} {execution.outcome.replace('_', ' ')}"
    lines = [f"{told}: {clean(execution.error)}" if execution.error else told]
    if execution.oom_killed and "memory" not in lines[0]:
        lines.append("It was killed for lack of memory.")
    tail = execution.log_tail.splitlines()[-LOG_LINES:]
    if tail:
        lines += ["Its last output:", *(f"  {clean(line, LINE_CHARS)}" for line in tail)]
    return lines


def all_operators(result: PipelineResult) -> str:
    """What is printed at the end: the table of all operators, servers, advice in both units, what weakens it."""
    ran = [each for each in result.operators if each.executions]
    # Of what was not read a row would say 0 %.
    seen = [each for each in ran if _readings(each) is not None]
    lines = [pipeline_table([summary_of(each) for each in seen])] if seen else []
    for each in ran:
        if _readings(each) is None:
            why = each.executions[0].unread or each.executions[0].error
            lines.append(f"{clean(each.name)}: it has no readings{f': {clean(why)}' if why else ''}")
    rest = [each.name for each in result.operators if not each.executions]
    if rest:
        lines.append(f"Not run: {', '.join(map(clean, rest))}")
    lines += _servers(result)
    for each in ran:
        lines += ["", *_advice(each)]
    lines += ["", *(clean(note) for note in result.notes)] if result.notes else []
    return "\n".join(lines)


def _servers(result: PipelineResult) -> list[str]:
    from gpusize.observe.usage.usage import usage_of

    lines = []
    for server in result.servers:
        readings = server.execution.readings
        if readings is None:
            lines.append(f"Server {clean(server.name)}: it has no readings")
            continue
        usage = usage_of(readings)
        cores = None if usage.cpu is None else usage.cpu.mean_cores
        peak = usage.memory.peak_bytes
        parts = [duration(usage.duration_s)]
        parts += [] if cores is None else [f"{with_cores(plain_number(cores))} on average"]
        parts += [] if peak is None else [f"at most {memory_text(peak)}"]
        lines.append(f"Server {clean(server.name)}: {', '.join(parts)}")
        lines += _gpus(server.execution)
    return lines


def _gpus(execution: Execution) -> list[str]:
    from gpusize.report.containers.usage_text import gpu_lines

    return [*(f"  {name}: {text}" for name, text in gpu_lines(execution.gpus)), *map(_indented, execution.gpu_notes)]


def _indented(text: str) -> str:
    return f"  {clean(text)}"


def _advice(result: OperatorResult) -> list[str]:
    made = advice_of(result)
    name = clean(result.name)
    times = [each.duration_s for each in result.executions if each.duration_s is not None]
    took = f" ({', '.join(duration(each) for each in times)})" if times else ""
    if made.refused is not None:
        return [f"{name}{took}: no recommendation: {clean(made.refused)}", *_gpus(result.executions[0])]
    cores = "no CPU figure" if made.cpu_cores is None else with_cores(plain_number(made.cpu_cores))
    cores += "" if made.cpu_measured or made.cpu_cores is None else " (an estimate)"
    memory = "no memory figure" if made.mem_bytes is None else request_text(made.mem_bytes)
    gpus = f", {made.gpu_count} GPUs" if made.gpu_count else ""
    lines = [f"{name}{took}: {cores}, {memory}{gpus}; policy {made.policy}, confidence {made.confidence}"]
    lines += map(_indented, made.reasons)
    lines += [f"  but {clean(each)}" for each in made.doubts]
    lines += _gpus(result.executions[0])
    if result.sized is not None:
        # Where they decided, they are among the reasons.
        if result.sized.curve is not None and not made.cpu_measured:
            lines += [f"  {clean(each)}" for each in result.sized.curve.costs()]
        lines += [f"  {text}" for text in _checks(result)]
    return [*lines, *(f"  {line}" for line in clara_requests(made).rstrip("\n").splitlines())]


def _checks(result: OperatorResult) -> Sequence[str]:
    lines = []
    for trial in result.sized.trials if result.sized is not None else ():
        cores, mem_bytes = trial.execution.limits
        if trial.kind != "verify":
            continue
        told = [] if cores is None else [with_cores(f"{cores:g}")]
        limits = ", ".join([*told, *([] if mem_bytes is None else [memory_text(mem_bytes)])])
        if trial.check is None:
            lines.append(f"under {limits}: {trial.execution.outcome.replace('_', ' ')}")
        else:
            holds = "holds" if trial.check.holds else "does not hold"
            lines.append(f"under {limits}: {trial.check.sentence()}: {holds}")
    return lines
