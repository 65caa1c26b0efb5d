"""Intel's GPUs: not here."""

from intel_extension_for_pytorch._absent import missing_module

raise missing_module("intel_extension_for_pytorch.xpu")
