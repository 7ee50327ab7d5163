"""Pure-PyTorch stand-in for the CPU build of ``sgl_kernel``.

SGLang's CPU build of ``sgl_kernel`` is not on PyPI.  This package provides, in plain PyTorch, only
the operators that SGLang 0.5.23 needs to serve a small Llama-like model with speculative decoding on
a CPU *without* AMX.  It is meant for tests and demonstrations on tiny models: clear first, then fast.

Put the parent folder on ``PYTHONPATH`` and start the server with ``SGLANG_USE_CPU_ENGINE=1``,
``--device cpu`` and ``--prefill-attention-backend intel_amx --decode-attention-backend intel_amx``.
Because ``torch.ops.sgl_kernel.convert_weight_packed`` is deliberately absent, SGLang takes its plain
PyTorch layers for everything else, on machines with and without AMX alike.
"""

from .attention import decode_attention_cpu, extend_attention_cpu
from .cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from .speculative import (
    build_tree_kernel_efficient_cpu,
    reconstruct_indices_from_tree_mask,
    verify_tree_greedy_cpu,
)

__version__ = "0.0.0+standin"

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "reconstruct_indices_from_tree_mask",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]
