"""Server commands: equal on both arms but for the speculation, and free of shells and secrets."""

import sys

import pytest

from sweeper.config import StudyConfig
from sweeper.records import Pin
from sweeper.server.command import (
    Address,
    arguments,
    launch_command,
    launch_environment,
    public_command,
)
from sweeper.server.process import fresh_address
from sweeper.server.setup import EngineSetup, server_flags, shared_pins
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.study_file.reading import load_study_file
from tests.conftest import WriteStudy

CHAIN = SpeculationConfig("EAGLE3", "a", 3, 1, 4)


def setup(study: StudyConfig) -> EngineSetup:
    return EngineSetup("0.5.23", pins=shared_pins(study, "0.5.23"))


def test_both_arms_share_every_flag_but_the_speculation(study: StudyConfig) -> None:
    plain, spec = (server_flags(study, config, setup(study)) for config in (NO_SPECULATION, CHAIN))
    assert {name: spec[name] for name in plain} == plain
    assert spec.keys() - plain.keys() == {
        "speculative-algorithm",
        "speculative-draft-model-path",
        "speculative-num-steps",
        "speculative-eagle-topk",
        "speculative-num-draft-tokens",
    }
    assert plain["max-running-requests"] == 4


def test_ngram_takes_its_breadth_in_a_flag_of_its_own(study: StudyConfig) -> None:
    asked = SpeculationConfig("NGRAM", "none", 3, 4, 12, (("max_trie_depth", 24),))
    flags = server_flags(study, asked, setup(study))
    assert flags["speculative-ngram-max-bfs-breadth"] == 4
    assert flags["speculative-ngram-max-trie-depth"] == 24
    assert "speculative-num-steps" not in flags
    assert "speculative-draft-model-path" not in flags


def test_what_a_trial_pins_itself_wins_over_the_study(write_study: WriteStudy) -> None:
    """After an OOM the smaller share is launched, recorded and exported."""
    study = load_study_file(write_study(engine={"extra_args": {"mem_fraction_static": 0.88}}))
    own = Pin("mem-fraction-static", 0.78, "OOM_RUNTIME with 0.83 in the same trial")
    flags = server_flags(study, CHAIN, EngineSetup("0.5.23", pins=(*setup(study).pins, own)))
    assert flags["mem-fraction-static"] == 0.78


def test_words_are_passed_as_they_are() -> None:
    flags = {"a-list": [1, 2], "on": True, "off": False, "odd": "$(touch x); 'y'"}
    assert arguments(flags) == ["--a-list", "1", "2", "--on", "--odd", "$(touch x); 'y'"]


def test_the_key_is_not_in_the_recorded_command(study: StudyConfig) -> None:
    command = launch_command(study, CHAIN, setup(study), Address(30000, "secret-key"))
    assert command[:3] == [sys.executable, "-m", "sglang.launch_server"]
    assert "secret-key" in command
    assert "secret-key" not in " ".join(public_command(command))


def test_the_server_environment_is_expanded_at_launch(
    write_study: WriteStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study_file(write_study(engine={"env": {"HF_TOKEN": "${TOKEN_OF_TEST}"}}))
    monkeypatch.setenv("TOKEN_OF_TEST", "secret")
    assert launch_environment(study)["HF_TOKEN"] == "secret"


def test_further_speculative_flags_go_to_the_speculating_arm_only(write_study: WriteStudy) -> None:
    study = load_study_file(
        write_study(engine={"extra_args": {"speculative_draft_attention_backend": "triton"}})
    )
    plain, spec = (server_flags(study, config, setup(study)) for config in (NO_SPECULATION, CHAIN))
    assert spec["speculative-draft-attention-backend"] == "triton"
    assert not [name for name in plain if name.startswith("speculative")]


def test_under_dp_attention_ranks_meet_inside_of_the_block_of_ports(write_study: WriteStudy) -> None:
    """SGLang would take ports from 233 above the HTTP port otherwise."""
    flags = {"enable-dp-attention": True, "dp-size": 2}
    engine = load_study_file(write_study(engine={"extra_args": flags, "tensor_parallel": 2})).engine
    assert engine.dp_attention
    with fresh_address("127.0.0.1") as address:
        words = address.arguments()
    assert words[words.index("--dist-init-addr") + 1] == f"127.0.0.1:{address.port + 1}"
    assert "--nccl-port" not in words
