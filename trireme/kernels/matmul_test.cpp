#include "trireme/kernels/matmul.h"

#include "trireme/base/error.h"
#include "trireme/kernels/row_test.h"

namespace trireme::kernels {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class MatmulTest : public EachIsa {};
TRIREME_EACH_ISA(MatmulTest);

enum class Lies { rows, columns };  // which of an operand's lie in one piece

struct Case {
  int64_t M, N, K;
  Lies a_lies = Lies::rows, b_lies = Lies::rows;
  bool accumulate = false;
  int64_t gap = 0;  // beyond the end of what lies in one piece
  Guarded<float> a, b, c;

  Case(int64_t M, int64_t N, int64_t K, Lies a_lies = Lies::rows, Lies b_lies = Lies::rows, bool accumulate = false,
       int64_t gap = 0)
      : M(M),
        N(N),
        K(K),
        a_lies(a_lies),
        b_lies(b_lies),
        accumulate(accumulate),
        gap(gap),
        a(normal((M + gap) * (K + gap), 1)),
        b(normal((K + gap) * (N + gap), 2)),
        c(normal(M * (N + gap), 3)) {}

  static MatrixView view(float* data, Lies lies, int64_t rows, int64_t columns, int64_t gap) {
    return lies == Lies::rows ? MatrixView{data, columns + gap, 1} : MatrixView{data, 1, rows + gap};
  }
  Matmul call() {
    return {view(a.data(), a_lies, M, K, gap), view(b.data(), b_lies, K, N, gap), c.data(), N + gap, M, N, K, accumulate};
  }

  // The very bits of the reference with fused multiply-adds; without, each of K products is rounded, too.
  void check() {
    SCOPED_TRACE(testing::Message() << M << " x " << K << " by " << K << " x " << N << ", a by columns "
                                    << (a_lies == Lies::columns) << ", b by columns " << (b_lies == Lies::columns)
                                    << ", accumulate " << accumulate << ", gap " << gap);
    const double most = static_cast<double>(K) * max_abs(a.values()) * max_abs(b.values()) + max_abs(c.values());
    Case expected(M, N, K, a_lies, b_lies, accumulate, gap);
    matmul_ref(expected.call());
    matmul(call());
    const bool is_fused = cpu::isa() != cpu::Isa::scalar;
    const double error = is_fused ? 0 : 2 * kUnit * static_cast<double>(K + 1) * most;
    expect_close(c.values(), expected.c.values(), error, 0, "c");
  }
};

TEST_P(MatmulTest, AgreesWithReferenceAtEverySize) {
  for (Lies a_lies : {Lies::rows, Lies::columns})
    for (Lies b_lies : {Lies::rows, Lies::columns})
      for (bool accumulate : {false, true}) {
        for (int64_t M : {0, 1, 5, 6, 7, 12, 97})
          for (int64_t N : {0, 16, 32, 48, 64, 80, 144})
            for (int64_t K : {0, 1, 3, 17}) Case(M, N, K, a_lies, b_lies, accumulate).check();
        Case(33, 80, 29, a_lies, b_lies, accumulate, 5).check();
      }
}

// Several blocks of K, several chunks of rows.
TEST_P(MatmulTest, AgreesWithReferenceInBlocks) {
  ScopedThreads several(7);
  for (Lies a_lies : {Lies::rows, Lies::columns})
    for (Lies b_lies : {Lies::rows, Lies::columns}) {
      Case(13, 64, 1537, a_lies, b_lies).check();
      Case(401, 32, 513, a_lies, b_lies, true, 3).check();
    }
  Case(1027, 16, 2101, Lies::columns, Lies::rows).check();
}

TEST_P(MatmulTest, TheSameBitsForAnyNumberOfThreads) {
  for (Lies lies : {Lies::rows, Lies::columns})
    expect_same_for_any_threads([&] {
      Case c(777, 96, 600, lies, lies);
      matmul(c.call());
      return c.c.values();
    });
}

// Not a float past the operands' last is read: asan's business.
TEST_P(MatmulTest, OperandsMayEndWhereTheirMemoryDoes) {
  for (bool by_columns : {false, true}) {
    const int64_t M = 7, N = 48, K = 19;
    const std::vector<float> a = normal(M * K, 1), b = normal(K * N, 2);
    std::vector<float> c(M * N), expected(M * N);
    const MatrixView a_view = by_columns ? MatrixView{a.data(), 1, M} : MatrixView{a.data(), K, 1};
    const MatrixView b_view = by_columns ? MatrixView{b.data(), 1, K} : MatrixView{b.data(), N, 1};
    matmul({a_view, b_view, c.data(), N, M, N, K});
    matmul_ref({a_view, b_view, expected.data(), N, M, N, K});
    expect_close(c, expected, cpu::isa() == cpu::Isa::scalar ? 1e-4 : 0, 0, "c");
  }
}

TEST_P(MatmulTest, NanAndInfinityStay) {
  Case c(7, 16, 3);
  c.a.data()[3] = kNan;                                         // row 1
  c.b.data()[2] = std::numeric_limits<float>::infinity();       // column 2
  matmul(c.call());
  for (int64_t n = 0; n < c.N; ++n) EXPECT_TRUE(std::isnan(c.c.data()[c.N + n])) << n;
  for (int64_t m = 0; m < c.M; ++m) EXPECT_FALSE(std::isfinite(c.c.data()[m * c.N + 2])) << m;
  EXPECT_TRUE(std::isfinite(c.c.data()[0]));
}

TEST_P(MatmulTest, RefusesWhatItCannotDo) {
  const auto refused = [](const Matmul& call, const char* why) {
    EXPECT_THAT([&] { matmul(call); }, ThrowsMessage<InvalidArgument>(HasSubstr(why)));
  };
  Matmul call = Case(2, 16, 2).call();
  call.N = 17;
  refused(call, "17 columns; they must be a multiple of 16");
  call = Case(2, 16, 2).call();
  call.M = -1;
  refused(call, "a size is negative");
  call = Case(2, 16, 2).call();
  call.b = {nullptr, 32, 2};
  refused(call, "lie in one piece");
  call = Case(2, 16, 2).call();
  call.c_row = 15;
  refused(call, "rows of 16 columns lie 15 apart");
}

}  // namespace
}  // namespace trireme::kernels
