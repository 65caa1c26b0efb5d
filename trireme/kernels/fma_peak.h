// What the cores can do at most: fused multiply-adds and nothing else, for benchmarks to be compared with.
#pragma once

namespace trireme::kernels {

// GFLOP/s over all of OpenMP's threads, at this process's ISA level, measured for about `seconds`.
double measure_fma_peak(double seconds);

}  // namespace trireme::kernels
