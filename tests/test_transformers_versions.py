"""What is built on transformers, on every version that is named here, each in an environment of its own that shares torch."""

import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
VERSIONS = {"4.46.3": "1.1.1", "4.52.4": "1.7.0", "4.57.6": "1.12.0", "5.22.2": "1.15.0"}  # transformers, accelerate


def environment(version, accelerate):
    """The Python of an environment with this version; made once."""
    folder = REPOSITORY / "build" / "transformers" / version
    python, stamp = folder / "bin" / "python", folder / "stamp"
    wanted = f"transformers=={version} accelerate=={accelerate} peft, torch of {sysconfig.get_path('purelib')}"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"transformers=={version}", f"accelerate=={accelerate}", "peft"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        pytest.skip(f"pip cannot install transformers {version}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no reason given'}")
    stamp.write_text(wanted)
    return python


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_version(version):
    python = environment(version, VERSIONS[version])
    versions = "import accelerate, transformers; print(transformers.__version__, accelerate.__version__)"
    found = subprocess.run([python, "-c", versions], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [version, VERSIONS[version]]
    # Most of what starts several processes is long, and versions differ there most of all.
    for folder, marks, timeout_s in (("tests/optimize", "not long", 1800), ("tests/huggingface", "", 7200)):
        command = [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-m", marks, folder]
        done = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, "PYTHONUNBUFFERED": "1"}, capture_output=True, text=True, timeout=timeout_s)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        assert "no mpiexec" not in done.stdout, "the guides' commands were skipped: install mpich"
