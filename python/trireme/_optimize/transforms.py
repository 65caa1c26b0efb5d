"""What looks into a function while it runs: it cannot follow operators whose derivatives are C++, or what depends on a mask's contents."""

import torch
from torch.autograd import forward_ad


def are_active() -> bool:
    """torch.compile, torch.jit.trace, torch.func's and forward-mode derivatives: such calls get torch's own code."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
