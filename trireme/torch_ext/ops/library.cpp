// The namespace `trireme` of torch's operators. Each family defines its own in a TORCH_LIBRARY_FRAGMENT beside its code.
#include <torch/library.h>

TORCH_LIBRARY(trireme, library) {}
