#include "trireme/kernels/layer_norm.h"

#include "trireme/base/error.h"
#include "trireme/kernels/row_test.h"

namespace trireme::kernels {
namespace {

class LayerNormTest : public EachIsa {};
TRIREME_EACH_ISA(LayerNormTest);

// A forward and a backward pass, fast and by the reference, from the same inputs, which are exact in T.
template <class T>
struct Case {
  int64_t rows, H;
  Guarded<T> x, dy, y, dx;
  Guarded<float> gamma, beta, mean, rstd, dgamma, dbeta;
  bool affine = true;

  Case(int64_t rows, int64_t H, float offset = 0)
      : rows(rows),
        H(H),
        x(shifted(normal(rows * H, 1), offset)),
        dy(normal(rows * H, 2)),
        y(rows * H),
        dx(rows * H),
        gamma(normal(H, 3)),
        beta(normal(H, 4)),
        mean(rows),
        rstd(rows),
        dgamma(H, 7),
        dbeta(H, 7) {}

  static std::vector<float> shifted(std::vector<float> x, float offset) {
    for (float& each : x) each += offset;
    return x;
  }

  LayerNormForward<T> forward() {
    return {.x = x.data(),
            .gamma = affine ? gamma.data() : nullptr,
            .beta = affine ? beta.data() : nullptr,
            .y = y.data(),
            .mean = mean.data(),
            .rstd = rstd.data(),
            .rows = rows,
            .H = H,
            .eps = 1e-5f};
  }
  LayerNormBackward<T> backward() {
    return {.dy = dy.data(),
            .x = x.data(),
            .mean = mean.data(),
            .rstd = rstd.data(),
            .gamma = affine ? gamma.data() : nullptr,
            .dx = dx.data(),
            .dgamma = affine ? dgamma.data() : nullptr,
            .dbeta = affine ? dbeta.data() : nullptr,
            .rows = rows,
            .H = H};
  }

