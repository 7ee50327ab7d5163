"""Loads a draft's weights into a running server, over those of another one: ``python load_draft.py < JSON``.

Standard input holds ``url``, ``api_key``, ``checkpoint`` (directory or hub id), ``revision`` (or null) and ``ranks``
(tensor parallel size). Ends with an error message and a code other than 0 where the server does not say that it took
them. Runs in the engine's interpreter, so it imports nothing of sweeper; works with 0.5.21 and later.

The tensors go through shared memory on this machine, whatever device the server has them on. The target's embedding,
which the draft shares, and the vocabulary map, which the server reads only once, are left out.
"""

import base64
import json
import sys
import urllib.error
import urllib.request
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

SHARED = ("d2t", "t2d", "embed_tokens.weight")
TIMEOUT_S = 120


def weight_files(checkpoint: str, revision: "str | None") -> "list[Path]":
    directory = Path(checkpoint)
    if not directory.is_dir():
        from huggingface_hub import snapshot_download

        directory = Path(snapshot_download(checkpoint, revision=revision, allow_patterns="*.safetensors"))
    return sorted(directory.glob("*.safetensors"))


def main() -> None:
    import torch.multiprocessing  # makes ForkingPickler put tensors into shared memory
    from safetensors.torch import load_file

    asked = json.load(sys.stdin)

    def post(endpoint: str, **body: object) -> None:
        request = urllib.request.Request(
            f"{asked['url']}/{endpoint}",
            json.dumps(body).encode(),
            {"content-type": "application/json", "authorization": f"Bearer {asked['api_key']}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=TIMEOUT_S) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            sys.exit(f"{endpoint}: HTTP {error.code}: {error.read(500).decode('utf-8', 'replace')}")
        if not answer.get("success", True):
            sys.exit(f"{endpoint}: {answer.get('message')}")

    torch.multiprocessing.set_sharing_strategy("file_system")
    tensors: dict[str, torch.Tensor] = {}
    for path in weight_files(asked["checkpoint"], asked["revision"]):
        tensors |= load_file(path)
    named = [(name, tensor) for name, tensor in tensors.items() if not name.endswith(SHARED)]
    if not named:
        sys.exit(f"{asked['checkpoint']} has no safetensors weights")
    # Every rank takes its own handle: one that was used is used up.
    handles = [base64.b64encode(bytes(ForkingPickler.dumps(named))).decode() for _ in range(asked["ranks"])]
    post("begin_weight_update", selector="draft")
    try:
        version = Path(asked["checkpoint"]).name
        post(
            "update_weights_from_tensor",
            serialized_named_tensors=handles,
            selector="draft",
            weight_version=version,
        )
    finally:
        post("end_weight_update")


if __name__ == "__main__":
    main()
