// The formats of weights.h in registers, per ISA level, and the loop that every optimizer is.

template <Storage storage>
TRIREME_INLINE Floats load_weights(const Weights& weights, int64_t i, int64_t n) {
  if constexpr (storage == Storage::fp32) return load_up_to(weights.fp32 + i, n);
  if constexpr (storage == Storage::bf16) return load_up_to(weights.bf16 + i, n);
  if constexpr (storage == Storage::split)
    return join_halves(load_halves(&weights.bf16[i].bits, n), load_halves(weights.lower + i, n));
  if constexpr (storage == Storage::master) {
    Floats master = load_up_to(weights.fp32 + i, n);
    Words rounded = zero_extend(to_bfloat16_bits(master)), seen = zero_extend(load_halves(&weights.bf16[i].bits, n));
    return rounded == seen ? master : (Floats)(seen << 16);
  }
}

template <Storage storage>
TRIREME_INLINE void store_weights(const Weights& weights, int64_t i, Floats x, int64_t n) {
  if constexpr (storage == Storage::fp32 || storage == Storage::master) store_up_to(weights.fp32 + i, x, n);
  if constexpr (storage == Storage::bf16 || storage == Storage::master) store_up_to(weights.bf16 + i, x, n);
  if constexpr (storage == Storage::split) {
    Words bits = (Words)x;  // a NaN that comes of arithmetic is quiet: its upper half is NaN too
    store_halves(&weights.bf16[i].bits, upper_half(bits), n);
    store_halves(weights.lower + i, lower_half(bits), n);
  }
}

template <class G>
TRIREME_INLINE Floats load_gradient(const Gradient& gradient, int64_t i, int64_t n) {
  if constexpr (sizeof(G) == sizeof(float))
    return load_up_to(gradient.fp32 + i, n);
  else
    return load_up_to(gradient.bf16 + i, n);
}

// w = rule(w, g, i, n) for the elements of a chunk; n of them from i on, kLanes but at the end of a tensor. The rule reads
// and writes the optimizer's state. Written with fma() where a product is added, so that every format computes the same
// bits.
template <class F, class Rule>
TRIREME_INLINE void update_elements(const Weights& weights, const Gradient& gradient, int64_t begin, int64_t end,
                                    const Rule& rule) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    Floats w = load_weights<F::storage>(weights, i, kLanes), g = load_gradient<typename F::Grad>(gradient, i, kLanes);
    store_weights<F::storage>(weights, i, rule(w, g, i, kLanes), kLanes);
  }
  if (i < end) {
    int64_t n = end - i;
    Floats w = load_weights<F::storage>(weights, i, n), g = load_gradient<typename F::Grad>(gradient, i, n);
    store_weights<F::storage>(weights, i, rule(w, g, i, n), n);
  }
}
