# What every node of ray_cluster.yaml has in its environment when it starts Ray; jobs, actors and SGLang inherit it.
# Sourced by bash. It is copied to all nodes, so no secret belongs here.

# A job's entry point is `python -m sweeper`: that must be this Python.
export PATH="$HOME/sweeper-venv/bin:$PATH"

# Secrets: on each node a file that only you can read (chmod 600), with lines like `export HF_TOKEN=...`. Study files say
# ${HF_TOKEN}. (`hf auth login` on each node does as well: the hub's clients look into HF_HOME.)
if [ -r "$HOME/.config/sweeper/secrets.env" ]; then . "$HOME/.config/sweeper/secrets.env"; fi

# Only who has the token of ~/.ray/auth_token, the same on all nodes, may run code on the cluster.
export RAY_AUTH_MODE=token

# Servers, and the clients that measure them, run at the priority of everything else; Ray would take theirs down by 15.
export RAY_worker_niceness=0

# Checkpoints: on a file system that all nodes share, one download serves them all.
export HF_HOME="${HF_HOME:-$HOME/.cache/huggingface}"

# Kernels that SGLang compiles at its first start, for many minutes. On a local disk, kept from launch to launch. If home
# directories are on NFS, name a local disk: export NODE_CACHE=/scratch/$USER in secrets.env or here.
NODE_CACHE="${NODE_CACHE:-$HOME/.cache}"
export SGLANG_CACHE_DIR="$NODE_CACHE/sglang"        # SGLang's own, DeepGEMM's and CuTe's; recent releases put the next ones there, too
export SGLANG_JIT_CACHE_DIR="$SGLANG_CACHE_DIR/jit"
export SGLANG_DG_CACHE_DIR="$SGLANG_CACHE_DIR/deep_gemm"
export TRITON_CACHE_DIR="$SGLANG_CACHE_DIR/triton"
export TORCHINDUCTOR_CACHE_DIR="$SGLANG_CACHE_DIR/inductor"
export CUDA_CACHE_PATH="$SGLANG_CACHE_DIR/nv"
export TILELANG_CACHE_DIR="$SGLANG_CACHE_DIR/tilelang"
export FLASHINFER_WORKSPACE_BASE="$SGLANG_CACHE_DIR"  # FlashInfer appends .cache/flashinfer
export TVM_FFI_CACHE_DIR="$NODE_CACHE/tvm-ffi"

ulimit -n "$(ulimit -Hn)"  # as many open files as the node allows: Ray and SGLang hold many sockets
