"""``sweeper probe`` and ``sweeper map``: drafts judged outside SGLang, before a server is launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from sweeper.cli.terminal import AsJson, complaining, complaints, console
from sweeper.config import StudyConfig
from sweeper.errors import SweeperError

if TYPE_CHECKING:
    from sweeper.drafts.acceptance_map import AcceptanceMap
    from sweeper.drafts.probe_report import ProbeReport

File = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="study file: its target, its EAGLE-3 drafts and its workload"),
]
TargetOption = Annotated[
    str | None, typer.Option("--target", help="target checkpoint, where there is no FILE")
]
DraftOption = Annotated[
    list[str] | None,
    typer.Option("--draft", help="draft checkpoint, or a draft's name in FILE; may be given several times"),
]
WorkloadOption = Annotated[
    str | None, typer.Option("--workload", help="prompts: a file or a preset, where there is no FILE")
]
RayOption = Annotated[
    str | None,
    typer.Option(
        envvar="RAY_ADDRESS", help="run as a task of this Ray cluster, on a GPU of it; default: here"
    ),
]


def probe(
    file: File = None,
    target: TargetOption = None,
    draft: DraftOption = None,
    workload: WorkloadOption = None,
    features: Annotated[
        Path | None,
        typer.Option(help="directory of hidden states that SpecForge dumped, instead of running the target"),
    ] = None,
    prompts: Annotated[int, typer.Option(min=2, help="texts to judge on")] = 32,
    depth: Annotated[int, typer.Option(min=1, max=16, help="draft steps to judge")] = 5,
    ray_address: RayOption = None,
    as_json: AsJson = False,
) -> None:
    """Judge EAGLE-3 drafts outside SGLang: is a draft good, and does SGLang serve what it was trained on?

    Loads the target through transformers, continues the workload's prompts greedily, and runs the draft from every
    position of the outputs: with the hidden states that SGLang will give it, and with those that a training may have
    used by mistake (the embedding's output, layers shifted by one, another order, before or after a norm, ...). If
    another wiring is clearly better, the draft was trained on that, and no sweep mends it: the report says what does.

    On true text is what a training reports; conditional counts only chains that were right so far; marginal is their
    product, and what a server shows per position.

    Examples:
      sweeper probe search_spaces/cpu_tiny.yaml
      sweeper probe --target /models/target --draft /checkpoints/step2000 --workload my_requests.jsonl
      sweeper probe --target /models/target --draft /checkpoints/step2000 --features /cache/hidden_states
    """
    with complaining(), progress_bars() as show:
        study = _study(file, target, draft, workload or ("testbed" if features else None))
        from sweeper.drafts.probing import ProbeJob, run_probe

        job = ProbeJob(study, eagle3_drafts(study, draft), prompts, features, depth)
        reports: list[ProbeReport] = _where(run_probe, job, study, ray_address, show)
    if as_json:
        from sweeper.drafts.run_cases import probe_reports_json

        typer.echo(probe_reports_json.dump_json(reports, indent=2))
        return
    for report in reports:
        _print_probe(report)


def map_(
    file: File = None,
    out: Annotated[Path, typer.Option(help="the map's file")] = Path("acceptance_map.parquet"),
    target: TargetOption = None,
    draft: DraftOption = None,
    workload: WorkloadOption = None,
    num_steps: Annotated[
        int | None, typer.Option(min=1, max=32, help="most steps; default: the most that FILE asks for, or 8")
    ] = None,
    topk: Annotated[
        list[int] | None,
        typer.Option(min=1, max=32, help="may be given several times; default: FILE's, or 1"),
    ] = None,
    prompts: Annotated[int, typer.Option(min=2, help="texts to draft along")] = 64,
    ray_address: RayOption = None,
) -> None:
    """Predict the accept length of every (steps, topk, draft tokens) of EAGLE-3 drafts, without a server.

    One pass grows SGLang's draft trees at every position of the target's own greedy outputs; walking those positions as
    decoding would then gives the accept length of every smaller tree. Greedy decoding only. The file serves
    `sweeper check FILE --acceptance-map MAP` and, as a prior, the search.

    Examples:
      sweeper map search_spaces/cpu_tiny.yaml --out cpu_tiny.map
      sweeper map --target /models/target --draft /checkpoints/step2000 --workload my.jsonl --num-steps 8 --topk 4
    """
    with complaining(), progress_bars() as show:
        study = _study(file, target, draft, workload)
        from sweeper.drafts.probing import MapJob, run_map

        job = MapJob(
            study, eagle3_drafts(study, draft), _sizes(study if file else None, num_steps, topk), prompts
        )
        found: AcceptanceMap = _where(run_map, job, study, ray_address, show)
        found.save(out)
    _print_map(found, out)


def _study(
    file: Path | None, target: str | None, drafts: list[str] | None, workload: str | None
) -> StudyConfig:
    """The study file's, or the smallest one that says the same as the options."""
    from sweeper.study_file.reading import load_study_file

    if file is not None:
        if target or workload:
            raise SweeperError("give either a study file or --target and --workload, not both")
        return load_study_file(file)
    missing = [
        name
        for name, value in (("--target", target), ("--draft", drafts), ("--workload", workload))
        if not value
    ]
    if missing:
        raise SweeperError(f"without a study file, {' and '.join(missing)} must be given")
    return command_line_study(str(target), drafts or [], str(workload))


def command_line_study(target: str, drafts: list[str], workload: str) -> StudyConfig:
    """The smallest study with this target, these drafts and these prompts."""
    return StudyConfig.model_validate(
        {
            "study": "probe",
            "engine": {"model": target},
            "space": {
                "drafts": {_name(path): {"path": path} for path in drafts},
                "grids": [{"algorithm": "EAGLE3", "num_steps": 1}],
            },
            "workload": {"prompts": workload},
        }
    )


def _name(path: str) -> str:
    """A draft's name from its path: the last part, as far as names may have its characters."""
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in Path(path).name)
    return kept.strip("._-")[:64] or "draft"


