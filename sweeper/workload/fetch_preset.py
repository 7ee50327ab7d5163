"""Prints the rows of a hub's dataset as JSON: ``python fetch_preset.py JSON``; run by ``sweeper.workload.presets``.

The argument names dataset, config, split and columns. Where the hub cannot be reached, the script starts itself again
with HF_HUB_OFFLINE=1: ``datasets`` then looks into its cache at once, where it would retry for half a minute.
"""

import json
import os
import sys
from typing import Any

PROBE_TIMEOUT_S = 10.0


def reachable(dataset: str) -> bool:
    """False where nothing answers; a refusal is an answer, and the reason comes when the data is loaded."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().dataset_info(dataset, timeout=PROBE_TIMEOUT_S)
    except HfHubHTTPError as refusal:
        return getattr(refusal.response, "status_code", 500) < 500
    except Exception:  # requests' or httpx's, by release: no route, no name, a timeout
        return False
    return True


def fetch(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        import datasets
    except ImportError as error:
        return {"missing": error.name or "datasets"}
    try:
        found = datasets.load_dataset(asked["dataset"], asked["config"], split=asked["split"])
        lacking = [name for name in asked["columns"] if name not in found.column_names]
        if lacking:
            return {
                "error": f"it has no column {', '.join(lacking)} any more (there: {', '.join(found.column_names)})"
            }
        return {"rows": [{name: row[name] for name in asked["columns"]} for row in found]}
    except Exception as error:
        offline = os.environ.get("SWEEPER_HUB_UNREACHABLE")
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return {
            "error": f"the hub cannot be reached, and the local cache has not got it ({reason})"
            if offline
            else reason
        }


def main() -> None:
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]
    asked = json.loads(sys.argv[1])
    if os.environ.get("HF_HUB_OFFLINE", "0") in ("", "0"):
        try:
            online = reachable(asked["dataset"])
        except ImportError:
            online = True  # without huggingface_hub there is no datasets either
        if not online:
            os.environ.update(HF_HUB_OFFLINE="1", SWEEPER_HUB_UNREACHABLE="1")
            os.execv(sys.executable, [sys.executable, *sys.argv])
    results = os.dup(1)
    os.dup2(2, 1)  # progress and warnings must not mix with the rows
    with os.fdopen(results, "w") as out:
        json.dump(fetch(asked), out)


if __name__ == "__main__":
    main()
