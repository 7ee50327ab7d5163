"""Every study file that ships is valid, and every launched config of it is one SGLang accepts."""

from pathlib import Path

import pytest

from sweeper.check import check_study
from sweeper.study_file.reading import load_study_file

FILES = sorted((Path(__file__).parents[1] / "search_spaces").glob("*.yaml"))


@pytest.mark.usefixtures("testbed")
@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_study_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # their targets are not here, and no hub need be
    report = check_study(load_study_file(file))
    assert report.study == file.stem
    assert report.asked == len(report.candidates) + len(report.merges) + len(report.rejections)
    assert len(report.candidates) >= 5
