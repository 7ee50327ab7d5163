"""Where the test bed lives and what a server gets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.testbed import environment
from sweeper.testbed.recipe import RECIPE_VERSION


def test_importing_it_imports_neither_torch_nor_sglang() -> None:
    code = (
        "import sys, sweeper.testbed.environment; "
        "print([m for m in ('torch', 'sglang', 'transformers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_cache_is_named_by_recipe_and_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SWEEPER_TESTBED", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    version = f"{RECIPE_VERSION}-py{sys.version_info.major}.{sys.version_info.minor}"
    assert environment.cache_dir() == tmp_path / "sweeper" / "testbed" / version


def test_the_cache_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SWEEPER_TESTBED", str(tmp_path / "here"))
    assert environment.cache_dir() == tmp_path / "here"


def test_the_stand_ins_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    path = environment.server_environment()["PYTHONPATH"].split(os.pathsep)
    assert path == [str(environment.STANDIN), "mine"]
    for package in ("sgl_kernel", "torchvision", "triton"):
        assert (environment.STANDIN / package / "__init__.py").exists()


def test_both_attention_backends_are_set_and_not_the_common_one() -> None:
    arguments = environment.server_arguments()
    assert arguments["prefill-attention-backend"] == arguments["decode-attention-backend"] == "intel_amx"
    assert "attention-backend" not in arguments