def eagle3_drafts(study: StudyConfig, wanted: list[str] | None) -> dict[str, str]:
    """Paths by name of the EAGLE-3 drafts that are asked for, by default all."""
    eagle3: set[str] = set()
    for grid in study.space.grids:
        if "EAGLE3" in grid.algorithm:
            eagle3 |= set(study.space.drafts if grid.drafts is None else grid.drafts)
    there = {name: draft.path for name, draft in study.space.drafts.items() if name in eagle3}
    chosen = {n: p for n, p in there.items() if not wanted or n in wanted or p in wanted}
    unknown = [w for w in wanted or () if w not in there and w not in there.values()]
    if unknown or not chosen:
        raise SweeperError(
            f"{f'--draft {unknown[0]}: ' if unknown else ''}no such EAGLE3 draft in the study "
            f"(there: {', '.join(there) or 'none'}); only EAGLE-3 drafts can be run outside SGLang"
        )
    return chosen


def _sizes(study: StudyConfig | None, num_steps: int | None, topk: list[int] | None) -> list[Any]:
    from sweeper.drafts.draft_tree import TreeSize

    steps: dict[int, int] = {}
    for grid in study.space.grids if study else ():
        if "EAGLE3" in grid.algorithm:
            for k in grid.values.get("topk", [1]):
                steps[int(k)] = max(steps.get(int(k), 1), *map(int, grid.values["num_steps"]))
    wanted = sorted(set(topk)) if topk else sorted(steps) or [1]
    return [TreeSize(num_steps or steps.get(k) or max(steps.values(), default=8), k) for k in wanted]


def _where(function: Callable[..., Any], job: Any, study: StudyConfig, address: str | None, show: Any) -> Any:
    if address is None:
        return function(job, show)
    from actors.draft_task import run_on_cluster

    return run_on_cluster(function, job, study, address, show)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar per stage with the time left, on standard error."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=complaints, disable=not complaints.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, of: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=of)
            bar.update(tasks[stage], completed=done)

        yield show


def _print_probe(report: ProbeReport) -> None:
    served = report.served
    console.print(
        f"[bold]{escape(report.draft)}[/] on {escape(report.source)}: {report.texts} texts, "
        f"{report.positions} positions",
        highlight=False,
    )
    positions = Table(
        "draft position", "on true text", "conditional", "marginal", title="As served", title_justify="left"
    )
    for i in range(len(served.marginal)):
        cells = (served.on_true_text[i], served.conditional[i], served.marginal[i])
        positions.add_row(str(i + 1), *(f"{cell:.3f}" for cell in cells))
    console.print(positions)
    table = Table(
        "hidden states", f"accept length of {report.depth} drafts", "over the served", "position 1", "2", "3",
        title="Wirings: conditional acceptance by position", title_justify="left",
    )  # fmt: skip
    for row in report.rows:
        first = [f"{value:.3f}" for value in row.conditional[:3]]
        gain = f"{row.over_served:.2f}" if row.over_served else "served"
        style = "bold" if row.wiring == report.trained_on else ""
        table.add_row(
            escape(row.wiring),
            f"{row.accept_length:.2f}",
            gain,
            *first,
            *[""] * (3 - len(first)),
            style=style,
        )
    console.print(table)
    for text, style in ((report.verdict, "red" if report.trained_on else "green"), (report.remedy, "yellow")):
        if text:
            console.print(f"[{style}]{escape(text)}[/]", highlight=False)
    for note in report.notes:
        console.print(f"Note: {escape(note)}", highlight=False)


def _print_map(found: AcceptanceMap, path: Path) -> None:
    facts = found.facts
    columns = [f"{steps} steps" for steps in range(1, 1 + max(facts.num_steps.values()))]
    title = "Accept length by steps (trees: with all their candidates)"
    table = Table("draft", "topk", *columns, title=title, title_justify="left")
    for draft, topk in found.ranks:
        cells = []
        for steps in range(1, facts.num_steps[topk] + 1):
            n = steps + 1 if topk == 1 else 1 + topk + (steps - 1) * topk**2
            cells.append(f"{found.accept_length(draft, steps, topk, n)[0]:.2f}")
        table.add_row(draft, str(topk), *cells)
    console.print(table)
    console.print(
        escape(
            f"{path}: {facts.prompts} prompts, {facts.output_tokens} output tokens, {facts.seconds:.0f} s"
        ),
        highlight=False,
    )
