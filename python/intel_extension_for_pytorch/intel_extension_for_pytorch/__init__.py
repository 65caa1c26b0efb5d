"""The names of Intel's Extension for PyTorch (IPEX 2.x) for CPUs, served by Trireme. docs/huggingface.md has the table of what there is."""

from typing import Any

from intel_extension_for_pytorch import cpu
from intel_extension_for_pytorch._absent import missing
from intel_extension_for_pytorch._optimize import fast_bert, optimize
from intel_extension_for_pytorch._switches import (
    VERBOSE_OFF,
    VERBOSE_ON,
    VERBOSE_ON_CREATION,
    FP32MathMode,
    enable_onednn_fusion,
    get_fp32_math_mode,
    set_fp32_math_mode,
    verbose,
)

__version__ = "2.13.0+trireme"  # Intel's was 2.8.0+cpu where its distribution's was 2.8.0
__all__ = [
    "FP32MathMode",
    "VERBOSE_OFF",
    "VERBOSE_ON",
    "VERBOSE_ON_CREATION",
    "__version__",
    "cpu",
    "enable_onednn_fusion",
    "fast_bert",
    "get_fp32_math_mode",
    "optimize",
    "set_fp32_math_mode",
    "verbose",
]


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
