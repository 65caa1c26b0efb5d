// The compiler's vector types (GCC and clang) with the number of bytes as a parameter.
#pragma once

#include <cstddef>

namespace trireme {

template <class T, size_t bytes>
struct VectorTraits {
  typedef T Type __attribute__((vector_size(bytes)));
};

template <class T, size_t bytes>
using VectorOf = typename VectorTraits<T, bytes>::Type;

}  // namespace trireme
