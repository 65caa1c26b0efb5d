#!/usr/bin/env bash
# Tests on a fresh Debian 12 machine, as root or with sudo: installs what is missing, builds, tests.
#
#   ./test.sh          unit tests, and of tests/ what is not marked long: programs, ranks as processes, the wheel, the trainer, manifests, and hosts in
#                      network namespaces (those as root only)
#   ./test.sh --long   every test: also those marked long (soaks, faults, images), the address, undefined-behaviour and thread sanitizers, fuzzing, and
#                      Open MPI's, Intel's and a newer MPICH's mpirun
#
# Ends with "N passed, N failed, N skipped" and a non-zero exit code if anything failed.
set -euo pipefail
cd "$(dirname "$0")"
source tools/setup.sh

long=false
case "${1:-}" in
  "") ;;
  --long) long=true ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

# Those whose ranks are threads, or that have none: the sanitizer cannot see what the kernel copies between "processes".
thread_tests='^(base|cpu|ccl_types|ccl_engine|ccl_reduction|ccl_bootstrap|ccl_algorithms|ccl_node|ccl_fabric|ccl_tcp)\.|/([0-9]+_)?(threads|staged|slots|measured|all_apart)( |$)'
results=$PWD/build/results
reports=()

# unit_tests PRESET [CTEST-OPTION...]
unit_tests() {
  local preset=$1
  shift
  echo "== unit tests, $preset"
  reports+=("$results/ctest-$preset.xml")
  "${launcher[@]}" ctest --preset "$preset" -j 2 --output-junit "$results/ctest-$preset.xml" "$@" || true
}

# python_tests [PYTEST-OPTION...]
python_tests() {
  echo "== tests across processes and hosts"
  reports+=("$results/pytest.xml")
  .venv/bin/pytest tests --junitxml "$results/pytest.xml" "$@" || true
}

install_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
install_sshd
if $long; then install_packages "${LONG_PACKAGES[@]}"; fi
make_venv
rm -rf "$results"
mkdir -p "$results"

build release
install_wheel
unit_tests release
if $long; then
  export ASAN_OPTIONS=detect_stack_use_after_return=1 LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
  export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tests/tsan.supp
  # The sanitizers of g++ 12 do not know where newer kernels may put a program that is placed at random.
  if setarch -R true 2>/dev/null; then launcher=(setarch -R); fi
  build asan-ubsan
  unit_tests asan-ubsan
  build tsan
  unit_tests tsan -R "$thread_tests"
  launcher=()
  build fuzz
  install_mpis
  python_tests -m ""
else
  python_tests
fi

.venv/bin/python tests/summary.py "${reports[@]}"
