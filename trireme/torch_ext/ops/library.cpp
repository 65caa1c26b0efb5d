// The namespace `trireme` of torch's operators. Each family defines its own in a TORCH_LIBRARY_FRAGMENT beside its code.
#include <torch/library.h>

#include "trireme/kernels/fma_peak.h"

TORCH_LIBRARY(trireme, library) { library.def("measure_fma_peak(float seconds) -> float", &trireme::kernels::measure_fma_peak); }
