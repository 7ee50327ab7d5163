"""Every failure seen on a running SGLang gives its class on the real server, soon, and leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from sweeper.config import StudyConfig
from sweeper.records import Blame, FailureClass, Load, Pin, TrialResult
from sweeper.server import process
from sweeper.server.command import Address
from sweeper.server.prepare import look_up
from sweeper.server.process import fresh_address
from sweeper.space import Candidate
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.study.surroundings import NO_CANDIDATE
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.run import run_trial
from sweeper.workload.prompts import plan_prompts, read_conversations
from tests.command_line import scheduler_of, servers, value_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

AT_ONCE = 2
"""Starting servers share two cores; none of these tests looks at speed."""


def copy_of(draft: Path, to: Path, **config: Any) -> Path:
    """A draft with another config.json."""
    shutil.copytree(draft, to)
    file = to / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return to


def narrow_draft(draft: Path, to: Path) -> Path:
    """A consistent EAGLE-3 draft for another target: half as wide."""
    config = json.loads((draft / "config.json").read_text())
    wide = int(config["hidden_size"])
    halved = {key: config[key] // 2 for key in ("hidden_size", "intermediate_size", "head_dim")}
    copy_of(draft, to, **halved)
    sizes = {wide, *(n * wide for n in (2, 3)), config["intermediate_size"]}
    tensors = {
        name: t[tuple(slice(0, n // 2) if n in sizes else slice(None) for n in t.shape)].contiguous()
        if torch.is_floating_point(t)
        else t
        for name, t in load_file(draft / "model.safetensors").items()
    }
    save_file(tensors, to / "model.safetensors")
    return to


@pytest.fixture(scope="module")
def drafts(testbed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Healthy and broken drafts by name."""
    made = tmp_path_factory.mktemp("drafts")
    good = testbed / "draft_eagle3_100"
    wide = int(json.loads((good / "config.json").read_text())["hidden_size"])
    without_weights = copy_of(good, made / "without_weights")
    (without_weights / "model.safetensors").unlink()
    return {
        "good": str(good),
        "relative": "not/there",
        "absolute": "/not/there",
        "narrow": str(narrow_draft(good, made / "narrow")),
        "unlike_its_config": str(copy_of(good, made / "unlike", hidden_size=wide // 2)),
        "without_weights": str(without_weights),
        "plain": str(testbed / "draft_standalone"),
    }


@pytest.fixture(scope="module")
def plan(testbed: Path, drafts: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> TrialPlan:
    study = StudyConfig.model_validate(
        {
            "study": "faults",
            "engine": {"model": str(testbed / "target"), "device": "cpu", "start_timeout_s": 240},
            "space": {
                "drafts": {name: {"path": path} for name, path in drafts.items()},
                "grids": [{"algorithm": "EAGLE3", "num_steps": 3}],
            },
            "workload": {
                "prompts": str(testbed / "prompts.jsonl"),
                "concurrency": [1],
                "max_new_tokens": 32,
            },
            "measurement": {"min_requests": 4, "rounds": 2, "max_requests": 4, "warmup_tolerance": 9},
        }
    )
    return TrialPlan(study, look_up(study), plan_prompts(study, read_conversations(study)))


@dataclass(frozen=True)
class Case:
    """What is launched, and what must come of it."""

    kind: FailureClass
    config: SpeculationConfig = NO_SPECULATION
    flags: Mapping[str, Any] | None = None
    blames: Blame | None = None
    slow: bool = True
    """Only in `make test-all`: it dies where another case does, or SGLang says so to test_prepare without a launch."""


def eagle3(draft: str, steps: int = 3, topk: int = 1, tokens: int = 4) -> SpeculationConfig:
    return SpeculationConfig("EAGLE3", draft, steps, topk, tokens)


CASES = {
    "tree too big": Case(
        FailureClass.TREE_TOO_LARGE, eagle3("good", 3, 2, 16), blames=Blame.CONFIG, slow=False
    ),
    "tree too narrow": Case(FailureClass.INVALID_CONFIG, eagle3("good", 3, 2, 3)),
    "missing draft, relative": Case(FailureClass.DRAFT_MISSING, eagle3("relative"), blames=Blame.DRAFT),
    "missing draft, absolute": Case(FailureClass.DRAFT_MISSING, eagle3("absolute")),
    "other hidden size": Case(FailureClass.DRAFT_INCOMPATIBLE, eagle3("narrow"), blames=Blame.DRAFT),
    "weights unlike config": Case(FailureClass.DRAFT_INCOMPATIBLE, eagle3("unlike_its_config")),
    "no weights": Case(FailureClass.DRAFT_MISSING, eagle3("without_weights")),
    "plain Llama as EAGLE3": Case(FailureClass.DRAFT_INCOMPATIBLE, eagle3("plain"), slow=False),
    "no draft": Case(FailureClass.DRAFT_INCOMPATIBLE, eagle3("none")),
    "unknown algorithm": Case(
        FailureClass.INVALID_CONFIG, flags={"speculative-algorithm": "FOO"}, blames=Blame.ALGORITHM
    ),
    "only num_steps": Case(
        FailureClass.INVALID_CONFIG,
        flags={"speculative-algorithm": "EAGLE3", "speculative-num-steps": 3},
    ),
    "only topk": Case(
        FailureClass.INVALID_CONFIG,
        flags={"speculative-algorithm": "EAGLE3", "speculative-eagle-topk": 2},
    ),
    "bad flag value": Case(FailureClass.ARGS, flags={"page-size": "many"}),
}


def launch(plan: TrialPlan, case: Case, log: Path) -> TrialResult:
    """The trial as an actor would run it; ``case.flags`` are added to the server's."""
    pins = tuple(Pin(name, value, "test") for name, value in (case.flags or {}).items())
    setup = replace(plan.setup, pins=(*plan.setup.pins, *pins))
    candidate = Candidate(case.config, case.config, ())
    return run_trial(replace(plan, setup=setup), TrialOrder(candidate, (Load(1),)), log, Watch())


@pytest.fixture(scope="module")
def results(
    plan: TrialPlan, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, TrialResult]:
    """What came of the cases that this run selects."""
    selected = {item.callspec.params["name"] for item in request.session.items if _is_case(item)}
    logs = tmp_path_factory.mktemp("logs")
    before = traces()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = {
            name: pool.submit(launch, plan, case, logs / f"{i}.log")
            for i, (name, case) in enumerate(CASES.items())
            if name in selected
        }
        found = {name: job.result() for name, job in jobs.items()}
    assert servers(str(plan.study.engine.model)) == []
    assert what_stays(before) == set()
    return found


def _is_case(item: pytest.Item) -> bool:
    return getattr(item, "originalname", "") == "test_seen_failures_have_their_class"


def what_stays(before: set[str], patience_s: float = 120) -> set[str]:
    """New traces that do not go away; those of tests that run beside this one do, when they end."""
    new = traces() - before
    deadline = time.monotonic() + patience_s
    while new and time.monotonic() < deadline:
        time.sleep(0.5)
        new &= traces()
    return new


def traces() -> set[str]:
    """What servers could leave: shared memory, temporary files of sweeper, port locks.

    The scratch of an actor that was killed stays until the next actor comes; there are none here.
    """
    import tempfile

    here = Path(tempfile.gettempdir())
    own = [*here.glob("sweeper-ports/*"), *here.glob("sweeper-server-*")]
    return {str(p) for p in [*Path("/dev/shm").iterdir(), *own]}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if case.slow else n for n, case in CASES.items()],
)
def test_seen_failures_have_their_class(results: dict[str, TrialResult], name: str) -> None:
    failure = results[name].record.failure
    assert failure is not None
    assert failure.kind is CASES[name].kind, (failure.message, failure.log_tail[-8:])
    assert failure.blames is (CASES[name].blames or failure.blames)
    assert failure.log_tail
    assert results[name].leak is None


@contextmanager
def fixed_port(monkeypatch: pytest.MonkeyPatch, port: int) -> Iterator[None]:
    """All launches get one and the same port, which the port blocks would never give."""

    @contextmanager
    def fixed(node: str) -> Iterator[Address]:
        with fresh_address(node) as address:
            yield replace(address, port=port)

    with monkeypatch.context() as patch:
        patch.setattr("sweeper.trial.launch.fresh_address", fixed)
        patch.setattr("sweeper.trial.run.MAX_LAUNCHES", 1)
        yield


def test_a_port_that_someone_else_holds_is_named_as_soon_as_it_is_seen(
    plan: TrialPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang itself waits for two minutes, and exits with the code of a killed process."""
    with socket.socket() as other, fixed_port(monkeypatch, 11_999):
        other.bind(("127.0.0.1", 11_999))
        other.listen()
        result = launch(plan, Case(FailureClass.PORT), tmp_path / "log")
    assert result.record.failure is not None
    assert result.record.failure.kind is FailureClass.PORT
    assert "warmup error" not in result.log  # SGLang's own end, after its two minutes
    assert result.leak is None


def test_faults_of_a_serving_server(plan: TrialPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One healthy server holds the port of the second launch, then loses its scheduler.

    The second one prints that it is ready, since its warm-up reached the first: it is not believed.
    """
    record = {}

    def second(server: psutil.Process) -> None:
        port = int(value_of("--port", server))
        with fixed_port(monkeypatch, port):
            record["second"] = launch(plan, Case(FailureClass.PORT), tmp_path / "second.log").record
        scheduler_of(server).kill()

    first = disturbed(plan, tmp_path / "first.log", second)
    assert record["second"].failure.kind is FailureClass.PORT
    assert first.record.failure is not None
    assert first.record.failure.kind is FailureClass.CRASH


def disturbed(plan: TrialPlan, log: Path, disturb: Callable[[psutil.Process], None]) -> TrialResult:
    """A long trial without speculation; ``disturb`` gets its launcher once it serves."""
    workload = plan.study.workload.model_copy(update={"max_new_tokens": 1500, "ignore_eos": True})
    study = plan.study.model_copy(update={"workload": workload})
    serving, over = threading.Event(), threading.Event()
    watch = Watch(lambda phase: serving.set() if "warming up" in phase else None, over.is_set)
    known = {p.pid for p in servers(str(study.engine.model))}
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(
            run_trial, replace(plan, study=study), TrialOrder(NO_CANDIDATE, (Load(1),)), log, watch
        )
        try:
            assert serving.wait(300)
            time.sleep(2)
            [server] = [p for p in servers(str(study.engine.model)) if p.pid not in known]
            disturb(server)
        except BaseException:
            over.set()
            raise
        return job.result()


@pytest.mark.slow
def test_ten_starts_and_stops_leave_nothing(plan: TrialPlan, tmp_path: Path) -> None:
    before, ours = traces(), {p.pid for p in psutil.Process().children(recursive=True)}
    for cycle in range(10):
        result = launch(plan, Case(FailureClass.CRASH), tmp_path / f"{cycle}.log")
        assert result.record.failure is None
        assert result.leak is None
        port = int(result.record.command[result.record.command.index("--port") + 1])
        assert process.is_free(port)
    assert what_stays(before) == set()
    assert {p.pid for p in psutil.Process().children(recursive=True)} == ours
    assert servers(str(plan.study.engine.model)) == []
