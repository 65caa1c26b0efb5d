// Conversions, per ISA level. `streaming`: the result goes past the cache.

// What is left to an address that stream() can write, in elements; all of n if there is none (an odd address).
template <class T>
TRIREME_INLINE int64_t until_aligned(const T* to, int64_t n) {
  constexpr uintptr_t kStep = kLanes * sizeof(T);
  uintptr_t over = reinterpret_cast<uintptr_t>(to) % kStep;
  if (over % sizeof(T) != 0) return n;
  int64_t left = over == 0 ? 0 : static_cast<int64_t>((kStep - over) / sizeof(T));
  return left < n ? left : n;
}

TRIREME_INLINE void stream(bfloat16* to, Floats x) { stream(&to->bits, to_bfloat16_bits(x)); }

// To bfloat16 from float, to float from bfloat16.
template <class T>
struct OtherOf {
  using Type = float;
};
template <>
struct OtherOf<float> {
  using Type = bfloat16;
};

template <class From>
void convert_part(const From* from, typename OtherOf<From>::Type* to, int64_t n, bool streaming) {
  int64_t head = streaming ? until_aligned(to, n) : 0;
  for (int64_t i = 0; i < head; i += kLanes) store_up_to(to + i, load_up_to(from + i, head - i), head - i);
  int64_t i = head;
  if (streaming) {
    for (; i + kLanes <= n; i += kLanes) stream(to + i, load(from + i));
    finish_streams();
  } else {
    for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  }
  if (i < n) store_first(to + i, load_first(from + i, static_cast<int>(n - i)), static_cast<int>(n - i));
}

void split_part(const float* from, bfloat16* upper, uint16_t* lower, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    int64_t left = n - i;
    Words bits = quiet_bits(load_up_to(from + i, left));
    store_halves(&upper[i].bits, upper_half(bits), left);
    store_halves(lower + i, lower_half(bits), left);
  }
}

void join_part(const bfloat16* upper, const uint16_t* lower, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    int64_t left = n - i;
    store_up_to(to + i, join_halves(load_halves(&upper[i].bits, left), load_halves(lower + i, left)), left);
  }
}
