"""``sweeper diagnose``: why each draft's accept length is what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from sweeper.cli.terminal import AsJson, Run, complaining, console
from sweeper.config import StudyConfig
from sweeper.drafts.diagnosis import Diagnosis, Verdict
from sweeper.drafts.probe_report import ProbeReport


def diagnose(
    run: Run,
    probe: Annotated[
        bool, typer.Option("--probe", help="run the probe first, and keep what it says in RUN")
    ] = False,
    probe_file: Annotated[
        Path | None,
        typer.Option("--probe-file", help="what `sweeper probe --json` printed; default: RUN's, if any"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say why each draft accepts what it accepts, and what to do next. Works while the sweep runs, too.

    Compares what the training promised (space.drafts.NAME.training in the study file), what the server accepted by
    position, and what the draft does outside SGLang (sweeper probe). Verdicts: MATCH, DISTRIBUTION_SHIFT (the text),
    WIRING (the hidden states), CONFIG_OVERRIDE, ENGINE_BUG, UNDERTRAINED, LONG_CONTEXT, or UNEXPLAINED with the
    experiment that will tell.

    Examples:
      sweeper diagnose cpu_tiny
      sweeper diagnose cpu_tiny --probe
    """
    with complaining():
        found = _diagnoses(run, probe, probe_file)
    if as_json:
        from sweeper.drafts.run_cases import diagnoses_json

        typer.echo(diagnoses_json.dump_json(found, indent=2))
        return
    for diagnosis in found:
        colour = {Verdict.MATCH: "green", Verdict.UNEXPLAINED: "yellow"}.get(diagnosis.verdict, "red")
        first, *rest = diagnosis.text.splitlines()
        console.print(f"[bold {colour}]{escape(first)}[/]", highlight=False)
        for line in rest:
            console.print(escape(line), highlight=False)


def _diagnoses(name: str, probe_now: bool, file: Path | None) -> list[Diagnosis]:
    from sweeper.drafts.diagnosis import diagnose as diagnosis_of
    from sweeper.drafts.run_cases import cases_of, probe_file, probe_reports_json, read_probes
    from sweeper.runs.directory import find_run, read_run
    from sweeper.runs.findings import stored_findings
    from sweeper.runs.whole_files import write_whole
    from sweeper.storage.stored_study import preflight_of

    directory = find_run(name)
    config, study = read_run(directory)
    kept = probe_file(directory.path)
    if probe_now:
        reports = _probe(config)
        write_whole(kept, probe_reports_json.dump_json(reports, indent=1))
    probes = read_probes(file or kept) if file or kept.exists() else {}
    preflight = preflight_of(study.user_attrs)
    cases = cases_of(config, stored_findings(study).records.values(), probes, preflight)
    return [diagnosis_of(case) for case in cases]


def _probe(config: StudyConfig) -> list[ProbeReport]:
    from sweeper.cli.probe import eagle3_drafts, progress_bars
    from sweeper.drafts.probing import ProbeJob, run_probe

    def cannot(draft: str, why: str) -> None:
        typer.echo(f"draft {draft} cannot be run outside SGLang: {why}", err=True)

    with progress_bars() as show:
        return run_probe(ProbeJob(config, eagle3_drafts(config, None)), show, cannot)
