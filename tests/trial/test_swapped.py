"""Trials on a server that is there already, on the stand-in: taken, proven, doubted, and never left behind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeper.records import FailureClass, SwapOutcome, TrialResult, TrialState
from sweeper.server.prepare import prepare_engine
from sweeper.server.process import LeakError
from sweeper.space import enumerate_space
from sweeper.study_file.reading import load_study_file
from sweeper.trial import launch as launching
from sweeper.trial.kept import Keeper
from sweeper.trial.measure import Progress
from sweeper.trial.order import LAUNCH, HotSwapOrder, TrialOrder, TrialPlan, Watch
from sweeper.trial.run import run_trial
from sweeper.trial.swapped import LAUNCHED
from sweeper.workload.prompts import plan_prompts, read_conversations
from tests.command_line import servers
from tests.conftest import WriteStudy

pytest.importorskip("torch")
pytest.importorskip("safetensors")

KEEP = HotSwapOrder(keep=True)
TAKE = HotSwapOrder(take=True)
PROVE = HotSwapOrder(take=True, prove=True, keep=True)


class Bench:
    """Trials of drafts a and b under equal numbers, one after another; ``fault`` is the server's that runs a."""

    def __init__(self, write_study: WriteStudy, tmp_path: Path, fault: str) -> None:
        env = {"FAKE_FAULTS": json.dumps({"draft_a": fault})}
        workload, few = {"concurrency": [2]}, {"min_requests": 4, "max_requests": 4}
        memory = {"mem-fraction-static": 0.9} if fault == "out_of_memory" else {}
        engine = {"env": env, "extra_args": memory}
        study = load_study_file(write_study(engine=engine, workload=workload, measurement=few))
        self.plan = TrialPlan(study, prepare_engine(study), plan_prompts(study, read_conversations(study)))
        by_name = {str(c.effective): c for c in enumerate_space(study.space).candidates}
        self.candidates = {
            "a": by_name["EAGLE3 a 3/1/4"],
            "b": by_name["EAGLE3 b 3/1/4"],
            "b1": by_name["EAGLE3 b 1/1/2"],
        }
        self.path, self.keeper, self.phases = tmp_path, Keeper(), list[str]()
        self.stop: Callable[[], bool] = lambda: False
        plain = run_trial(self.plan, self.order("a", LAUNCH), tmp_path / "plain.log")
        self.reference = plain.outputs
        assert plain.outputs
        assert not plain.kept

    def order(self, draft: str, how: HotSwapOrder) -> TrialOrder:
        reference = getattr(self, "reference", None)
        return TrialOrder(self.candidates[draft], self.plan.study.workload.loads, reference, hot_swap=how)

    def run(self, draft: str, how: HotSwapOrder) -> TrialResult:
        log = self.path / f"{'kept' if how.keep else 'ended'}-{len(self.phases)}.log"
        watch = Watch(phase=self.phases.append, stop=lambda: self.stop())
        result = run_trial(self.plan, self.order(draft, how), log, watch, self.keeper)
        if not result.kept:
            log.unlink(missing_ok=True)
        return result

    def running(self) -> int:
        return len(servers(str(self.path)))


