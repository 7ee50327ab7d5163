"""Prints what SGLang makes of command lines without starting a server: ``python resolve_args.py < JSON``.

Standard input holds a list of argument lists, standard output one JSON object per list: the resolved arguments, or
``{"error": ...}``. Runs in the engine's interpreter, so it imports nothing of sweeper; works with 0.5.2 and later.
Each list is resolved in a process of its own, since SGLang seals its arguments and changes the environment.
"""

import contextlib
import gc
import json
import os
import sys

WANTED = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "page_size",
    "mem_fraction_static",
    "chunked_prefill_size",
    "max_running_requests",
    "disable_overlap_schedule",
)


def resolve(words: list[str]) -> dict[str, object]:
    from sglang.srt.server_args import prepare_server_args

    arguments = prepare_server_args(words)
    if hasattr(arguments, "resolve_once"):  # 0.5.21: the constructor no longer resolves
        arguments.resolve_once()
        resolved = arguments.resolved_dict()
    else:
        resolved = vars(arguments)
    return {name: resolved.get(name) for name in WANTED}


def main() -> None:
    gc.disable()  # a fifth of the import's time, for objects that all stay
    import sglang.srt.server_args  # noqa: F401  once for all

    results = os.dup(1)
    os.dup2(2, 1)  # whatever SGLang prints must not mix with the results
    for words in json.load(sys.stdin):
        child = os.fork()
        if child == 0:
            answer: dict[str, object] = {"error": "SGLang ended without a word"}
            try:
                answer = resolve(words)
            except SystemExit as end:
                answer = {"error": f"SGLang refuses the arguments (exit code {end.code})"}
            except BaseException as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            with contextlib.suppress(OSError):
                os.write(results, (json.dumps(answer) + "\n").encode())
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
