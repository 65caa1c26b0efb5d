"""Pools of cores: not here. Programs ask first whether there are any, since Intel's own were there only with its OpenMP preloaded."""

from typing import Any

from intel_extension_for_pytorch._absent import missing


def is_runtime_ext_enabled() -> bool:
    return False


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
