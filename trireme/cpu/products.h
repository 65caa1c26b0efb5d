// Whose matrix products of fp32 to take on this CPU: kernels::matmul's, or those of the BLAS that torch comes with.
#pragma once

namespace trireme::cpu {

// By TRIREME_MATMUL; by default kernels::matmul's on AMD's CPUs with AVX-512, for which MKL has no kernels as good
// (docs/decisions/2026-11-17-products-of-our-own.md). Fixed at the first call. InvalidArgument for a wrong value.
bool prefers_own_products();

}  // namespace trireme::cpu
