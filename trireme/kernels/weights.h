// What an optimizer updates: the weights of a parameter and its gradient, in the formats that they may have. Arithmetic is
// fp32 in all of them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "trireme/base/float16.h"

namespace trireme::kernels {

enum class Storage {
  fp32,    // fp32
  bf16,    // bf16 alone, rounded to nearest at every step: small updates are lost
  master,  // bf16 for the model, rounded from a master copy in fp32. Where they differ, somebody has changed bf16: it counts
  split,   // bf16 for the model, and the lower halves of the floats whose upper halves it is; see bf16.h
};

struct Weights {
  float* fp32 = nullptr;
  bfloat16* bf16 = nullptr;
  uint16_t* lower = nullptr;

  Storage storage() const { return !bf16 ? Storage::fp32 : fp32 ? Storage::master : lower ? Storage::split : Storage::bf16; }
};

// One of the two.
struct Gradient {
  const float* fp32 = nullptr;
  const bfloat16* bf16 = nullptr;
};

// Throws InvalidArgument, with the optimizer's name, unless the pointers make one of the combinations above. Not for empty
// tensors.
void check_formats(const char* optimizer, const Weights& weights, const Gradient& gradient);

// A combination as a type, for the bodies.
template <Storage kStorage, class G>
struct Format {
  static constexpr Storage storage = kStorage;
  using Grad = G;
};

// choose(Format) for the one that is there.
template <class Choose>
auto with_format(const Weights& weights, const Gradient& gradient, const Choose& choose) {
  auto with_gradient = [&]<Storage storage>(std::integral_constant<Storage, storage>) {
    return gradient.fp32 ? choose(Format<storage, float>()) : choose(Format<storage, bfloat16>());
  };
  switch (weights.storage()) {
    case Storage::bf16: return with_gradient(std::integral_constant<Storage, Storage::bf16>());
    case Storage::master: return with_gradient(std::integral_constant<Storage, Storage::master>());
    case Storage::split: return with_gradient(std::integral_constant<Storage, Storage::split>());
    default: return with_gradient(std::integral_constant<Storage, Storage::fp32>());
  }
}

// One element at a time, for the references.
float load_ref(const Weights& weights, int64_t i);
void store_ref(const Weights& weights, int64_t i, float x);
float load_ref(const Gradient& gradient, int64_t i);

}  // namespace trireme::kernels
