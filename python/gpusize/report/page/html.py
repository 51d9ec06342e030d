"""report.html: one file with nothing from elsewhere; what its own script adds is no content."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.files import storing, write_atomic
from gpusize.base.units import with_cores
from gpusize.estimate.question import Estimate
from gpusize.estimate.truth import Truth
from gpusize.report.figures.plots import KINDS
from gpusize.report.page.cards import level_cards
from gpusize.report.page.charts import chart
from gpusize.report.page.off_by_one import off_by_one
from gpusize.report.proof import certificate_rows
from gpusize.report.summary import words
from gpusize.report.summary.columns import ROUGH, Cell, Column, notes, run_notes, summary_columns, users_by_level
from gpusize.report.summary.sections import sections
from gpusize.report.summary.source import ReportSource, each_slo, shown
from gpusize.report.summary.sweep import judged_slos, sweeps_of
from gpusize.report.text import clean, count, plain_number

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.figure import Figure

__all__ = ["render_html", "render_study", "write_html"]

CAPTIONS: Final = {
    **{kind.name: kind.caption for kind in KINDS},
    "study-rate": "Completed requests/s at the best level of each combination of settings.",
    "study-p95": "p95 runtime at each level of the sweeps, against the setting.",
}
PARTS: Final = {kind.name: kind.part for kind in KINDS}


def render_html(
    source: ReportSource,
    estimates: Sequence[Estimate] = (),
    *,
    truth: Truth | None = None,
    figures: Mapping[str, Figure] | None = None,
    folder: Path | None = None,
) -> str:
    """The page as text.

    Args:
        source: a result.
        estimates: its estimates; the first that has an answer is the headline.
        truth: what the simulated cluster would really need.
        figures: figures to show, by the names of ``plots.figures``; none when empty or None.
        folder: where ``plots.save_figures`` has just drawn them, so that they need not be drawn again.
    """
    sweeps = sweeps_of(source)
    answers = [shown(each) for each in estimates]
    best = answers[0] if answers else None
    users = users_by_level(answers)
    tables = [(each.loop if len(sweeps) > 1 else "", summary_columns(each, users)) for each in sweeps]
    drawn = [_shown_figure(name, figure, folder) for name, figure in (figures or {}).items()]
    metrics = [slo.metric for _, slo in judged_slos(sweeps)]
    certificate = getattr(source, "certificate", None)
    proved = "what was measured" if certificate is None else clean(certificate.headline)
    page = _environment().get_template("page.html.j2")
    return page.render(
        title=f"gpusize: {words.answer(best) if best else proved}",
        about=sweeps[0].about,
        best=best,
        truth=truth,
        estimates=answers,
        parts=each_slo(answers),
        warnings=_warnings(source.meta, best.warnings if best else ()),
        tables=[(loop, columns, _rows(columns)) for loop, columns in tables],
        search=_search(source),
        certificate=certificate,
        proof=[] if certificate is None else certificate_rows(certificate),
        sections=[(each, _rows(each.columns)) for each in sections(source)],
        slos=[slo for _, slo in judged_slos(sweeps)],
        notes=[*(each for sweep in sweeps for each in notes(sweep)), *run_notes(source)],
        itl=_itl_note(source),
        rough=any(column.key == ROUGH for _, columns in tables for column in columns),
        figures={part: [each for each in drawn if each.part == part] for part in PARTS.values()}
        | {"load": sorted((each for each in drawn if each.part == "load"), key=lambda each: _asked(each, metrics))},
        levels=[(each.loop if len(sweeps) > 1 else "", *level_cards(each)) for each in sweeps if each.rows],
        counts=off_by_one(best, next((s for s in sweeps if s.open_loop == (best.rate is not None)), sweeps[0]))
        if best
        else [],
        several_slos=best is not None and len(words.slos_of(best)) > 1,
        charts=_charts(drawn),
        command=_command(source.meta),
        facts=_facts(source),
    )


@dataclass(frozen=True, slots=True)
class ShownFigure:
    """A figure in the page: as a picture, and as what the script draws of it (None where it stays one)."""

    name: str
    title: str
    picture: Markup
    caption: str
    part: str
    chart: dict[str, Any] | None


def _shown_figure(name: str, figure: Figure, folder: Path | None = None) -> ShownFigure:
    from markupsafe import Markup

    # Of the smaller sweep's the same as of the larger one's.
    kind = name.removesuffix("-open").removesuffix("-closed")
    picture = Markup(inline_svg(name, figure, folder))  # noqa: S704 (matplotlib escapes the text in it)
    title = clean(figure.texts[0].get_text()) if figure.texts else name
    return ShownFigure(name, title, picture, CAPTIONS.get(kind, ""), PARTS.get(kind, "load"), chart(figure))


def _asked(figure: ShownFigure, metrics: Sequence[str]) -> int:
    """The place of a figure among others: those of the SLOs' own metrics first."""
    kind = figure.name.partition("-")[0]
    return metrics.index(kind) if kind in metrics else len(metrics)


