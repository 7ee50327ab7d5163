"""YAML as people write it: keys in their order, nothing by anchor, texts of several lines as blocks."""

from __future__ import annotations

from typing import Any

import yaml

WIDTH = 110


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def yaml_text(*documents: Any) -> str:
    """The documents, one after the other."""
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=WIDTH))
