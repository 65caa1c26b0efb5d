// Work for OpenMP's threads: inside torch's process they are torch's own. (One libgomp serves both; that torch.set_num_threads counts in every thread, the
// operators see to: torch_ext/ops/threads.h.)
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace trireme::kernels {

// body(begin, end) for consecutive parts of [0, n), each at least grain long, one per thread. The parts depend on the number
// of threads, so a body adds nothing up over them: sums go over parts of a fixed size. A body does not throw.
template <class Body>
void parallel_for(int64_t n, int64_t grain, const Body& body) {
  int parts = static_cast<int>(std::min<int64_t>(omp_get_max_threads(), n / std::max<int64_t>(grain, 1)));
  if (parts <= 1 || omp_in_parallel()) {
    if (n > 0) body(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(parts)
  {
    int64_t count = omp_get_num_threads(), me = omp_get_thread_num();
    if (n * me / count < n * (me + 1) / count) body(n * me / count, n * (me + 1) / count);
  }
}

// body(task) for every task in [0, n), each by the next free thread: for tasks that differ in length.
template <class Body>
void parallel_tasks(int64_t n, const Body& body) {
  if (n <= 1 || omp_get_max_threads() == 1 || omp_in_parallel()) {
    for (int64_t task = 0; task < n; ++task) body(task);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t task = 0; task < n; ++task) body(task);
}

}  // namespace trireme::kernels
