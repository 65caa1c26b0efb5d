"""check_includes.py: this repository is clean, its table is what CMake links, and each kind of upward include is found."""

import pathlib
import re
import subprocess
import sys

import pytest

from .check_includes import CCL_LINKS, ccl_below

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


FOLDER_OF_TARGET = {"types": "", "tcp": "fabric/tcp", "ofi": "fabric/ofi"}  # the others are called as their folders


def linked_in_cmake(folder: str) -> set[str]:
    text = (REPOSITORY / "trireme" / "ccl" / folder / "CMakeLists.txt").read_text()
    linked = re.search(r"trireme_folder\([^)]* DEPENDS ([^)]*)|target_link_libraries\(trireme_ccl_\w+ PUBLIC ([^)]*)", text)
    targets = re.findall(r"trireme_ccl_(\w+)", linked[1] or linked[2])
    return {FOLDER_OF_TARGET.get(target, target) for target in targets}


@pytest.mark.parametrize("folder", [folder for folder in CCL_LINKS if folder != "api"])
def test_the_table_is_what_cmake_links(folder):
    assert linked_in_cmake(folder) == set(CCL_LINKS[folder])


def test_the_api_stands_on_every_folder():
    assert ccl_below("api") == set(CCL_LINKS) - {"api"}


@pytest.mark.parametrize(
    ("file", "included"),
    [
        ("trireme/base/error.cpp", '"trireme/base/error.h"'),
        ("trireme/cpu/isa.h", '"trireme/base/env.h"'),
        ("trireme/cpu/topology.cpp", "<hwloc.h>"),
        ("trireme/ccl/types.h", '"trireme/cpu/isa.h"'),
        ("trireme/ccl/node/segment.h", '"trireme/ccl/engine/stream.h"'),
        ("trireme/ccl/node/node.h", '"trireme/ccl/fabric/link.h"'),
        ("trireme/ccl/comm/creation.cpp", '"trireme/ccl/fabric/ofi/ofi_lane.h"'),
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
        ("trireme/ccl/comm/workers.cpp", "<hwloc.h>", "only trireme/cpu may see hwloc"),
        ("trireme/ccl/comm/communicator.h", '"oneapi/ccl.hpp"', "may see the public API"),
        ("include/oneapi/ccl.hpp", '"trireme/ccl/types.h"', "include may not depend on ccl"),
        ("trireme/ccl/types.h", '"trireme/ccl/reduction/reducer.h"', "ccl may not depend on ccl/reduction"),
        ("trireme/ccl/reduction/reducer.h", '"trireme/ccl/bootstrap/wire.h"', "may not depend on ccl/bootstrap"),
        ("trireme/ccl/bootstrap/wire.h", '"trireme/ccl/fabric/fabric.h"', "may not depend on ccl/fabric"),
        ("trireme/ccl/node/segment.h", '"trireme/ccl/fabric/tcp/link.h"', "ccl/node may not depend on ccl/fabric"),
        ("trireme/ccl/fabric/link.h", '"trireme/ccl/fabric/tcp/tcp_mesh.h"', "ccl/fabric may not depend on ccl/fabric/tcp"),
        ("trireme/ccl/fabric/link.h", '"trireme/ccl/node/node.h"', "ccl/fabric may not depend on ccl/node"),
        ("trireme/ccl/node/node.h", '"trireme/ccl/reduction/reducer.h"', "ccl/node may not depend on ccl/reduction"),
        ("trireme/ccl/algorithms/ring.h", '"trireme/ccl/fabric/ofi/ofi_lane.h"', "may not depend on ccl/fabric/ofi"),
        ("trireme/ccl/fabric/tcp/link.h", '"trireme/ccl/algorithms/ring.h"', "may not depend on ccl/algorithms"),
        ("trireme/ccl/algorithms/ring.h", '"trireme/ccl/comm/communicator.h"', "may not depend on ccl/comm"),
        ("trireme/ccl/comm/communicator.h", '"trireme/ccl/api/ccl.h"', "may not depend on ccl/api"),
        ("trireme/ccl/misc/misc.h", '"trireme/ccl/types.h"', "ccl/misc is not a known folder"),
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
