"""What the rules accept starts and runs as predicted; what they reject does not start. Slow: eighteen launches."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.config import StudyConfig
from sweeper.records import FailureClass, Load, TrialResult, TrialState
from sweeper.rules.effective import InvalidSpeculationError, effective
from sweeper.server.prepare import look_up
from sweeper.server.setup import context_of
from sweeper.space import Candidate
from sweeper.speculation import SpeculationConfig
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.run import run_trial
from sweeper.workload.prompts import plan_prompts, read_conversations

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

ACCEPTED, REJECTED = 12, 6


def sample(study: StudyConfig) -> tuple[list[SpeculationConfig], list[SpeculationConfig]]:
    """Random requests of several algorithms, sorted by the rules into accepted and rejected ones."""
    draw = random.Random(7)
    context = context_of(study, look_up(study))
    accepted: list[SpeculationConfig] = []
    rejected: list[SpeculationConfig] = []
    while len(accepted) < ACCEPTED or len(rejected) < REJECTED:
        algorithm = draw.choice(["EAGLE3", "EAGLE3", "STANDALONE", "NGRAM"])
        steps, topk, tokens = draw.randint(1, 6), draw.choice([1, 2, 3, 4]), draw.randint(2, 24)
        draft = {"EAGLE3": "full", "STANDALONE": "standalone", "NGRAM": "none"}[algorithm]
        request = SpeculationConfig(algorithm, draft, 0 if algorithm == "NGRAM" else steps, topk, tokens)
        try:
            effective(request, context)
        except InvalidSpeculationError:
            rejected.append(request)
        else:
            accepted.append(request)
    return accepted[:ACCEPTED], rejected[:REJECTED]


def test_the_rules_agree_with_the_server(testbed: Path, tmp_path: Path) -> None:
    study = StudyConfig.model_validate(
        {
            "study": "rules",
            "engine": {"model": str(testbed / "target"), "device": "cpu", "start_timeout_s": 240},
            "space": {
                "drafts": {
                    "full": {"path": str(testbed / "draft_eagle3_100")},
                    "standalone": {"path": str(testbed / "draft_standalone")},
                },
                "grids": [{"algorithm": "EAGLE3", "drafts": "full", "num_steps": 3}],
            },
            "workload": {
                "prompts": str(testbed / "prompts.jsonl"),
                "concurrency": [1],
                "max_new_tokens": 32,
                "ignore_eos": True,
            },
            "measurement": {"min_requests": 4, "rounds": 2, "max_requests": 4, "warmup_tolerance": 9},
        }
    )
    plan = TrialPlan(study, look_up(study), plan_prompts(study, read_conversations(study)))
    context = context_of(study, plan.setup)
    accepted, rejected = sample(study)

    def launch(request: SpeculationConfig) -> TrialResult:
        log = tmp_path / f"{request.algorithm}-{request.shape.replace('/', '-')}.log"
        return run_trial(plan, TrialOrder(Candidate(request, request, ()), (Load(1),)), log, Watch())

    with ThreadPoolExecutor(2) as pool:
        ran = list(pool.map(launch, accepted + rejected))
    for request, result in zip(accepted, ran, strict=False):
        record = result.record
        assert record.state is TrialState.COMPLETE, (request, record.failure)
        assert record.effective == replace(effective(request, context).effective), request
    for request, result in zip(rejected, ran[ACCEPTED:], strict=True):
        failure = result.record.failure
        assert failure is not None, request
        assert failure.kind in (FailureClass.TREE_TOO_LARGE, FailureClass.INVALID_CONFIG), (request, failure)
