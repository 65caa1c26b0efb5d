"""What Intel's extension had for CPUs alone."""

from typing import Any

from intel_extension_for_pytorch._absent import missing
from intel_extension_for_pytorch._switches import autocast
from intel_extension_for_pytorch.cpu import amp, runtime

__all__ = ["amp", "autocast", "runtime"]


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
