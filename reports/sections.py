"""The parts of a report that are small tables, for every output that shows them to people."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from reports.study_report import StudyReport
from reports.tables import CONFIG, short


def baseline(report: StudyReport) -> pd.DataFrame:
    """The server without speculation, per load."""
    return pd.DataFrame(
        [
            {
                "load": row.load,
                "output tok/s": f"{row.output_tok_s:.1f}",
                "ms per token": f"{row.step_time_ms:.2f}",
                "TTFT p50 ms": f"{row.ttft_p50_ms:.0f}",
                "requests": str(row.requests),
                "ended by": row.ended_by.value.lower() + (", UNSTABLE" if row.unstable else ""),
            }
            for row in report.baseline
        ]
    )


def conditions(report: StudyReport) -> list[tuple[str, str]]:
    """Under what the study's numbers were measured, and how much of it there is, as (name, value) pairs."""
    states = Counter(trial.state.lower() for trial in report.trials)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    best = report.best
    found = [
        ("target", report.model),
        ("hardware", report.hardware or "?"),
        ("engine", f"SGLang {report.engine_version or '?'}"),
        ("traffic", f"at most {report.max_new_tokens} new tokens, temperature {report.temperature:g}"),
        ("trials", counts or "none yet"),
    ]
    if best:
        pays = "; ".join(f"{bucket}: {at}" if bucket else str(at) for bucket, at in best.break_even.items())
        row = next((row for name in report.objective_loads if (row := best.at(name))), None)
        found += [("break-even", pays)] if pays else []
        if row:
            needs = f"{row.accept_length.value:.2f}, pays above {row.break_even_accept_length:.2f}"
            found.append((f"accept length at {row.load}", needs))
    return found


def choices(report: StudyReport) -> pd.DataFrame:
    """Per load: what to deploy for it alone, and what the single best config gives up there."""
    single = report.single_best
    rows = []
    for choice in report.best_per_load:
        row = {
            "load": choice.load,
            "best": choice.config,
            "speedup": short(choice.speedup) if choice.speedup else "1.00",
            "confirmed": "yes" if choice.confirmed else "no" if choice.speedup else "-",
        }
        if single:
            row[f"{single.config} gives up"] = f"{100 * single.regrets[choice.load]:.0f} %"
        rows.append(row)
    return pd.DataFrame(rows)


def break_evens(report: StudyReport) -> pd.DataFrame:
    """One row per trial and load: accept length, the one it must exceed, and how far the trial pays."""
    return pd.DataFrame(
        [
            {
                CONFIG: str(trial.config),
                "load": row.load,
                "speedup": short(row.best_known),
                "accept length": f"{row.accept_length:.2f}",
                "pays above": f"{row.break_even_accept_length:.2f}",
                "margin": f"{100 * row.margin:+.0f} %",
                "break-even concurrency": str(trial.break_even.get(row.bucket, "-")),
            }
            for trial in report.trials
            for row in trial.loads
        ]
    )


def shortfalls(report: StudyReport) -> pd.DataFrame:
    """One row per trial and load that does not pay, with what would make it."""
    rows = []
    for trial in report.trials:
        for row in trial.loads:
            lack = row.shortfall
            if lack is None:
                continue
            acceptance = lack.needed_acceptance
            rows.append(
                {
                    CONFIG: str(trial.config),
                    "load": row.load,
                    "accept length": f"{row.accept_length.value:.2f}",
                    "needed": f"{lack.needed_accept_length:.2f}",
                    "needed at every position": f"{acceptance:.2f}" if acceptance else "-",
                    "ms per round": f"{row.step_time_ms:.2f}",
                    "or at most": f"{1000 * lack.needed_step_time_s:.2f}",
                    "or a draft at": "-"
                    if lack.draft_cost_share is None
                    else f"{100 * lack.draft_cost_share:.0f} % of its cost",
                }
            )
    return pd.DataFrame(rows)


def overrides(report: StudyReport) -> pd.DataFrame:
    """One row per trial whose effective config is not the requested one."""
    return pd.DataFrame(
        [
            {
                "trial": trial.number,
                "requested": str(trial.requested),
                "effective": str(trial.config),
                "why": "; ".join(trial.overrides) or "the server says so",
            }
            for trial in report.trials
            if trial.requested
        ]
    )


def checks(report: StudyReport) -> pd.DataFrame:
    """One row per time the baseline was measured again."""
    return pd.DataFrame(
        [
            {
                "when": check.when,
                "server": check.server,
                "speed over the study's baseline": short(check.drift) if check.drift else check.failure,
                "": "beyond baseline.tolerance" if check.beyond_tolerance else "",
            }
            for check in report.checks
        ]
    )


def pins(report: StudyReport) -> pd.DataFrame:
    """The flags that both arms share, and why."""
    return pd.DataFrame(
        [
            {"flag": f"--{pin.flag}", "value": "" if pin.value is True else str(pin.value), "why": pin.why}
            for pin in report.pins
        ]
    )


def drafts(report: StudyReport) -> pd.DataFrame:
    """One row per draft and finding of preflight; one per draft without any."""
    rows = []
    for draft in report.preflight:
        name = f"{draft.algorithm} {draft.draft}"
        about = {"draft": name, "is": draft.format, "reads": draft.reads or "-"}
        rows += [
            about
            | {
                "finding": f"{finding.level.value} {finding.rule}",
                "what": f"{finding.where}: {finding.what}",
                "what to do": finding.do,
            }
            for finding in draft.findings
        ]
        if not draft.findings:
            rows.append(about | {"finding": "nothing found", "what": "", "what to do": ""})
    return pd.DataFrame(rows)


def costs(report: StudyReport) -> pd.DataFrame:
    """The fitted costs, in ms, per algorithm and load."""
    rows: list[dict[str, str]] = []
    for fit in report.step_times:
        row = {"algorithm": fit.algorithm, "load": fit.load}
        for cost in fit.costs:
            between = cost.interval_ms
            row[f"{cost.term}, ms"] = f"{cost.ms:.2f}" + (
                f" [{between.low:.2f}, {between.high:.2f}]" if between else ""
            )
        row["scatter"] = f"{100 * fit.scatter:.1f} %" if fit.scatter is not None else "?"
        row["configs"] = str(fit.measurements)
        row["draft/verify apart"] = "yes" if fit.separable else "no, needs trees"
        rows.append(row)
    return pd.DataFrame(rows).fillna("-")
