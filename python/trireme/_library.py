"""Loads the C++ libraries, if they fit the torch of this environment. Nothing of them is loaded before that is known."""

import functools
import pathlib
from types import ModuleType
from typing import Any


def release_of(version: str) -> str:
    """2.13.0 of 2.13.0+cpu: builds of one release have one C++ interface."""
    return version.partition("+")[0]


def why_not(torch_version: str, built_for: str) -> str | None:
    """Why the libraries cannot be loaded into this torch, or None if they can."""
    if release_of(torch_version) == release_of(built_for):
        return None
    return (
        f"trireme was built for torch {release_of(built_for)}, but torch {torch_version} is running; torch's C++ interface differs between "
        f"versions. Install torch {release_of(built_for)}, or build trireme again in this environment, from its sources: pip install "
        "--no-build-isolation --force-reinstall --no-deps ."
    )


def check() -> None:
    """Raises ImportError with a sentence where the libraries do not fit."""
    import torch

    try:
        from trireme._build import TORCH_VERSION
    except ImportError as missing:
        raise ImportError(
            "trireme is not installed, only its sources are on the path: pip install --no-build-isolation . (which needs Python's headers: python3-dev)"
        ) from missing
    if reason := why_not(torch.__version__, TORCH_VERSION):
        raise ImportError(reason)


@functools.cache
def bindings() -> ModuleType:
    """The classes of the C++ part: libtrireme_torch.so."""
    check()
    import trireme._bindings

    return trireme._bindings


@functools.cache
def ops() -> Any:
    """The operators, torch.ops.trireme: libtrireme_ops.so."""
    check()
    import torch

    torch.ops.load_library(str(pathlib.Path(__file__).parent / "lib" / "libtrireme_ops.so"))
    return torch.ops.trireme
