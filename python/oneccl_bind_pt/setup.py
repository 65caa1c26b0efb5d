"""Refuses to install over Intel's package, which has the same name: pip would replace it without a word."""

import pathlib
import sys
import sysconfig

from setuptools import setup

MARK = "served by Trireme"


def why_not(site_packages: pathlib.Path) -> str | None:
    """Why this cannot be installed there, or None. Looks at files: a build in isolation does not see the environment's packages."""
    for name in ("oneccl_bindings_for_pytorch", "torch_ccl"):
        init = site_packages / name / "__init__.py"
        if init.exists() and MARK not in init.read_text(errors="replace"):
            return (
                f"{init.parent} is Intel's oneCCL bindings for PyTorch. This package has the same name and would replace them. "
                "If that is what you want: pip uninstall oneccl_bind_pt, then install this again."
            )
    return None


if __name__ == "__main__":
    folders = {sysconfig.get_paths()[kind] for kind in ("purelib", "platlib")}  # Intel's has libraries, and may be in the second
    if "egg_info" not in sys.argv and (reason := next(filter(None, map(why_not, map(pathlib.Path, folders))), None)):
        raise SystemExit(reason)
    setup()
