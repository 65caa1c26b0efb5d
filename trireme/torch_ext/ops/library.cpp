// The namespace `trireme` of torch's operators. Each family defines its own in a TORCH_LIBRARY_FRAGMENT beside its code.
#include <torch/library.h>

#include "trireme/kernels/fma_peak.h"
#include "trireme/torch_ext/ops/block_cache.h"

TORCH_LIBRARY(trireme, library) {
  library.def("keep_blocks() -> ()", &trireme::torch_ext::install_block_cache);
  library.def("measure_fma_peak(float seconds) -> float", &trireme::kernels::measure_fma_peak);
}
