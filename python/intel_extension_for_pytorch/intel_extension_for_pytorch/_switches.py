"""Switches that are torch's by now."""

import enum
from typing import Any

import torch
from trireme import bf16_plan
from trireme._optimize.report import say_once

VERBOSE_OFF = 0
VERBOSE_ON = 1
VERBOSE_ON_CREATION = 2


class verbose(torch.backends.mkldnn.verbose):  # type: ignore[misc, name-defined]  # noqa: N801  Intel's name
    """``with ipex.verbose(ipex.verbose.VERBOSE_ON):`` oneDNN prints what it computes."""

    VERBOSE_OFF = VERBOSE_OFF
    VERBOSE_ON = VERBOSE_ON
    VERBOSE_ON_CREATION = VERBOSE_ON_CREATION


def enable_onednn_fusion(enabled: bool = True) -> None:
    """oneDNN's fusions in TorchScript, which torch has off by default."""
    torch.jit.enable_onednn_fusion(enabled)


class autocast(torch.autocast):  # type: ignore[misc]  # noqa: N801  Intel's name
    """``with ipex.cpu.autocast():`` torch.autocast of the CPU, in bf16 where that is faster than fp32 (see ``trireme.bf16_plan``)."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool | None = None) -> None:
        if enabled and dtype == torch.bfloat16 and not (plan := bf16_plan()).native:
            say_once(f"ipex.cpu.autocast: {plan}")
            enabled = False
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class FP32MathMode(enum.IntEnum):
    FP32 = 0
    TF32 = 1
    BF32 = 2


PRECISIONS = {FP32MathMode.FP32: "highest", FP32MathMode.TF32: "high", FP32MathMode.BF32: "medium"}  # as torch calls them


def set_fp32_math_mode(mode: Any = FP32MathMode.FP32, device: str = "cpu") -> None:
    """BF32: products of fp32 matrices may be computed in bf16, where that is faster (see ``trireme.bf16_plan``)."""
    _check_device(device)
    if mode not in (FP32MathMode.FP32, FP32MathMode.BF32):
        raise ValueError(f"intel_extension_for_pytorch.set_fp32_math_mode: FP32 and BF32 are modes of a CPU, not {mode!r}")
    if mode == FP32MathMode.BF32 and not (plan := bf16_plan()).native:
        say_once(f"ipex.set_fp32_math_mode(BF32): {plan}")
        mode = FP32MathMode.FP32
    torch.set_float32_matmul_precision(PRECISIONS[mode])


def get_fp32_math_mode(device: str = "cpu") -> FP32MathMode:
    _check_device(device)
    return next(mode for mode, name in PRECISIONS.items() if name == torch.get_float32_matmul_precision())


def _check_device(device: str) -> None:
    if device != "cpu":
        raise RuntimeError(f"intel_extension_for_pytorch: device {device!r}: Trireme is for CPUs; torch.set_float32_matmul_precision is for every device")
