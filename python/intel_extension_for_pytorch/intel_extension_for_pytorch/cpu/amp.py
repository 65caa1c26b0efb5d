"""Where autocast was before it moved to ``ipex.cpu``."""

from typing import Any

from intel_extension_for_pytorch._absent import missing
from intel_extension_for_pytorch._switches import autocast

__all__ = ["autocast"]


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
