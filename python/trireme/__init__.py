"""Trireme: training transformers on CPUs.

Installed beside PyTorch, it is there at ``import torch``: ``torch.distributed.init_process_group("ccl")`` works without another line.

    trireme.optimize          makes a model, and its optimizer, fast in place
    trireme.bf16_plan         what bf16 means on this CPU, and why
    trireme.ops               the operators it uses
    trireme.ProcessGroupCCL   the c10d backend (also torch.distributed.ProcessGroupCCL)
    trireme.optim             AdamW and others in one pass over memory, called as torch.optim's
    trireme.patch_trainer     Hugging Face's Trainer and Accelerator train on all of it, without a flag
    trireme.__version__

Importing this module loads neither torch nor the C++ libraries; the first use does.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["ProcessGroupCCL", "__version__", "bf16_plan", "ops", "optim", "optimize", "patch_trainer"]

if TYPE_CHECKING:
    from trireme import ops, optim
    from trireme._bindings import ProcessGroupCCL
    from trireme._huggingface import patch_trainer
    from trireme._optimize import bf16_plan, optimize


def __getattr__(name: str) -> Any:
    if name == "ProcessGroupCCL":
        from trireme._library import bindings

        return bindings().ProcessGroupCCL
    if name in ("bf16_plan", "optimize"):
        from trireme import _optimize

        return getattr(_optimize, name)
    if name == "patch_trainer":
        from trireme._huggingface import patch_trainer

        return patch_trainer
    if name in ("ops", "optim"):
        import importlib

        return importlib.import_module(f"trireme.{name}")
    raise AttributeError(f"module 'trireme' has no attribute '{name}'")