@pytest.fixture
def bench(write_study: WriteStudy, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(write_study, tmp_path, getattr(request, "param", ""))
    yield made
    assert made.keeper.end() is None
    assert made.running() == 0
    assert not list(tmp_path.glob("kept-*.log"))


def test_a_sibling_is_measured_on_the_server_that_is_there(bench: Bench) -> None:
    first = bench.run("a", KEEP)
    assert first.kept
    assert first.record.hot_swap is None
    assert bench.running() == 1
    pid = bench.keeper.kept.process.pid  # type: ignore[union-attr]
    second = bench.run("b", HotSwapOrder(take=True, keep=True))
    assert second.kept
    assert bench.keeper.kept.process.pid == pid
    record = second.record
    assert record.state is TrialState.COMPLETE
    assert record.effective.draft == "b"
    assert "draft_b" in " ".join(record.command)
    assert record.hot_swap is not None
    assert record.hot_swap.launched_with == "a"
    assert 0 < record.hot_swap.seconds < record.start_s
    assert record.comparison is not None
    assert record.comparison.equal
    assert "loading other draft weights" in bench.phases
    third = bench.run("a", TAKE)
    assert third.record.hot_swap is not None
    assert not third.kept
    assert bench.running() == 0


def test_a_server_that_cannot_be_used_ends_before_the_next_one_starts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = []
    begun = launching.begun

    def counted(*arguments: Any) -> Progress:  # nothing else runs when a launch begins
        there.append(bench.running())
        return begun(*arguments)

    monkeypatch.setattr(launching, "begun", counted)
    bench.run("a", KEEP)
    result = bench.run("b1", TAKE)  # other numbers
    assert result.record.state is TrialState.COMPLETE
    assert result.record.hot_swap is None
    bench.run("a", KEEP)
    result = bench.run("b", LAUNCH)
    assert result.record.state is TrialState.COMPLETE
    assert result.record.hot_swap is None
    assert there == [0] * 4
    assert bench.running() == 0


def test_a_proof_launches_too_and_keeps_the_launchs_numbers(bench: Bench) -> None:
    bench.run("a", KEEP)
    result = bench.run("b", PROVE)
    swap = result.record.hot_swap
    assert swap is not None
    assert swap.outcome is SwapOutcome.PROVEN
    assert swap.swapped_accept_length == pytest.approx(swap.launched_accept_length)
    assert result.kept
    assert "draft_b" in " ".join(bench.keeper.kept.process._process.args)
    assert result.record.attempts == ()


@pytest.mark.parametrize(
    ("bench", "why"),
    [
        ("refuses_weights", "hot swap: update_weights_from_tensor: planted refusal"),
        ("dies_of_weights", "hot swap: "),
    ],
    indirect=["bench"],
)
def test_weights_that_are_not_taken_are_launched(bench: Bench, why: str) -> None:
    bench.run("a", KEEP)
    record = bench.run("b", TAKE).record
    assert record.state is TrialState.COMPLETE
    [attempt] = record.attempts
    assert (attempt.failure.kind, attempt.change) == (FailureClass.MEASUREMENT, LAUNCHED)
    assert why in attempt.failure.message
    assert record.hot_swap is not None
    assert record.hot_swap.outcome is SwapOutcome.FAILED


@pytest.mark.parametrize("bench", ["deaf_to_weights"], indirect=True)
def test_weights_that_were_taken_and_not_used_are_found(bench: Bench) -> None:
    bench.run("a", KEEP)
    record = bench.run("b", TAKE).record
    assert record.hot_swap is not None
    assert record.hot_swap.outcome is SwapOutcome.FAILED
    assert "the same as before" in record.hot_swap.why
    assert record.draft_checksum == "draft_b"


@pytest.mark.parametrize("bench", ["garbled_weights"], indirect=True)
def test_an_accept_length_that_a_launch_does_not_have_is_found(bench: Bench) -> None:
    bench.run("a", KEEP)
    record = bench.run("b", PROVE).record
    swap = record.hot_swap
    assert swap is not None
    assert swap.outcome is SwapOutcome.REFUTED
    assert swap.swapped_accept_length == pytest.approx(1.0)
    assert record.load_points[0].accept_length.value == pytest.approx(swap.launched_accept_length, rel=0.2)
    assert "refuted: the accept lengths differ" in str(swap)


@pytest.mark.parametrize("bench", ["corrupted_by_weights"], indirect=True)
def test_outputs_that_change_with_the_weights_are_not_the_drafts_fault(bench: Bench) -> None:
    bench.run("a", KEEP)
    record = bench.run("b", TAKE).record
    assert record.comparison is not None
    assert record.comparison.equal
    assert record.hot_swap is not None
    assert record.hot_swap.outcome is SwapOutcome.REFUTED
    assert record.hot_swap.why == "outputs leave the baseline's"


def test_a_server_that_died_while_it_waited_says_nothing_of_swaps(bench: Bench) -> None:
    bench.run("a", KEEP)
    for server in servers(str(bench.path)):
        server.kill()
    while bench.keeper.kept.process.alive:  # type: ignore[union-attr]
        time.sleep(0.1)
    record = bench.run("b", TAKE).record
    assert record.state is TrialState.COMPLETE
    assert record.hot_swap is None
    assert record.attempts == ()


def test_what_an_earlier_server_left_behind_is_not_the_next_configs_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run("a", KEEP)
    kept = bench.keeper.kept
    assert kept is not None
    stop = kept.process.stop

    def leaking(at_once: bool = False) -> None:
        stop(at_once)
        raise LeakError("planted leak")

    monkeypatch.setattr(kept.process, "stop", leaking)
    result = bench.run("b", PROVE)  # measured, and then there is no place to launch on
    assert result.leak == "planted leak"
    assert result.record.state is TrialState.FAILED
    assert result.record.failure is not None
    assert result.record.failure.kind is FailureClass.LOST
    assert bench.running() == 0


def test_a_swap_can_be_interrupted(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench.run("a", KEEP)
    stuck = tmp_path / "stuck.py"
    stuck.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr("sweeper.server.load_draft.__file__", str(stuck))
    bench.stop = lambda: "loading other draft weights" in bench.phases
    result = bench.run("b", TAKE)
    assert result.record.state is TrialState.INTERRUPTED
    assert bench.running() == 0


@pytest.mark.parametrize("bench", ["out_of_memory"], indirect=True)
def test_a_server_that_needed_other_pins_is_not_kept(bench: Bench) -> None:
    result = bench.run("a", KEEP)
    assert result.record.state is TrialState.COMPLETE
    assert result.record.attempts
    assert not result.kept
    assert bench.running() == 0
