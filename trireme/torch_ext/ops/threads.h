// The kernels' threads are as many as torch's.
#pragma once

#include <ATen/Parallel.h>

namespace trireme::torch_ext {

// OpenMP's number of threads is that of the calling thread. torch tells it to each thread that computes for the first time: so do our operators, before
// their kernels ask for it.
inline void take_number_of_threads() { at::internal::lazy_init_num_threads(); }

}  // namespace trireme::torch_ext
