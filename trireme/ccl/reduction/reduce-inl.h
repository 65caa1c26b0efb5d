// The body of the reduction, compiled once per ISA level. The including file has opened the target region and an unnamed
// namespace in trireme::ccl, and has defined, for its level:
//   kVectorBytes                            the width of a register
//   zero_extend(HalfVector) -> Vec<uint32_t>
//   widen(HalfVector) -> Vec<float>         fp16, exact
//   narrow(Vec<float>) -> HalfVector        fp16, to nearest even
//   stream(vector, aligned pointer)         a store that goes around the cache
//   stream_fence()                          orders those stores before whatever is written next
//
// Everything is written with the compiler's vector types: one source for 13 types x 7 operations x 3 levels, and the
// arithmetic of a lane is the same IEEE (or modular) operation at every width, so the bits agree. Nothing here multiplies
// and adds, so there is nothing for the compiler to contract.

#define TRIREME_INLINE [[gnu::always_inline]] inline

// ---- How elements lie in memory, and how they become accumulators ----
// A format unpacks one vector of memory into registers and packs it again; kElements of them at a time.

template <class T>
struct Plain {
  using Memory = Vec<T>;
  using Registers = Vec<T>;
  static constexpr size_t kElements = kVectorBytes / sizeof(T);
  TRIREME_INLINE static Registers unpack(Memory x) { return x; }
  TRIREME_INLINE static Memory pack(Registers x) { return x; }
};

struct Float16 {
  using Memory = HalfVector;
  using Registers = Vec<float>;
  static constexpr size_t kElements = kVectorBytes / sizeof(float);
  TRIREME_INLINE static Registers unpack(Memory x) { return widen(x); }
  TRIREME_INLINE static Memory pack(Registers x) { return narrow(x); }
};

// Adding 0x7fff plus the lowest bit that stays carries into the upper half exactly when rounding to nearest even goes up.
TRIREME_INLINE Vec<uint32_t> round_upper_half(Vec<uint32_t> bits) { return bits + 0x7fff + ((bits >> 16) & 1); }

struct Bfloat16 {
  using Memory = HalfVector;
  using Registers = Vec<float>;
  static constexpr size_t kElements = kVectorBytes / sizeof(float);
  TRIREME_INLINE static Registers unpack(Memory x) { return (Vec<float>)(zero_extend(x) << 16); }
  TRIREME_INLINE static Memory pack(Registers x) {
    Vec<uint32_t> bits = (Vec<uint32_t>)x;
    Vec<uint32_t> quiet_nan = bits | 0x400000;
    return __builtin_convertvector((x != x ? quiet_nan : round_upper_half(bits)) >> 16, HalfVector);
  }
};

// The even and the odd elements of a vector of bf16, each as floats.
struct EvenOdd {
  Vec<float> even, odd;
};

// bf16 in and out: the two halves of each 32-bit word are taken apart and put together in place, which spares the shuffles.
// NaN needs no care: one that began as bf16, or in the FPU, has a lower half of 0, so that rounding leaves its upper half
// alone.
struct Bfloat16Words {
  using Memory = Vec<uint32_t>;
  using Registers = EvenOdd;
  static constexpr size_t kElements = kVectorBytes / sizeof(uint16_t);
  TRIREME_INLINE static Registers unpack(Memory x) { return {(Vec<float>)(x << 16), (Vec<float>)(x & 0xffff0000u)}; }
  TRIREME_INLINE static Memory pack(Registers x) {
    Vec<uint32_t> even = round_upper_half((Vec<uint32_t>)x.even), odd = round_upper_half((Vec<uint32_t>)x.odd);
    return (odd & 0xffff0000u) | (even >> 16);
  }
};

// Any byte but 0 is true; results are 0 or 1.
struct Boolean {
  using Memory = Vec<uint8_t>;
  using Registers = Vec<uint8_t>;
  static constexpr size_t kElements = kVectorBytes;
  TRIREME_INLINE static Registers unpack(Memory x) { return (Vec<uint8_t>)(x != 0) & 1; }
  TRIREME_INLINE static Memory pack(Registers x) { return x; }
};

// ---- Operations ----

struct Sum {
  template <class V>
  TRIREME_INLINE static V combine(V a, V b) {
    return a + b;
  }
};
struct Prod {
  template <class V>
  TRIREME_INLINE static V combine(V a, V b) {
    return a * b;
  }
};
// A NaN on either side is the result: b's because the comparison is false, a's by the second line. (a == a always holds for
// integers.)
struct Min {
  template <class V>
  TRIREME_INLINE static V combine(V a, V b) {
    V smaller = a < b ? a : b;
    return a == a ? smaller : a;
  }
};
struct Max {
  template <class V>
  TRIREME_INLINE static V combine(V a, V b) {
    V larger = a > b ? a : b;
    return a == a ? larger : a;
  }
};
struct And {
  template <class V>
  TRIREME_INLINE static V combine(V a, V b) {
    return a & b;
  }
};
struct Or {
  template <class V>
  TRIREME_INLINE static V combine(V a, V b) {
    return a | b;
  }
};
struct Xor {
  template <class V>
  TRIREME_INLINE static V combine(V a, V b) {
    return a ^ b;
  }
};

