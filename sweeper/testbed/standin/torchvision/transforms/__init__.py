"""Import-only, see the package ``torchvision``."""

from .. import InterpolationMode  # noqa: TID252
from .. import missing as __getattr__  # noqa: TID252

__all__ = ["InterpolationMode", "__getattr__"]
