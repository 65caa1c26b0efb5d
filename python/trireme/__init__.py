"""Trireme: training transformers on CPUs.

Installed beside PyTorch, it is there at ``import torch``: ``torch.distributed.init_process_group("ccl")`` works without another line.

    trireme.ProcessGroupCCL   the c10d backend (also torch.distributed.ProcessGroupCCL)
    trireme.__version__

Importing this module loads neither torch nor the C++ library; the first use of ``ProcessGroupCCL`` does.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["ProcessGroupCCL", "__version__"]

if TYPE_CHECKING:
    from trireme._bindings import ProcessGroupCCL


def __getattr__(name: str) -> Any:
    if name == "ProcessGroupCCL":
        from trireme._library import bindings

        return bindings().ProcessGroupCCL
    raise AttributeError(f"module 'trireme' has no attribute '{name}'")
