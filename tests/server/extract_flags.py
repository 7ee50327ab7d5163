"""Lists the flags of an unpacked SGLang release from its own argument definitions, without importing it.

    pip download --no-deps sglang==0.5.9 && unzip -q sglang-0.5.9-*.whl -d unpacked
    python tests/server/extract_flags.py unpacked/sglang/srt > tests/server/flags/0.5.9.txt

One line per flag with all its spellings. The lists in ``flags/`` were made in this way.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path


def spellings(srt: Path) -> dict[str, list[str]]:
    """First spelling -> all spellings, dashes included; from ``add_argument`` calls and annotated fields."""
    found: dict[str, list[str]] = {}
    for file in [srt / "server_args.py", *sorted((srt / "arg_groups").rglob("*.py"))]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                names = [str(n) for n in map(_constant, node.args) if str(n).startswith("--")]
                if names:
                    found[names[0]] = names
            elif isinstance(node, ast.ClassDef):
                found.update({names[0]: names for names in _fields(node)})
    return found


def _fields(node: ast.ClassDef) -> Iterator[list[str]]:
    """Flags of fields like ``page_size: A[int, Arg(aliases=[...])] = 1`` (0.5.14 and later)."""
    for field in node.body:
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.annotation, ast.Subscript)):
            continue
        if getattr(field.annotation.value, "id", "") not in ("A", "Annotated"):
            continue
        elements = getattr(field.annotation.slice, "elts", [])
        options = {
            keyword.arg: keyword.value
            for element in elements[1:]
            if isinstance(element, ast.Call)
            for keyword in element.keywords
        }
        if "no_cli" in options and _constant(options["no_cli"]):
            continue
        name = "--" + str(getattr(field.target, "id", "")).replace("_", "-")
        if "cli_name" in options:
            name = str(_constant(options["cli_name"]))
        yield [name, *(str(_constant(alias)) for alias in getattr(options.get("aliases"), "elts", []))]


def _constant(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


if __name__ == "__main__":
    for names in sorted(spellings(Path(sys.argv[1])).values()):
        print(" ".join(names))
