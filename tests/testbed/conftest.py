"""Fixtures: the operators of the stand-in, without its ``triton`` and ``torchvision``."""

import importlib
import sys
from types import ModuleType

import pytest

from sweeper.testbed.environment import STANDIN


@pytest.fixture(scope="session")
def ops() -> ModuleType:
    """The stand-in's ``sgl_kernel``.

    Its folder is on the path only while it is imported: the stand-in ``triton`` beside it would
    otherwise be found by torch in later tests of this process.
    """
    sys.path.insert(0, str(STANDIN))
    try:
        return importlib.import_module("sgl_kernel")
    finally:
        sys.path.remove(str(STANDIN))