template <class Op, class V>
TRIREME_INLINE V combine(V a, V b) {
  return Op::combine(a, b);
}

template <class Op>
TRIREME_INLINE EvenOdd combine(EvenOdd a, EvenOdd b) {
  return {Op::combine(a.even, b.even), Op::combine(a.odd, b.odd)};
}

TRIREME_INLINE Vec<float> divided(Vec<float> x, int divisor) { return x / static_cast<float>(divisor); }
TRIREME_INLINE Vec<double> divided(Vec<double> x, int divisor) { return x / static_cast<double>(divisor); }
TRIREME_INLINE EvenOdd divided(EvenOdd x, int divisor) { return {divided(x.even, divisor), divided(x.odd, divisor)}; }
// Integers are divided elsewhere: no CPU divides vectors of them.
template <class V>
TRIREME_INLINE V divided(V x, int divisor) {
  return x;
}

// ---- The loop ----

struct Cached {
  template <class V>
  TRIREME_INLINE static void store(V x, char* to) {
    __builtin_memcpy(to, &x, sizeof x);
  }
};
struct Streaming {
  template <class V>
  TRIREME_INLINE static void store(V x, char* to) {
    stream(x, to);
  }
};

// One reduction from format In to format Out. Every element of a block is read from all sources before any of it is written:
// dst may be one of them.
template <class In, class Out, class Op>
class Kernel {
 public:
  explicit Kernel(const ReduceCall& call)
      : sources_(call.sources),
        source_count_(call.source_count),
        dst_(static_cast<char*>(call.dst)),
        count_(call.count),
        divisor_(call.divisor) {}

  void run(Access access) const {
    size_t done = access == Access::streaming ? run_streaming() : access == Access::interleaved ? run_interleaved() : 0;
    done = blocks<Cached>(done);
    for (; done + kElements <= count_; done += kElements) one_vector(done);
    if (done < count_) part_of_vector(done, count_ - done);
  }

 private:
  using Registers = typename In::Registers;
  static constexpr size_t kElements = In::kElements;
  static constexpr size_t kInVector = sizeof(typename In::Memory);
  static constexpr size_t kOutVector = sizeof(typename Out::Memory);
  static constexpr size_t kInElement = kInVector / kElements;
  static constexpr size_t kOutElement = kOutVector / kElements;
  // Four accumulators cover the latency of an addition (4 cycles) at one load per cycle and source, and amortise the loop
  // over the sources, whose number is not known at compile time.
  static constexpr size_t kBlock = 4 * kElements;
  static constexpr size_t kCacheLine = 64;

  TRIREME_INLINE const char* source(size_t s, size_t element) const {
    return static_cast<const char*>(sources_[s]) + element * kInElement;
  }

  TRIREME_INLINE static Registers load(const char* from) {
    typename In::Memory x;
    __builtin_memcpy(&x, from, sizeof x);
    return In::unpack(x);
  }

  template <class Store>
  TRIREME_INLINE void one_block(size_t begin) const {
    const char* from = source(0, begin);
    Registers a = load(from), b = load(from + kInVector), c = load(from + 2 * kInVector), d = load(from + 3 * kInVector);
    for (size_t s = 1; s < source_count_; ++s) {
      from = source(s, begin);
      a = combine<Op>(a, load(from));
      b = combine<Op>(b, load(from + kInVector));
      c = combine<Op>(c, load(from + 2 * kInVector));
      d = combine<Op>(d, load(from + 3 * kInVector));
    }
    if (const int divisor = divisor_; divisor != 0) {
      a = divided(a, divisor);
      b = divided(b, divisor);
      c = divided(c, divisor);
      d = divided(d, divisor);
    }
    char* to = dst_ + begin * kOutElement;
    Store::store(Out::pack(a), to);
    Store::store(Out::pack(b), to + kOutVector);
    Store::store(Out::pack(c), to + 2 * kOutVector);
    Store::store(Out::pack(d), to + 3 * kOutVector);
  }

  // Whole blocks from element `done` on; returns where it stopped.
  template <class Store>
  TRIREME_INLINE size_t blocks(size_t done) const {
    for (; done + kBlock <= count_; done += kBlock) one_block<Store>(done);
    return done;
  }

  // Four parts of whole blocks, a block of each in turn.
  size_t run_interleaved() const {
    constexpr size_t kParts = 4;
    const size_t part = count_ / kParts / kBlock * kBlock;
    for (size_t done = 0; done < part; done += kBlock) {
      for (size_t i = 0; i < kParts; ++i) one_block<Cached>(i * part + done);
    }
    return kParts * part;
  }

