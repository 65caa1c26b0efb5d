"""The older name of Intel's oneCCL bindings for PyTorch, served by Trireme."""

from oneccl_bindings_for_pytorch import __version__, cwd  # noqa: F401
