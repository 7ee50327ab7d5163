"""Import-only, see the package ``torchvision``."""

from . import missing as __getattr__

__all__ = ["__getattr__"]
