"""What Intel's extension had for CPUs alone."""

from typing import Any

from intel_extension_for_pytorch._absent import missing
from intel_extension_for_pytorch.cpu import runtime

__all__ = ["runtime"]


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
