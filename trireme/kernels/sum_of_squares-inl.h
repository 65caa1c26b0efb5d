// Squares added up in double, 32 sums at a time whatever the level, so that every level gives the same bits. Elements i, i +
// 32, i + 64, ... go to sum i.

constexpr int kSums = 32;

struct SumOfSquares {
  static constexpr int kDoubleLanes = kLanes / 2;

  Vec<double> sums[kSums / kDoubleLanes] = {};

  // kLanes elements, the ones that begin at `place` of every 32. Squares are exact before they are added, so fused or not is
  // the same.
  TRIREME_INLINE void add(int place, Floats x) {
    Vec<double> lower = widen_lower(x), upper = widen_upper(x);
    sums[place / kDoubleLanes] += lower * lower;
    sums[place / kDoubleLanes + 1] += upper * upper;
  }

  TRIREME_INLINE double total() const {
    double total = 0;
    for (int i = 0; i < kSums; ++i) total += sums[i / kDoubleLanes][i % kDoubleLanes];
    return total;
  }
};