def _charts(figures: Sequence[ShownFigure]) -> Markup:
    """What the script reads, as JSON that ends no element."""
    from markupsafe import Markup

    text = json.dumps({each.name: each.chart for each in figures if each.chart}, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


@cache
def script() -> tuple[str, str]:
    """The page's script without its indents and comments, and its hash for the Content-Security-Policy."""
    lines = files("gpusize.report.page").joinpath("page.js").read_text("utf-8").splitlines()
    text = "\n".join(line for each in lines if (line := each.strip()) and not line.startswith("//"))
    return text, base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _search(source: ReportSource) -> list[tuple[str, str]]:
    from gpusize.report.summary.search_text import search_rows

    found = getattr(source, "search", None)
    return [] if found is None else search_rows(found)


def render_study(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    figures: Mapping[str, Figure] | None = None,
) -> str:
    """The page of a study as text.

    Args:
        name: the study's.
        rows: of ``gpusize.studies.table.study_rows``.
        columns: of ``gpusize.studies.page.study_columns``.
        figures: of ``gpusize.studies.figures.study_figures``.
    """
    done = sum(row["state"] == "done" for row in rows)
    made = dict(figures or {})
    rate = made.get("study-rate")
    headline = clean(rate.texts[0].get_text(), 200) if rate is not None else _combinations(len(rows))
    return (
        _environment()
        .get_template("study.html.j2")
        .render(
            title=f"gpusize: study {clean(name, 80)}",
            name=clean(name, 80),
            headline=headline,
            done=done,
            combinations=len(rows),
            errors=[(clean(row["name"], 120), clean(row["error"])) for row in rows if row["error"]],
            columns=columns,
            rows=_rows(columns),
            figures=(drawn := [_shown_figure(key, each) for key, each in made.items()]),
            charts=_charts(drawn),
        )
    )


def _combinations(n: int) -> str:
    return f"{n} combination{'' if n == 1 else 's'} of settings"


@cache
def _environment() -> Environment:
    """Compiling the templates takes longer than filling them."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("gpusize.report.page", ".")
    env = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text, digest = script()
    env.globals.update(contents=_contents, script=Markup(text), script_hash=digest)  # noqa: S704 (a file of the package)
    env.globals.update({name: getattr(words, name) for name in words.__all__}, plain_number=plain_number)
    return env


def _contents(body: str) -> list[tuple[str, str]]:
    """(id, title) of the sections of a page."""
    return [
        (name, html.unescape(title)) for name, title in re.findall(r'<section id="([\w-]+)">\s*<h2>(.*?)</h2>', body)
    ]


def _rows(columns: Sequence[Column]) -> list[list[tuple[Cell, Column]]]:
    return [list(zip(row, columns, strict=True)) for row in zip(*(each.cells for each in columns), strict=True)]


def write_html(
    source: ReportSource,
    estimates: Sequence[Estimate],
    file: Path,
    *,
    truth: Truth | None = None,
    figures: Mapping[str, Figure] | None = None,
    folder: Path | None = None,
) -> Path:
    """Write the page; arguments as ``render_html``.

    Raises:
        StoreError: the file cannot be written.
    """
    text = render_html(source, estimates, truth=truth, figures=figures, folder=folder)
    with storing(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, text.encode())
    return file


def inline_svg(name: str, figure: Figure, folder: Path | None = None) -> str:
    """A figure as an ``<svg>`` element for the page: ids of its own, colours from the page's variables.

    Args:
        name: its name.
        figure: the figure.
        folder: where it lies drawn; None to draw it.
    """
    from gpusize.report.figures import style
    from gpusize.report.figures.plots import svg_text

    text = svg_text(figure) if folder is None else (folder / f"{name}.svg").read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", text)
    # Two figures have ids in common, and ids are one namespace per page.
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text).replace("url(#", f"url(#{name}-")
    colors = "|".join(style.CSS_NAMES)
    text = re.sub(rf"(?<=[ :])(?:{colors})(?=[;\"])", lambda found: f"var(--{style.CSS_NAMES[found[0]]})", text)
    label = clean(figure.texts[0].get_text()) if figure.texts else name
    label = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def _itl_note(source: ReportSource) -> str:
    """Where the times between events come from, if there are any."""
    sources = {row.get("itl_source") for row in source.summary.to_dicts()} - {None}
    exact = "ITL is exact, from the times of all events of the steady requests."
    rough = "ITL is from a histogram of the whole level, to the width of its buckets."
    stated = "ITL is as the other tool states it."
    notes = {"events": exact, "histogram": rough, "stated": stated}
    return notes.get(str(sources.pop()), "") if len(sources) == 1 else ""


def _warnings(meta: Mapping[str, Any], own: Sequence[str]) -> list[str]:
    """What weakens the answer; an unverified certificate is among it."""
    targets = [each for each in meta.get("targets") or () if isinstance(each, Mapping)]
    unverified = [clean(each.get("url")) for each in targets if each.get("tls_verified") is False]
    return [*own, *(f"the TLS certificate of {url} was not verified" for url in unverified)]


def _command(meta: Mapping[str, Any]) -> str:
    argv = meta.get("command") or ()
    if isinstance(argv, str):
        return clean(argv, 4000)
    return clean(shlex.join(str(each) for each in argv), 4000)


def _facts(source: ReportSource) -> list[tuple[str, str]]:
    """Provenance: run, target, dataset, hosts, versions; what is not known is left out."""
    meta = source.meta
    facts: list[tuple[str, object]] = [("run", meta.get("run")), ("started", meta.get("created"))]
    for target in meta.get("targets") or ():
        kind = "simulated cluster" if target.get("simulated") else target.get("url")
        facts.append(("target", _joined(kind, target.get("api"), target.get("model"))))
    dataset = meta.get("dataset") or {}
    if dataset:
        digest = str(dataset.get("sha256") or "")[:16]
        rows = f"{count(dataset.get('rows'))} rows"
        facts.append(("dataset", _joined(dataset.get("source"), rows, digest and f"sha256 {digest}…")))
    facts.append(("seed", meta.get("seed")))
    labels = meta.get("labels") or {}
    facts.append(("labels", ", ".join(f"{key}={value}" for key, value in labels.items())))
    facts += [("host", _host(host)) for host in meta.get("hosts") or ()]
    facts += [("gpusize", meta.get("gpusize")), ("folder", source.path)]
    return [(name, clean(value, 600)) for name, value in facts if value not in (None, "")]


def _host(host: Mapping[str, Any]) -> str:
    memory = host.get("memory_bytes")
    return _joined(
        host.get("name") or host.get("hostname"),
        host.get("cpu"),
        with_cores(str(host["cores"])) if host.get("cores") else None,
        f"{memory / 2**30:.0f} GiB" if isinstance(memory, (int, float)) else None,
        f"Linux {host['kernel']}" if host.get("kernel") else None,
        f"Python {host['python']}" if host.get("python") else None,
    )


def _joined(*parts: object) -> str:
    return ", ".join(str(each) for each in parts if each)