  // Streaming stores need an aligned address; whole cache lines also leave the core in one piece. A dst that is not even
  // aligned to its elements never gets there: then nothing is done, and the caller goes on with ordinary stores.
  size_t run_streaming() const {
    size_t misaligned = -reinterpret_cast<uintptr_t>(dst_) % kCacheLine;
    size_t head = misaligned / kOutElement;
    if (misaligned % kOutElement != 0 || head >= count_) return 0;
    size_t done = 0;
    for (; done + kElements <= head; done += kElements) one_vector(done);
    if (done < head) part_of_vector(done, head - done);
    done = blocks<Streaming>(head);
    stream_fence();
    return done;
  }

  void one_vector(size_t done) const {
    Registers x = load(source(0, done));
    for (size_t s = 1; s < source_count_; ++s) x = combine<Op>(x, load(source(s, done)));
    if (divisor_ != 0) x = divided(x, divisor_);
    Cached::store(Out::pack(x), dst_ + done * kOutElement);
  }

  // Fewer elements than lanes go through a zero-padded copy, so that they meet the same instructions as all others.
  void part_of_vector(size_t done, size_t elements) const {
    alignas(kVectorBytes) char padded[kVectorBytes] = {};
    __builtin_memcpy(padded, source(0, done), elements * kInElement);
    Registers x = load(padded);
    for (size_t s = 1; s < source_count_; ++s) {
      __builtin_memcpy(padded, source(s, done), elements * kInElement);
      x = combine<Op>(x, load(padded));
    }
    if (divisor_ != 0) x = divided(x, divisor_);
    Cached::store(Out::pack(x), padded);
    __builtin_memcpy(dst_ + done * kOutElement, padded, elements * kOutElement);
  }

  const void* const* sources_;
  size_t source_count_;
  char* dst_;
  size_t count_;
  int divisor_;
};

// ---- From the values in a ReduceCall to a Kernel ----

template <class In, class Out, class Op>
void run(const ReduceCall& call) {
  Kernel<In, Out, Op>(call).run(call.access);
}

template <class In, class Out>
void run_min_max(const ReduceCall& call) {
  return call.op == Reduction::min ? run<In, Out, Min>(call) : run<In, Out, Max>(call);
}

template <class In, class Out>
void run_arithmetic(const ReduceCall& call) {
  if (call.op == Reduction::sum) return run<In, Out, Sum>(call);
  if (call.op == Reduction::prod) return run<In, Out, Prod>(call);
  return run_min_max<In, Out>(call);
}

template <class In, class Out>
void run_bitwise(const ReduceCall& call) {
  if (call.op == Reduction::band) return run<In, Out, And>(call);
  if (call.op == Reduction::bor) return run<In, Out, Or>(call);
  return run<In, Out, Xor>(call);
}

template <class T>
void run_unsigned(const ReduceCall& call) {
  bool bitwise = call.op == Reduction::band || call.op == Reduction::bor || call.op == Reduction::bxor;
  return bitwise ? run_bitwise<Plain<T>, Plain<T>>(call) : run_arithmetic<Plain<T>, Plain<T>>(call);
}

// The two 16-bit formats: their accumulators are plain floats.
template <class Storage, class StorageBothWays>
void run_half(const ReduceCall& call) {
  switch (call.stage) {
    case Stage::whole: return run_arithmetic<StorageBothWays, StorageBothWays>(call);
    case Stage::first: return run_arithmetic<Storage, Plain<float>>(call);
    case Stage::middle: return run_arithmetic<Plain<float>, Plain<float>>(call);
    case Stage::last: return run_arithmetic<Plain<float>, Storage>(call);
  }
}

void reduce_at_this_level(const ReduceCall& call) {
  switch (call.type) {
    case DataType::int8: return run_min_max<Plain<int8_t>, Plain<int8_t>>(call);
    case DataType::int16: return run_min_max<Plain<int16_t>, Plain<int16_t>>(call);
    case DataType::int32: return run_min_max<Plain<int32_t>, Plain<int32_t>>(call);
    case DataType::int64: return run_min_max<Plain<int64_t>, Plain<int64_t>>(call);
    case DataType::uint8: return run_unsigned<uint8_t>(call);
    case DataType::uint16: return run_unsigned<uint16_t>(call);
    case DataType::uint32: return run_unsigned<uint32_t>(call);
    case DataType::uint64: return run_unsigned<uint64_t>(call);
    case DataType::float16: return run_half<Float16, Float16>(call);
    case DataType::bfloat16: return run_half<Bfloat16, Bfloat16Words>(call);
    case DataType::float32: return run_arithmetic<Plain<float>, Plain<float>>(call);
    case DataType::float64: return run_arithmetic<Plain<double>, Plain<double>>(call);
    case DataType::boolean: return run_bitwise<Boolean, Boolean>(call);
  }
}

#undef TRIREME_INLINE
