"""A study's report as tests need it: three drafts, chains and trees, three loads, failures; from a known law."""

from __future__ import annotations

from reports.choices import best_per_load, single_choice
from reports.rows import SpanRow
from reports.step_times import step_time_models, step_time_rows, with_analysis
from reports.study_report import BaselineRow, CheckRow, LoadRow, StudyReport, TrialRow, _winner
from reports.trial_rows import break_evens
from sweeper.acceptance import conditional_acceptance, expected_accept_length, marginal_acceptance
from sweeper.breakeven import break_even_accept_length
from sweeper.drafts.preflight.findings import DraftReport, Finding, Level
from sweeper.records import EndedBy, Interval, OutputComparison, Pin
from sweeper.speculation import SpeculationConfig

ACCEPTANCE = {"full": 0.72, "early": 0.35, "tiny": 0.15}
"""Conditional acceptance of a chain's positions; a tree of topk 4 accepts 1.15 times as often."""

CONCURRENCY = (1, 4, 16)
PLAIN_MS = {1: 8.0, 4: 9.0, 16: 14.0}
TOKEN_MS = {1: 0.1, 4: 0.35, 16: 4.0}


def around(value: float, share: float = 0.03) -> Interval:
    return Interval(value, value * (1 - share), value * (1 + share))


def step_ms(config: SpeculationConfig, concurrency: int) -> float:
    """The law: overhead 1 ms, a draft step 0.8 ms, a branch 0.02 ms, a token by concurrency."""
    drafting = 0.8 * config.num_steps + 0.02 * config.topk * config.num_steps
    return PLAIN_MS[concurrency] + 1 + drafting + TOKEN_MS[concurrency] * config.num_draft_tokens


def histogram(config: SpeculationConfig) -> list[int]:
    p = min(0.95, ACCEPTANCE[config.draft] * (1.15 if config.topk > 1 else 1))
    chances = [p**i * (1 - p) for i in range(config.num_steps)] + [p**config.num_steps]
    return [round(10_000 * chance) for chance in chances]


def load_row(config: SpeculationConfig, concurrency: int, bucket: str = "") -> LoadRow:
    counts = histogram(config)
    conditional = conditional_acceptance(counts)
    accepted = expected_accept_length(conditional)
    tau = step_ms(config, concurrency)
    speedup = accepted / tau * PLAIN_MS[concurrency]
    return LoadRow(
        load=f"c={concurrency}" + (f" in={bucket}" if bucket else ""),
        concurrency=concurrency,
        bucket=bucket,
        output_tok_s=around(1000 * concurrency * accepted / tau),
        speedup=around(speedup),
        accept_length=around(accepted, 0.01),
        break_even_accept_length=break_even_accept_length(tau, PLAIN_MS[concurrency]),
        histogram=counts,
        marginal_acceptance=marginal_acceptance(counts),
        conditional_acceptance=conditional,
        step_time_ms=tau,
        ttft_p50_ms=60.0,
        tpot_p50_ms=tau / accepted,
        e2e_p90_ms=900.0,
        requests=32,
        ended_by=EndedBy.PRECISION,
        drift=around(1.0, 0.02),
        unstable=config.num_steps == 15 and concurrency == 16,
    )


def trial(number: int, config: SpeculationConfig, buckets: tuple[str, ...] = ("",)) -> TrialRow:
    rows = [load_row(config, c, bucket) for bucket in buckets for c in CONCURRENCY]
    return TrialRow(
        number=number,
        state="COMPLETE",
        config=config,
        requested=SpeculationConfig("EAGLE3", config.draft, 3, 1, 16) if config.shape == "3/1/4" else None,
        overrides=["topk 1: num_draft_tokens becomes num_steps + 1"] if config.shape == "3/1/4" else [],
        objective=rows[0].speedup,
        loads=rows,
        break_even=break_evens(rows),
        outputs_equal=True,
        command=[
            "/venv/bin/python",
            "-m",
            "sglang.launch_server",
            "--port",
            "1",
            "--api-key",
            "***",
            "--tp-size",
            "1",
        ],
        server="node-1/0" if number % 2 else "node-2/0",
        log=f"logs/trial-{number:04d}.log",
        started_at=f"2026-01-01T{number // 60:02d}:{number % 60:02d}:00+00:00",
        start_s=20.0,
        measure_s=35.0,
    )


