"""One torch thread: two of them that share busy cores take a hundred times as long."""

import torch

torch.set_num_threads(1)
