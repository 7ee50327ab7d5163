"""What is sent to a cluster for a study, and what is refused before."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sweeper.code_identity import code_identity, package_directories
from sweeper.errors import SweeperError
from sweeper.study_file.package import package_directory, package_study
from sweeper.study_file.reading import load_study_file
from tests.conftest import WriteStudy


@pytest.fixture
def sendable(write_study: WriteStudy, tmp_path: Path) -> Path:
    path = write_study(engine={"env": {"HF_TOKEN": "${HF_TOKEN}"}})
    study = yaml.safe_load(path.read_text())
    study["engine"]["model"] = "${MODELS}/target"
    study["space"]["drafts"] = {"a": {"path": "org/draft"}, "b": {"path": str(tmp_path / "draft_b")}}
    path.write_text(yaml.safe_dump(study))
    return path


def test_a_package_is_a_study_that_stands_on_its_own(
    sendable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELS", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    (tmp_path / "out").mkdir()
    package = package_study(sendable, tmp_path / "out")
    assert sorted(p.name for p in package.directory.iterdir()) == ["prompts.jsonl", "study.yaml"]
    assert package.cluster_variables == ("HF_TOKEN",)
    sent = (package.directory / package.file).read_text()
    assert "hf_secret" not in sent
    assert f"{tmp_path}/target" in sent
    there = load_study_file(package.directory / package.file)
    here = load_study_file(sendable)
    assert there.workload.prompts == str(package.directory / "prompts.jsonl")
    assert there.model_dump(exclude={"workload"}) == here.model_dump(exclude={"workload"})


def test_a_path_that_means_nothing_elsewhere_is_refused_with_its_line(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    path = write_study()
    with pytest.raises(SweeperError, match=r"study\.yaml:\d+: engine\.model: 'target' is relative"):
        package_study(path, tmp_path)
    path = write_study(workload={"prompts": "nowhere.jsonl"})
    with pytest.raises(SweeperError, match=r"study\.yaml:\d+: workload\.prompts: no such file"):
        package_study(path, tmp_path)
    path = write_study()
    (tmp_path / "prompts.jsonl").write_text("{broken\n")
    with pytest.raises(SweeperError, match=r"prompts\.jsonl:1"):
        package_study(path, tmp_path)


def test_a_directory_that_is_sent_whole_holds_study_and_prompts(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    path = write_study()
    package = package_directory(path, tmp_path)
    assert (package.directory, package.file) == (tmp_path, "study.yaml")
    (tmp_path / "sub").mkdir()
    with pytest.raises(SweeperError, match="does not hold the study file"):
        package_directory(path, tmp_path / "sub")
    with pytest.raises(SweeperError, match="no such directory"):
        package_directory(path, tmp_path / "nowhere")


def test_the_code_that_is_sent_has_a_name() -> None:
    assert [directory.name for directory in package_directories()] == ["sweeper", "actors", "reports"]
    release, _, digest = code_identity().partition("+")
    assert release
    assert len(digest) == 12


def test_an_acceptance_map_travels_with_its_study(
    sendable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELS", str(tmp_path))
    study = yaml.safe_load(sendable.read_text())
    study["search"] = {"sampler": "structural", "acceptance_map": "of_a.map"}
    sendable.write_text(yaml.safe_dump(study))
    (tmp_path / "out").mkdir()
    with pytest.raises(SweeperError, match=r"search.acceptance_map: no such file"):
        package_study(sendable, tmp_path / "out")
    (tmp_path / "of_a.map").write_bytes(b"map")
    package = package_study(sendable, tmp_path / "out")
    assert package.config.search.acceptance_map == "acceptance_map.parquet"
    assert (package.directory / "acceptance_map.parquet").read_bytes() == b"map"
