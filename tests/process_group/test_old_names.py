"""python/oneccl_bind_pt: the names that programs and guides use, and that it does not replace Intel's package."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder for PYTHONPATH with the package in it. Built from a copy: setuptools leaves files behind."""
    folder = tmp_path_factory.mktemp("old_names")
    shutil.copytree(REPOSITORY / "python" / "oneccl_bind_pt", folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--target", str(folder / "site")]
    subprocess.run([*pip, str(folder / "source")], check=True, capture_output=True, text=True)
    return folder / "site"


def run_python(code: str, path: pathlib.Path) -> str:
    result = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_what_programs_and_accelerate_ask_for(installed):
    code = """
import importlib.metadata, oneccl_bindings_for_pytorch, torch_ccl, torch.distributed as dist
print(importlib.metadata.version("oneccl_bind_pt") >= "1.12", dist.is_backend_available("ccl"), dist.ProcessGroupCCL.__name__, torch_ccl.cwd)
"""
    assert run_python(code, installed) == f"True True ProcessGroupCCL {installed / 'oneccl_bindings_for_pytorch'}"


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun (Debian: mpich)")
@pytest.mark.parametrize("package", ["oneccl_bindings_for_pytorch", "torch_ccl"])
def test_the_guides_line_puts_an_mpirun_on_the_path(installed, tmp_path, package):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    (folder / "mpirun").symlink_to(shutil.which("mpirun"))
    script = f"set -eu; PATH={folder}-elsewhere:/bin-nowhere; hash -r; I_MPI_ROOT={tmp_path}; source {installed}/{package}/env/setvars.sh"
    shell = shutil.which("bash")
    found = subprocess.run([shell, "-c", f"{script}; command -v mpirun"], capture_output=True, text=True)
    assert found.stdout.strip() == str(folder / "mpirun"), found.stderr
    (folder / "mpirun").unlink()
    missing = subprocess.run([shell, "-c", f"{script}; echo still alive"], capture_output=True, text=True)
    assert missing.stdout == "still alive\n" and "apt-get install mpich" in missing.stderr


@pytest.mark.parametrize(
    ("package", "module"),
    [("oneccl_bind_pt", "oneccl_bindings_for_pytorch"), ("intel_extension_for_pytorch", "intel_extension_for_pytorch")],
    ids=["bindings", "ipex"],
)
def test_pip_refuses_to_install_over_intels_package(tmp_path, package, module):
    """In an environment that has a package of that name; pip and setuptools are this environment's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = pathlib.Path(subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip())
    (site / "of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    intels = site / module
    intels.mkdir()
    (intels / "__init__.py").write_text("cwd = 1\n")
    shutil.copytree(REPOSITORY / "python" / package, tmp_path / "source")
    install = [python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", str(tmp_path / "source")]
    refused = subprocess.run(install, capture_output=True, text=True)
    assert refused.returncode != 0 and f"pip uninstall {package}" in refused.stdout + refused.stderr, refused.stdout + refused.stderr
    assert (intels / "__init__.py").read_text() == "cwd = 1\n"
    shutil.rmtree(intels)
    subprocess.run(install, check=True, capture_output=True)


def test_intels_package_is_recognised(tmp_path):
    path = REPOSITORY / "python" / "oneccl_bind_pt" / "setup.py"
    spec = importlib.util.spec_from_file_location("setup_of_oneccl_bind_pt", path)
    setup = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    assert setup.why_not(tmp_path) is None
    shutil.copytree(path.parent / "oneccl_bindings_for_pytorch", tmp_path / "oneccl_bindings_for_pytorch")
    assert setup.why_not(tmp_path) is None, "over itself it may be installed"
    (tmp_path / "oneccl_bindings_for_pytorch" / "__init__.py").write_text("cwd = 1\n")
    assert "pip uninstall oneccl_bind_pt" in setup.why_not(tmp_path)
