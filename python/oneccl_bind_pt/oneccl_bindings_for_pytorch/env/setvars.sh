# To be sourced, as the guides do. Intel's put its own mpirun and libraries on the paths; Trireme needs no library there, and any mpirun serves:
# this finds one if there is none on PATH yet. Harmless under `set -eu`, and when sourced twice.
_trireme_find_mpirun() {
  command -v mpirun >/dev/null 2>&1 && return 0
  local folder python
  python=$(command -v python3 || command -v python || true)
  for folder in "${python%/*}" "${I_MPI_ROOT:-/nonexistent}/bin" /opt/intel/oneapi/mpi/latest/bin /usr/lib64/mpich/bin /usr/lib64/openmpi/bin; do
    if [ -x "$folder/mpirun" ]; then
      export PATH="$folder:$PATH"
      return 0
    fi
  done
  echo "setvars.sh: no mpirun was found. Install one (Debian: apt-get install mpich; PyPI: pip install impi-rt) or use torchrun." >&2
}
_trireme_find_mpirun
unset -f _trireme_find_mpirun