def failed(number: int, kind: str, tail: str) -> TrialRow:
    return TrialRow(
        number=number,
        state="FAILED",
        config=SpeculationConfig("EAGLE3", "full", 6, 4, 24 + number),
        failure_class=kind,
        failure="the server died during the load",
        next_step="see the log tail",
        log=f"logs/trial-{number:04d}.log",
        log_tail=tail.split("\n"),
        start_s=20.0,
    )


CHAINS = [(s, 1, s + 1) for s in (1, 2, 3, 5, 7, 15)]
TREES = [(3, 4, 8), (4, 4, 12), (5, 4, 24)]


def study(
    drafts: tuple[str, ...] = ("full", "early", "tiny"),
    buckets: tuple[str, ...] = ("",),
    tail: str = "RuntimeError: planted",
    shapes: list[tuple[int, int, int]] = CHAINS + TREES,
) -> StudyReport:
    """Everything a report can hold; two trials failed."""
    shaped = [SpeculationConfig("EAGLE3", draft, *shape) for draft in drafts for shape in shapes]
    trials = [trial(number, config, buckets) for number, config in enumerate(shaped)]
    trials += [failed(len(trials), "CRASH", tail), failed(len(trials) + 1, "OOM_RUNTIME", tail)]
    plain = [_baseline(c, bucket) for bucket in buckets for c in CONCURRENCY]
    models = step_time_models(trials)
    trials = [with_analysis(t, models, plain) for t in trials]
    able = [t for t in trials if t.state == "COMPLETE"]
    winner = _winner(trials, 0.01, False)
    trials.sort(key=lambda t: (t.number != winner, -(t.best_known.value if t.best_known else 0)))
    loads = [row.load for row in plain]
    return StudyReport(
        study="planted",
        model="/models/target",
        engine_version="0.5.23",
        hardware="1x GPU",
        workload="f00d",
        prompt_notes=["sent raw"],
        drafts={draft: f"/models/{draft}" for draft in drafts},
        objective_loads=[loads[0]],
        max_new_tokens=256,
        temperature=0,
        baseline=plain,
        baseline_command=["/venv/bin/python", "-m", "sglang.launch_server", "--port", "1", "--tp-size", "1"],
        checks=[CheckRow(when="start", server="node-1/0", drift=around(0.99), beyond_tolerance=False)],
        noise_floor=OutputComparison(16, 16, (), 0.001),
        trials=trials,
        preflight=[
            DraftReport("full", "EAGLE3", "/models/full", "SpecForge EAGLE3", "layers 2, 16, 29"),
            DraftReport(
                "early",
                "EAGLE3",
                "/models/early",
                "SpecForge EAGLE3",
                findings=(
                    Finding(
                        Level.SILENT,
                        "rope",
                        "theta 10000, the target has 500000",
                        "config.json",
                        "train again",
                    ),
                ),
            ),
        ],
        skipped={"EAGLE3 full 6/4/40": "fails as trial 27 did"},
        pins=[Pin("max-running-requests", 16, "the highest concurrency measured")],
        confounders=["disable_overlap_schedule is True, False without speculation (27 trials)"],
        winner=winner,
        best_per_load=best_per_load(able, loads, 0.01),
        single_best=single_choice(able, loads, 0.01),
        step_times=step_time_rows(models),
        timeline=[_span(t) for t in trials if t.started_at],
        notices=["node-3 was cordoned"],
        created_at="2026-01-01T12:00:00+00:00",
    )


def _baseline(concurrency: int, bucket: str) -> BaselineRow:
    return BaselineRow(
        load=f"c={concurrency}" + (f" in={bucket}" if bucket else ""),
        concurrency=concurrency,
        output_tok_s=around(1000 * concurrency / PLAIN_MS[concurrency]),
        step_time_ms=PLAIN_MS[concurrency],
        ttft_p50_ms=50.0,
        requests=32,
        ended_by=EndedBy.PRECISION,
        unstable=False,
    )


def _span(row: TrialRow) -> SpanRow:
    assert row.started_at is not None
    return SpanRow(
        kind="trial",
        label=f"trial {row.number}",
        trial=row.number,
        server=row.server,
        started_at=row.started_at,
        start_s=row.start_s or 0.0,
        measure_s=row.measure_s or 0.0,
        state=row.state,
    )
