#!/bin/sh
# Installs the libraries that the benchmarks compare with, and builds the benchmark programs against them:
#   MPICH from Debian, Intel oneCCL (with the MPI it stands on) and matplotlib from PyPI into bench/.peers.
# Usage: bench/setup_peers.sh [--build-only]
# PEERS names another folder, MPICXX another compiler wrapper of MPICH's.
set -eu

bench=$(cd "$(dirname "$0")" && pwd)
peers=${PEERS:-$bench/.peers}
mpicxx=${MPICXX:-mpicxx.mpich}
flags="-std=c++20 -O2 -Wall -Wextra -Wno-unused-parameter"

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_mpich() {
  # Debian's mpich brings the wrapper, libmpich-dev the headers.
  echo '#include <mpi.h>' | "$mpicxx" -E -x c++ - >/dev/null 2>&1 && return
  as_root apt-get update
  as_root apt-get install -y --no-install-recommends mpich libmpich-dev libhwloc-dev
}

install_oneccl() {
  python3 -m venv "$peers"
  "$peers/bin/pip" install --quiet oneccl-devel impi-rt impi-devel matplotlib
}

build_mpich() {
  cd "$bench/collectives"
  # shellcheck disable=SC2086
  "$mpicxx" $flags collectives_mpi.cpp measure.cpp cases.cpp scoreboard.cpp -o "$peers/programs/mpich"
}

# The wheel's shared library is the SYCL build. The CPU build comes as an archive, compiled with Intel's compiler, whose
# run-time libraries it needs.
build_oneccl() {
  cd "$bench/collectives"
  # shellcheck disable=SC2086
  g++ $flags -isystem "$peers/include" collectives.cpp measure.cpp cases.cpp scoreboard.cpp job_oneccl.cpp \
    -o "$peers/programs/oneccl" "$peers/lib/ccl/cpu/lib/libccl.a" -L"$peers/lib" \
    -lmpi -l:libintlc.so.5 -l:libimf.so -l:libsvml.so -l:libirng.so -lhwloc -ldl -lpthread
}

if [ "${1:-}" != --build-only ]; then
  install_mpich
  install_oneccl
fi
mkdir -p "$peers/programs"
build_mpich
build_oneccl
echo "The peers are ready: bench/collectives/run.py --quick"
