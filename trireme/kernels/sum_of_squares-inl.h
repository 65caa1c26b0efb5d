// Squares added up in double, 32 sums at a time whatever the level, so that every level gives the same bits. Elements i, i +
// 32, i + 64, ... go to sum i.

constexpr int kSums = 32;

struct SumOfSquares {
  using Doubles = Vec<double>;
  using HalfFloats = VectorOf<float, kVectorBytes / 2>;
  static constexpr int kDoubleLanes = kLanes / 2;

  Doubles sums[kSums / kDoubleLanes] = {};

  // kLanes elements, the ones that begin at `place` of every 32.
  TRIREME_INLINE void add(int place, Floats x) {
    HalfFloats half[2];
    __builtin_memcpy(&half, &x, sizeof x);
    for (int h = 0; h < 2; ++h) {
      Doubles wide = __builtin_convertvector(half[h], Doubles);
      sums[place / kDoubleLanes + h] += wide * wide;  // exact before it is added, so fused or not is the same
    }
  }

  TRIREME_INLINE double total() const {
    double total = 0;
    for (int i = 0; i < kSums; ++i) total += sums[i / kDoubleLanes][i % kDoubleLanes];
    return total;
  }
};
