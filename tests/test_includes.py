"""check_includes.py: this repository is clean, and each kind of upward include is found."""

import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def check(root: pathlib.Path) -> subprocess.CompletedProcess:
    script = REPOSITORY / "tests" / "check_includes.py"
    return subprocess.run([sys.executable, str(script), str(root)], capture_output=True, text=True)


def check_file(root: pathlib.Path, file: str, text: str) -> subprocess.CompletedProcess:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return check(root)


def test_this_repository():
    result = check(REPOSITORY)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("file", "included"),
    [
        ("trireme/base/error.cpp", '"trireme/base/error.h"'),
        ("trireme/cpu/isa.h", '"trireme/base/env.h"'),
        ("trireme/ccl/types.h", '"trireme/cpu/isa.h"'),
        ("trireme/ccl/node/segment.h", '"trireme/ccl/engine/stream.h"'),
        ("trireme/ccl/fabric/tcp/link.cpp", '"trireme/ccl/fabric/fabric.h"'),
        ("trireme/ccl/fabric/ofi/link.cpp", "<rdma/fabric.h>"),
        ("trireme/ccl/algorithms/ring.cpp", '"trireme/ccl/node/segment.h"'),
        ("trireme/ccl/api/ccl.cpp", '"oneapi/ccl.hpp"'),
        ("trireme/torch_ext/ops/attention.cpp", "<ATen/ATen.h>"),
        ("trireme/trainer/main.cpp", '"trireme/torch_ext/optim/adamw.h"'),
        ("python/bindings/module.cpp", '"trireme/torch_ext/ops/attention.h"'),
        ("include/oneapi/ccl.hpp", '"oneapi/ccl/types.hpp"'),
        ("trireme/base/deadline.h", "<torchlight.h>"),
    ],
)
def test_downward(tmp_path, file, included):
    result = check_file(tmp_path, file, f"#include {included}\n")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("file", "included", "reason"),
    [
        ("trireme/base/error.h", '"trireme/cpu/isa.h"', "base may not depend on cpu"),
        ("trireme/cpu/isa.h", '"trireme/ccl/types.h"', "cpu may not depend on ccl"),
        ("trireme/ccl/comm/communicator.cpp", '"trireme/kernels/norm/layer_norm.h"', "ccl may not depend on kernels"),
        ("trireme/kernels/norm/layer_norm.cpp", "<trireme/ccl/types.h>", "kernels may not depend on ccl"),
        ("trireme/torch_ext/ops/attention.h", '"trireme/trainer/loop.h"', "torch_ext may not depend on trainer"),
        ("python/module.cpp", '"trireme/trainer/loop.h"', "python may not depend on trainer"),
        ("trireme/helpers/misc.h", '"trireme/base/env.h"', "helpers is not a known part"),
        ("trireme/ccl/comm/communicator.h", "<torch/torch.h>", "may see torch"),
        ("trireme/kernels/norm/layer_norm.h", "<ATen/Tensor.h>", "may see torch"),
        ("trireme/ccl/fabric/tcp/link.cpp", "<rdma/fabric.h>", "only trireme/ccl/fabric/ofi may see libfabric"),
        ("trireme/ccl/comm/communicator.h", '"oneapi/ccl.hpp"', "may see the public API"),
        ("include/oneapi/ccl.hpp", '"trireme/ccl/types.h"', "include may not depend on ccl"),
        ("trireme/ccl/types.h", '"trireme/ccl/reduction/reducer.h"', "ccl may not depend on ccl/reduction"),
        ("trireme/ccl/reduction/reducer.h", '"trireme/ccl/bootstrap/wire.h"', "may not depend on ccl/bootstrap"),
        ("trireme/ccl/bootstrap/wire.h", '"trireme/ccl/fabric/fabric.h"', "may not depend on ccl/fabric"),
        ("trireme/ccl/node/segment.h", '"trireme/ccl/fabric/tcp/link.h"', "ccl/node may not depend on ccl/fabric"),
        ("trireme/ccl/fabric/tcp/link.h", '"trireme/ccl/algorithms/ring.h"', "may not depend on ccl/algorithms"),
        ("trireme/ccl/algorithms/ring.h", '"trireme/ccl/comm/communicator.h"', "may not depend on ccl/comm"),
        ("trireme/ccl/comm/communicator.h", '"trireme/ccl/api/ccl.h"', "may not depend on ccl/api"),
        ("trireme/ccl/misc/misc.h", '"trireme/ccl/types.h"', "ccl/misc is in no layer"),
        ("trireme/ccl/comm/communicator.h", '"../api/ccl.h"', "from the root of the repository"),
    ],
)
def test_upward(tmp_path, file, included, reason):
    result = check_file(tmp_path, file, f"#pragma once\n\n  #  include {included}  // why\n")
    assert result.returncode == 1
    assert f"{file}:3: " in result.stdout and reason in result.stdout


def test_a_neighbour_is_named_from_the_root_too(tmp_path):
    check_file(tmp_path, "trireme/base/env.h", "")
    result = check_file(tmp_path, "trireme/base/env.cpp", '#include "env.h"\n')
    assert result.returncode == 1 and "from the root of the repository" in result.stdout
