"""The figures as Markdown, and the verdict on every floor."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.cells import HALF, NEWER, Setup
from bench.exchange import SENDERS
from bench.load import CONNECTIONS
from bench.measure import CellResult, Plan, Sample
from bench.verdict import Section, Verdict, spread, table

_SHARED: Final = 0.9
"""Below this part of the core for the server, something else ran there and the figures are noisy."""


@dataclass(frozen=True)
class Figures:
    """Everything that one run found."""

    machine: str
    versions: dict[str, dict[str, str]]
    plan: Plan
    cells: list[CellResult]
    imports: dict[str, float]
    starts: dict[str, float]
    sections: list[Section]


def verdicts(figures: Figures) -> list[Verdict]:
    """Every floor of the design that this run measured."""
    judged = [verdict for result in figures.cells for verdict in _judge_cell(result)]
    for what, times in (("import", figures.imports), ("start to first answer", figures.starts)):
        if times:
            part = times["ekiden"] / times["mcp"]
            judged.append(Verdict(what, f"{part:.2f} of mcp", f"at most {HALF:.2f}", part <= HALF))
    for section in figures.sections:
        judged.extend(section.verdicts())
    return [*judged, *_judge_memory(figures.cells)]


def _judge_cell(result: CellResult) -> Iterator[Verdict]:
    cell = result.cell
    of_baseline = result.ratios(cell.reference)
    to = "of the ceiling" if cell.baseline is None else "of our own A"
    if cell.host is not None:
        to = f"times the rate of {cell.reference.contestant}"
    is_judged = cell.floor is not None and not cell.python
    floor = f"at least {cell.floor:.2f}" if is_judged else ""
    holds = median(of_baseline) >= (cell.floor or 0) if is_judged else None
    yield Verdict(f"{cell.key} {cell.title}", f"{spread(of_baseline)} {to}", floor, holds)
    for peer in cell.peers:
        times = result.ratios(peer)
        wanted = cell.times_mcp if peer.contestant == "mcp" and not cell.python else None
        yield Verdict(
            f"{cell.key} {cell.title}",
            f"{spread(times)} times {peer.contestant}",
            "" if wanted is None else f"at least {wanted:g}",
            None if wanted is None else median(times) >= wanted,
        )


def _judge_memory(cells: list[CellResult]) -> Iterator[Verdict]:
    compared = next((result for result in cells if result.cell.peers), None)
    if compared is not None:
        ours = compared.rss(compared.cell.subject)
        theirs = compared.rss(compared.cell.peers[0])
        what = f"RSS after {compared.cell.key}"
        yield Verdict(what, f"{ours:.0f} MB, mcp {theirs:.0f} MB", "less", ours < theirs)


def render(figures: Figures) -> str:
    """The whole report."""
    parts = [_heading(figures), _verdict_table(figures)]
    if figures.cells:
        parts.append(_cell_table(figures.cells))
    parts.extend(section.render() for section in figures.sections)
    if figures.imports:
        parts.append(_start_table(figures))
    return "\n\n".join([*parts, _version_list(figures)]) + "\n"


def _heading(figures: Figures) -> str:
    plan = figures.plan
    return (
        "# Benchmark results\n\n"
        "Written by `make bench`. The measure is the server's CPU time per request: one process on one "
        f"core, `wrk` with {CONNECTIONS} connections on another. The load is one call made by "
        f"{len(SENDERS)} client programs, with ids that differ. Ratios are medians over interleaved pairs "
        f"({plan.pairs} with the baseline, {min(plan.peer_turns, plan.pairs)} with each peer) of "
        f"{plan.slices} s each, in slices of a second that take turns, with fresh processes for every pair; "
        "lowest and highest pair in brackets. "
        "The ceiling parses the JSON and sends ekiden's own answer as constant bytes. All run on the same "
        "uvicorn (uvloop, httptools), ekiden with the connections that `Server.run` gives it; the rows "
        "that are mounted are without them, on the protocol of the ceiling. The peers are stateless, "
        "answer with plain JSON, and send no structured content, as ekiden sends none for text. Rows marked "
        "as shared had less than "
        f"{_SHARED:.0%} of their core in some turn: other work ran on the machine, and they are noisy."
        f"\n\nMachine: {figures.machine}. Rows that end in -{NEWER} are on CPython {NEWER}, peers and "
        "ceiling included; all others on the Python of the machine."
    )


def _verdict_table(figures: Figures) -> str:
    rows = [(v.what, v.measured, v.floor, v.word) for v in verdicts(figures)]
    return table(("work", "ekiden", "floor", ""), rows)


def _cell_table(cells: list[CellResult]) -> str:
    rows = [
        (result.cell.key, _who(result, setup), *_sample_columns(samples))
        for result in cells
        for setup, samples in result.samples.items()
    ]
    return table(("cell", "server", "CPU us/request", "requests/s", "RSS MB", ""), rows)


def _who(result: CellResult, setup: Setup) -> str:
    extra = setup.options if result.cell.baseline is not None else ()
    return " ".join((setup.contestant, *extra))


def _sample_columns(samples: list[Sample]) -> tuple[str, str, str, str]:
    shared = any(sample.busy < _SHARED for sample in samples)
    return (
        f"{median(sample.cpu_us for sample in samples):.1f}",
        f"{median(sample.per_second for sample in samples):,.0f}",
        f"{median(sample.rss for sample in samples):.0f}",
        "core was shared" if shared else "",
    )


def _start_table(figures: Figures) -> str:
    rows = [(name, f"{figures.imports[name]:.3f}", f"{figures.starts[name]:.3f}") for name in figures.imports]
    return table(("server", "import s", "start to first answer s"), rows)


def _version_list(figures: Figures) -> str:
    lines = [
        f"- {name}: {', '.join(f'{package} {version}' for package, version in packages.items())}"
        for name, packages in figures.versions.items()
    ]
    return "\n".join(["Versions:", "", *lines])
