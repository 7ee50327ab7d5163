"""Flags of released versions, of the installed one, and what a study gets told of a wrong one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.rules.algorithms import ALGORITHMS
from sweeper.rules.context import Context
from sweeper.rules.effective import effective
from sweeper.server.flags import FlagTable, UnknownFlagError, parse_help
from sweeper.server.install import installed_flags, installed_version
from sweeper.server.setup import EngineSetup, own_flags, server_flags, shared_pins
from sweeper.speculation import NO_SPECULATION
from sweeper.study_file.reading import load_study_file
from sweeper.testbed.environment import server_environment
from tests.conftest import FAKE_ENGINE, WriteStudy

LISTS = {path.stem: path for path in (Path(__file__).parent / "flags").glob("*.txt")}
"""Made by ``extract_flags.py`` from the released packages."""


def table(version: str) -> FlagTable:
    names = frozenset(name.lstrip("-") for name in LISTS[version].read_text().split())
    return FlagTable(names, choices={})


@pytest.mark.parametrize("version", sorted(LISTS))
def test_every_flag_that_a_launch_sets_exists_in_the_release(version: str, write_study: WriteStudy) -> None:
    study = load_study_file(
        write_study(engine={"device": "cuda"}, space={"grids": [{"algorithm": "EAGLE3", "num_steps": 3}]})
    )
    setup = EngineSetup(version, table(version), shared_pins(study, version))
    assert set(server_flags(study, NO_SPECULATION, setup)) <= setup.flags.names  # type: ignore[union-attr]
    asked = [
        algorithm.request(
            "a",
            {
                p.name: p.default or ("1:4" if p.name == "adaptive" else 4)
                for p in algorithm.parameters
                if not p.choices
            },
        )
        for algorithm in ALGORITHMS.values()
        if Context(version).within(algorithm.since, "")
    ]
    checked = 0
    for config in asked:
        options = tuple(
            (name, value)
            for name, value in config.options
            if Context(version).within(ALGORITHMS[config.algorithm].parameter(name).since, "")  # type: ignore[union-attr]
        )
        flags = server_flags(study, config.__class__(**{**vars(config), "options": options}), setup)
        assert set(flags) <= setup.flags.names  # type: ignore[union-attr]
        checked += 1
    assert checked >= 4


@pytest.mark.parametrize(
    ("version", "spelling"),
    [("0.5.9", "stream-output"), ("0.5.10", "incremental-streaming-output"), ("0.5.23", None)],
)
def test_renamed_flags_are_spelled_as_the_release_does(version: str, spelling: str | None) -> None:
    newest = spelling or "incremental-streaming-output"
    assert table(version).spell("stream-output") in (newest, "stream-output")
    assert table(version).spell("incremental-streaming-output") == newest
    graphs = table(version).spell("cuda-graph-max-bs-decode")
    assert graphs == ("cuda-graph-max-bs-decode" if version == "0.5.23" else "cuda-graph-max-bs")


def test_without_an_installation_the_release_number_decides(study: StudyConfig) -> None:
    for version in LISTS:
        bare, full = (
            EngineSetup(version, flags, shared_pins(study, version)) for flags in (None, table(version))
        )
        assert server_flags(study, NO_SPECULATION, bare) == server_flags(study, NO_SPECULATION, full)


def test_the_nearest_match_is_named() -> None:
    with pytest.raises(UnknownFlagError, match="--mem-fraction-statik; did you mean 'mem-fraction-static'"):
        table("0.5.23").spell("mem-fraction-statik")


def test_help_is_parsed_with_choices_and_aliases() -> None:
    text = (
        "usage: x [-h] [--unseen-here]\n\noptions:\n"
        "  -h, --help            show this help, see --not-a-flag\n"
        "  --tensor-parallel-size N, --tp-size N\n"
        "                        How wide (default: --not-a-flag)\n"
        "  --kv-cache-dtype {auto,fp8_e4m3}  What to store\n"
    )
    found = parse_help(text)
    assert found.names == {"help", "tensor-parallel-size", "tp-size", "kv-cache-dtype"}
    with pytest.raises(SweeperError, match="does not take 'fp8_e4m'; did you mean 'fp8_e4m3'"):
        found.check_value("kv-cache-dtype", "fp8_e4m")


def test_the_installed_releases_own_help_has_the_flags_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real SGLang: the help that a launch is checked against, and the list read from the package, agree."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = {**os.environ, **server_environment()}
    version = installed_version(None, environment["PYTHONPATH"])
    names = installed_flags(None, version, environment).names - {"help", "config"}
    listed = table(version).names - {"config"}
    negations = {name for name in names if name.startswith("no-") and name[3:] in names}
    assert names - negations <= listed
    assert len(listed - names) <= 3  # some are kept out of the help
    assert list((tmp_path / "sweeper" / "flags").iterdir())


def test_an_unknown_flag_of_the_study_is_refused_before_any_launch(write_study: WriteStudy) -> None:
    from sweeper.check import check_study

    study = load_study_file(
        write_study(
            engine={"extra_args": {"mem_fraction_statik": 0.5}, "env": {"PYTHONPATH": str(FAKE_ENGINE)}}
        )
    )
    assert own_flags(study) == {"mem-fraction-statik": 0.5}
    with pytest.raises(
        SweeperError, match="extra_args.mem_fraction_statik.*did you mean 'mem-fraction-static'"
    ):
        check_study(study)


def test_defaults_of_every_algorithm_are_valid_in_the_newest_release() -> None:
    for algorithm in ALGORITHMS.values():
        values = {p.name: 4 for p in algorithm.parameters if p.required}
        assert effective(algorithm.request("d", values)).effective.algorithm == algorithm.name
