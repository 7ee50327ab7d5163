"""Import-only stand-in for ``torchvision``, which SGLang and transformers import at start.

The torchvision wheels on PyPI need the CUDA build of torch.  Serving text needs no image function,
so every function here only says that it is missing.
"""

from collections.abc import Callable
from enum import Enum
from typing import NoReturn

__version__ = "0.0.0"


class InterpolationMode(Enum):
    """Ways of resizing an image, named as in torchvision."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def missing(name: str) -> Callable[..., NoReturn]:
    """A function that reports that the torchvision function ``name`` is not in the stand-in."""
    if name.startswith("__"):
        raise AttributeError(name)

    def function(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(f"torchvision stand-in: {name} is missing")

    return function