  // Errors: of the mean, sum_error(H) * max|x|; of the variance, relative, sum_error(H), and rstd has half of it. So n = (x
  // - mean) * rstd errs by sum_error(H) * (max|x| * rstd + |n|). A few roundings more come after it. Backward, the two means
  // of g err by sum_error(H) * max|g| and max|g n|.
  void check() {
    Case<float> expected(rows, H);
    expected.affine = affine;
    std::vector<float> wide = x.values(), wide_dy = dy.values();
    std::copy(wide.begin(), wide.end(), expected.x.data());
    std::copy(wide_dy.begin(), wide_dy.end(), expected.dy.data());
    layer_norm_forward(forward());
    layer_norm_forward_ref(expected.forward());
    double most_rstd = max_abs(expected.rstd.values()), most_g = affine ? max_abs(gamma.values()) : 1;
    double most_normal = std::sqrt(H) + 1;  // |n| <= sqrt(H) for every row
    double error = sum_error(H) * (max_abs(wide) * most_rstd + std::min(most_normal, 6.0)) +
                   4 * kUnit * (max_abs(wide) * most_rstd + 6);
    expect_close(mean.values(), expected.mean.values(), sum_error(H) * max_abs(wide), kUnit, "mean");
    expect_close(rstd.values(), expected.rstd.values(), 2 * sum_error(H) * most_rstd, 2 * kUnit, "rstd");
    expect_close(y.values(), expected.y.values(), most_g * error, kRounding<T>, "y");

    std::vector<float> m = mean.values(), s = rstd.values();
    std::copy(m.begin(), m.end(), expected.mean.data());
    std::copy(s.begin(), s.end(), expected.rstd.data());
    layer_norm_backward(backward());
    layer_norm_backward_ref(expected.backward());
    double most_dy = max_abs(wide_dy), normals = std::min(most_normal, 6.0), g = most_g * most_dy;
    expect_close(dx.values(), expected.dx.values(), most_rstd * g * (2 * sum_error(H) + 8 * kUnit) * (1 + normals * normals),
                 kRounding<T>, "dx");
    if (!affine) return;
    expect_close(dgamma.values(), expected.dgamma.values(),
                 4 * sum_error(rows) * rows * most_dy * (normals + max_abs(wide) * most_rstd), 0, "dgamma");
    expect_close(dbeta.values(), expected.dbeta.values(), 4 * sum_error(rows) * rows * most_dy, 0, "dbeta");
  }
};

TEST_P(LayerNormTest, AgreesWithReferenceAtEverySize) {
  for (int64_t H : {1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 312, 384, 1000})
    for (int64_t rows : {0, 1, 7, 33}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, H " << H);
      Case<float>(rows, H).check();
      Case<bfloat16>(rows, H).check();
    }
}

TEST_P(LayerNormTest, ManyRowsGoThroughManyChunks) { Case<float>(9000, 24).check(); }

TEST_P(LayerNormTest, WithoutParameters) {
  for (int64_t H : {5, 384}) {
    Case<float> single(9, H);
    single.affine = false;
    single.check();
    Case<bfloat16> half(9, H);
    half.affine = false;
    half.check();
  }
}

// E[x^2] - mean^2 would have no correct digit here.
TEST_P(LayerNormTest, VarianceSurvivesALargeMean) { Case<float>(5, 384, 10000).check(); }

TEST_P(LayerNormTest, ConstantRows) {
  Guarded<float> x(3 * 40, 2), y(3 * 40), rstd(3);
  layer_norm_forward<float>({.x = x.data(), .y = y.data(), .rstd = rstd.data(), .rows = 3, .H = 40, .eps = 0.25f});
  EXPECT_THAT(y.values(), testing::Each(0));
  EXPECT_THAT(rstd.values(), testing::Each(2));
}

TEST_P(LayerNormTest, InPlace) {
  for (int64_t H : {37, 400}) {
    Case<bfloat16> apart(6, H), over_y(6, H), over_x(6, H);
    layer_norm_forward(apart.forward());
    layer_norm_backward(apart.backward());

    LayerNormBackward<bfloat16> backward = over_y.backward();
    layer_norm_forward(over_y.forward());
    backward.dx = over_y.dy.data();
    layer_norm_backward(backward);
    EXPECT_EQ(over_y.dy.values(), apart.dx.values());

    layer_norm_forward(over_x.forward());
    backward = over_x.backward();
    backward.dx = over_x.x.data();
    layer_norm_backward(backward);
    EXPECT_EQ(over_x.x.values(), apart.dx.values());

    LayerNormForward<bfloat16> forward = over_y.forward();
    forward.y = over_y.x.data();
    layer_norm_forward(forward);
    EXPECT_EQ(over_y.x.values(), apart.y.values());
  }
}

TEST_P(LayerNormTest, NanStaysInItsRow) {
  Case<float> c(3, 50);
  c.x.data()[50 + 49] = kNan;
  layer_norm_forward(c.forward());
  layer_norm_backward(c.backward());
  for (int64_t i = 0; i < 150; ++i) {
    EXPECT_EQ(std::isnan(c.y.data()[i]), i / 50 == 1) << i;
    EXPECT_EQ(std::isnan(c.dx.data()[i]), i / 50 == 1) << i;
  }
  for (float each : c.dgamma.values()) EXPECT_TRUE(std::isnan(each));
  for (float each : c.dbeta.values()) EXPECT_FALSE(std::isnan(each));
}

TEST_P(LayerNormTest, SameBitsForAnyNumberOfThreads) {
  for (int64_t rows : {40, 3000})
    expect_same_for_any_threads([&] {
      Case<float> c(rows, 100);
      layer_norm_forward(c.forward());
      layer_norm_backward(c.backward());
      return joined({c.y.values(), c.dx.values(), c.dgamma.values(), c.dbeta.values()});
    });
}

// Differences of y, which is rounded to fp32: 1e-7 / 1e-2 for each of few elements, and 1e-2 squared times a third
// derivative.
TEST(LayerNormReference, BackwardIsTheDerivative) {
  const int64_t rows = 3, H = 5;
  Case<float> c(rows, H);
  auto loss = [&] {
    layer_norm_forward_ref(c.forward());
    return dot(c.y.values(), c.dy.values());
  };
  loss();
  layer_norm_backward_ref(c.backward());
  expect_derivative(loss, c.x.data(), rows * H, c.dx.values(), 1e-2, 2e-3);
  expect_derivative(loss, c.gamma.data(), H, c.dgamma.values(), 1e-2, 1e-4);
  expect_derivative(loss, c.beta.data(), H, c.dbeta.values(), 1e-2, 1e-4);
}

TEST(LayerNorm, RefusesShapes) {
  EXPECT_THROW(layer_norm_forward<float>({.rows = 3, .H = 0}), InvalidArgument);
  EXPECT_THROW(layer_norm_backward<float>({.rows = -1, .H = 8}), InvalidArgument);
}

}  // namespace
}  // namespace trireme::kernels
