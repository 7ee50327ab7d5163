"""Import-only, see the package ``torchvision``."""

from ... import missing as __getattr__  # noqa: TID252

__all__ = ["__getattr__"]
