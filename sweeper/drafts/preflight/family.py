"""Which checkpoints are siblings: so alike that a server of one can take the other's weights while it runs."""

from __future__ import annotations

import hashlib
import json

from sweeper.drafts.preflight.checkpoint import Checkpoint

NO_MATTER = frozenset({"_name_or_path", "transformers_version"})
"""Keys of config.json that change nothing of a server."""


def family(draft: Checkpoint) -> str:
    """What siblings have in common, as a hash: config.json, all tensors' names, types and shapes, and the d2t.

    SGLang reads d2t once, when it starts, so that it must be the same. Empty for a draft that cannot be replaced in a
    running server: only EAGLE-3 heads can that have an output matrix of their own and the target's embedding. Without
    the key draft_vocab_size, or with tied embeddings, the matrix is the target's, which must not be overwritten; a head
    of another width than its target has its own embedding.

    Raises:
        BrokenWeightsError: a file cannot be read as weights.
        UnreachableError: a file is not there.
    """
    tensors = draft.tensors
    shared = draft.config.get("draft_vocab_size") is None or draft.config.get("tie_word_embeddings")
    width = draft.config.get("hidden_size")
    if shared or "lm_head.weight" not in tensors or draft.config.get("target_hidden_size", width) != width:
        return ""
    config = {key: value for key, value in draft.config.items() if key not in NO_MATTER}
    layout = [[name, info.dtype, info.shape] for name, info in sorted(tensors.items())]
    digest = hashlib.sha256(json.dumps([config, layout], sort_keys=True).encode())
    if d2t := tensors.get("d2t"):
        digest.update(draft.files.read_range(d2t.file, d2t.start, d2t.length))
    return digest.hexdigest()[:16]
