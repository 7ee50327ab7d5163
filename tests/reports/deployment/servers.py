"""Servers to export, without a study: one of each shape that a format has to hold."""

from __future__ import annotations

from dataclasses import replace

from reports.deployment.server import Deployment
from reports.deployment.variables import variables
from sweeper.adaptive import AdaptivePolicy

HOSTILE = "a b'c\"d $HOME $(id) `id` ${HF_TOKEN} ; rm -rf / \\ é"
"""What no format may hand to a shell, interpolate or break on."""

ONE = Deployment(
    name="sglang-my-study",
    notes=("Written by sweeper from study 'my_study'.", "A note with\na line break."),
    flags={
        "model-path": "meta-llama/Llama-3.1-8B-Instruct",
        "tp-size": 2,
        "trust-remote-code": True,
        "enable-metrics": False,
        "cuda-graph-bs": [1, 2, 4],
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": "/checkpoints/draft one",
        "speculative-num-steps": 3,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": 4,
    },
    variables=variables({"MODE": "fast"}, ["meta-llama/Llama-3.1-8B-Instruct"]),
    nodes=1,
    gpus=2,
    image="lmsysorg/sglang:v0.5.23",
    version="0.5.23",
    device="cuda",
    start_timeout_s=1800,
    checkpoints=("meta-llama/Llama-3.1-8B-Instruct", "/checkpoints/draft one"),
)

TWO_NODES = replace(ONE, nodes=2, gpus=8, flags={**ONE.flags, "tp-size": 16, "nnodes": 2})

ADAPTIVE = replace(
    ONE,
    flags={**ONE.flags, "speculative-adaptive": True},
    adaptive=AdaptivePolicy.parse("1:3 2:1 8:0").file_text(),
)

SECRETS = replace(
    ONE,
    variables=variables({"AUTH": "Bearer ${API_TOKEN}", "HF_TOKEN": "${HF_TOKEN}", "SIZE": "${N:-4}"}, []),
)

NASTY = replace(
    ONE,
    flags={**ONE.flags, "served-model-name": HOSTILE},
    variables=variables({"WORDS": HOSTILE.replace("${HF_TOKEN}", "$HF_TOKEN")}, []),
)
