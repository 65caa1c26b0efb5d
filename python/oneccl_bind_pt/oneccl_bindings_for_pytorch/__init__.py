"""The name of Intel's oneCCL bindings for PyTorch, served by Trireme: importing it makes sure that the backend "ccl" is registered."""

import os

import torch  # noqa: F401  registers the backend, through trireme's entry point
from trireme._register import register

register()  # also where torch's loading of entry points was turned off

__version__ = "2.13.0"

# The guides: source $(python -c "from oneccl_bindings_for_pytorch import cwd; print(cwd)")/env/setvars.sh
cwd = os.path.dirname(os.path.abspath(__file__))
