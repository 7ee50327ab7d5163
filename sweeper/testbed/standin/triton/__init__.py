"""Import-only stand-in for ``triton`` (1 GB when installed), which SGLang imports on every platform.

On a CPU no Triton kernel is launched: decorators return the function as it is, everything else is a
placeholder that raises when called.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

__version__ = "3.6.0"


class _Placeholder:
    """Stands for any class, type, constant or function of triton."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __getattr__(self, name: str) -> Any:
        return _stand_for(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
            return args[0]
        return self

    def __getitem__(self, key: object) -> "_Placeholder":
        return self

    def __or__(self, other: object) -> "_Placeholder":
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)


def _stand_for(path: str) -> Any:
    """A class for a capitalised name (torch uses some with ``isinstance``), else a placeholder."""
    name = path.rpartition(".")[2]
    if name.startswith("__") or name == "driver":  # no "driver": there is no device
        raise AttributeError(path)
    if name[0].isupper():
        return type(name, (), {"__init__": lambda self, *args, **kwargs: None})
    return _Placeholder(path)


class _Module(types.ModuleType):
    """A submodule whose every attribute is a placeholder."""

    def __getattr__(self, name: str) -> Any:
        return _stand_for(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every submodule of triton."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        mine = fullname.startswith("triton.")
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if mine else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.append(_Finder())


def jit(fn: Any = None, **kwargs: Any) -> Any:
    """Leave a kernel as the plain function it is."""
    return fn if fn is not None else lambda f: f


def _decorator(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda f: f


autotune = heuristics = _decorator


def cdiv(a: int, b: int) -> int:
    """Division rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The least power of two that is not below ``n``."""
    return 1 << (n - 1).bit_length()


def __getattr__(name: str) -> Any:
    return _stand_for(f"triton.{name}")
