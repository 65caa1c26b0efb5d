#!/usr/bin/env bash
# Shows what there is, on a fresh Debian 12 machine, as root or with sudo: installs what is missing, builds, runs collectives on two
# processes and prints how long they take. Every answer is checked before it is timed.
set -euo pipefail
cd "$(dirname "$0")"
source tools/setup.sh

install_packages "${BUILD_PACKAGES[@]}"
find_python
build release

"$python" bench/collectives/run.py --quick --ops allreduce,allgather,alltoall,broadcast,reduce_scatter --placements out \
  --libraries trireme,oneccl,mpich
if [ ! -d bench/.peers/programs ]; then
  echo
  echo "Trireme alone. bench/setup_peers.sh installs Intel oneCCL and MPICH; the table then shows them beside it."
fi
