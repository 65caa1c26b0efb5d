#include "trireme/kernels/bias_dropout_residual.h"

#include "trireme/base/error.h"
#include "trireme/kernels/row_test.h"

namespace trireme::kernels {
namespace {

class BiasDropoutResidualTest : public EachIsa {};
TRIREME_EACH_ISA(BiasDropoutResidualTest);

template <class T>
struct Case {
  int64_t rows, H;
  Dropout dropout;
  Guarded<T> x, residual, z, dz, dx;
  Guarded<float> bias, dbias;
  bool has_bias = true, has_residual = true;

  Case(int64_t rows, int64_t H, double p)
      : rows(rows),
        H(H),
        dropout(make_dropout(p, 5)),
        x(normal(rows * H, 1)),
        residual(normal(rows * H, 2)),
        z(rows * H),
        dz(normal(rows * H, 3)),
        dx(rows * H),
        bias(normal(H, 4)),
        dbias(H, 7) {}

  BiasDropoutResidualForward<T> forward() {
    return {.x = x.data(),
            .bias = has_bias ? bias.data() : nullptr,
            .residual = has_residual ? residual.data() : nullptr,
            .z = z.data(),
            .rows = rows,
            .H = H,
            .dropout = dropout};
  }
  BiasDropoutResidualBackward<T> backward() {
    return {.dz = dz.data(), .dx = dx.data(), .dbias = dbias.data(), .rows = rows, .H = H, .dropout = dropout};
  }

  // Three fp32 roundings of numbers below 2 * scale * (|x| + |bias|) + |residual|; dbias is a sum over rows.
  void check() {
    SCOPED_TRACE(testing::Message() << rows << " rows, H " << H << ", threshold " << dropout.threshold);
    Case<float> expected(rows, H, 0);
    expected.dropout = dropout;
    expected.has_bias = has_bias;
    expected.has_residual = has_residual;
    for (auto [from, to] : {std::pair{&x, &expected.x}, {&residual, &expected.residual}, {&dz, &expected.dz}}) {
      std::vector<float> wide = from->values();
      std::copy(wide.begin(), wide.end(), to->data());
    }
    bias_dropout_residual_forward(forward());
    bias_dropout_residual_forward_ref(expected.forward());
    double most = 2 * dropout.scale * (max_abs(x.values()) + max_abs(bias.values())) + max_abs(residual.values());
    expect_close(z.values(), expected.z.values(), 3 * kUnit * most, kRounding<T>, "z");

    bias_dropout_residual_backward(backward());
    bias_dropout_residual_backward_ref(expected.backward());
    expect_close(dx.values(), expected.dx.values(), 0, kUnit + kRounding<T>, "dx");
    double most_dx = max_abs(expected.dx.values());
    expect_close(dbias.values(), expected.dbias.values(), 4 * sum_error(rows) * rows * most_dx, 0, "dbias");
  }
};

TEST_P(BiasDropoutResidualTest, AgreesWithReferenceAtEverySize) {
  for (double p : {0.0, 0.2, 1.0})
    for (int64_t H : {1, 15, 16, 17, 127, 128, 129, 384, 1000})
      for (int64_t rows : {0, 1, 33}) {
        Case<float>(rows, H, p).check();
        Case<bfloat16>(rows, H, p).check();
      }
}

TEST_P(BiasDropoutResidualTest, WithoutBiasOrResidual) {
  for (double p : {0.0, 0.2})
    for (bool has_bias : {false, true}) {
      Case<float> c(9, 200, p);
      c.has_bias = has_bias;
      c.has_residual = !has_bias;
      c.check();
    }
}

TEST_P(BiasDropoutResidualTest, InPlace) {
  for (double p : {0.0, 0.2}) {
    Case<bfloat16> apart(5, 141, p), over_x(5, 141, p), over_residual(5, 141, p);
    bias_dropout_residual_forward(apart.forward());
    bias_dropout_residual_backward(apart.backward());
    auto forward = over_x.forward();
    forward.z = over_x.x.data();
    bias_dropout_residual_forward(forward);
    EXPECT_EQ(over_x.x.values(), apart.z.values());
    forward = over_residual.forward();
    forward.z = over_residual.residual.data();
    bias_dropout_residual_forward(forward);
    EXPECT_EQ(over_residual.residual.values(), apart.z.values());
    auto backward = over_x.backward();
    backward.dx = over_x.dz.data();
    bias_dropout_residual_backward(backward);
    EXPECT_EQ(over_x.dz.values(), apart.dx.values());
    EXPECT_EQ(over_x.dbias.values(), apart.dbias.values());
  }
}

TEST_P(BiasDropoutResidualTest, NanStaysNanWhereItIsKept) {
  Case<float> c(2, 150, 0.5);
  for (int64_t i = 0; i < 300; ++i) c.x.data()[i] = c.dz.data()[i] = kNan;
  bias_dropout_residual_forward(c.forward());
  bias_dropout_residual_backward(c.backward());
  for (uint32_t i = 0; i < 300; ++i) {
    EXPECT_EQ(std::isnan(c.z.data()[i]), keeps_ref(c.dropout, 0, i / 150, i % 150)) << i;
    EXPECT_EQ(std::isnan(c.dx.data()[i]), keeps_ref(c.dropout, 0, i / 150, i % 150)) << i;
  }
}

TEST_P(BiasDropoutResidualTest, SameBitsForAnyNumberOfThreads) {
  expect_same_for_any_threads([] {
    Case<float> c(2000, 100, 0.1);
    bias_dropout_residual_forward(c.forward());
    bias_dropout_residual_backward(c.backward());
    return joined({c.z.values(), c.dx.values(), c.dbias.values()});
  });
}

// z is linear in everything: only the rounding of z to fp32 is left.
TEST(BiasDropoutResidualReference, BackwardIsTheDerivative) {
  Case<float> c(4, 6, 0.4);
  auto loss = [&] {
    bias_dropout_residual_forward_ref(c.forward());
    return dot(c.z.values(), c.dz.values());
  };
  bias_dropout_residual_backward_ref(c.backward());
  expect_derivative(loss, c.x.data(), 24, c.dx.values(), 1e-2, 1e-4);
  expect_derivative(loss, c.bias.data(), 6, c.dbias.values(), 1e-2, 1e-4);
  expect_derivative(loss, c.residual.data(), 24, c.dz.values(), 1e-2, 1e-4);
}

TEST(BiasDropoutResidual, RefusesShapes) {
  EXPECT_THROW(bias_dropout_residual_forward<float>({.rows = 3, .H = 0}), InvalidArgument);
  EXPECT_THROW(bias_dropout_residual_backward<float>({.rows = -1, .H = 8}), InvalidArgument);
}

}  // namespace
}  // namespace trireme::kernels
