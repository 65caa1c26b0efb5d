#include "trireme/kernels/bias_gelu.h"

#include <cstring>

#include "trireme/base/error.h"
#include "trireme/kernels/row_test.h"

namespace trireme::kernels {
namespace {

class BiasGeluTest : public EachIsa {};
TRIREME_EACH_ISA(BiasGeluTest);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The errors that bias_gelu.h promises.
constexpr double kForwardError = 1.0 / (1 << 22), kBackwardError = 1.0 / (1 << 21);

template <class T>
struct Case {
  int64_t rows, H;
  Gelu form;
  Guarded<T> x, y, dy, dx, y_again;
  Guarded<float> bias, dbias;
  bool has_bias = true;

  Case(int64_t rows, int64_t H, Gelu form)
      : rows(rows),
        H(H),
        form(form),
        x(normal(rows * H, 1, 2)),
        y(rows * H),
        dy(normal(rows * H, 2)),
        dx(rows * H),
        y_again(rows * H),
        bias(normal(H, 3)),
        dbias(H, 7) {}

  BiasGeluForward<T> forward() {
    return {.x = x.data(), .bias = has_bias ? bias.data() : nullptr, .y = y.data(), .rows = rows, .H = H, .form = form};
  }
  BiasGeluBackward<T> backward() {
    return {.dy = dy.data(),
            .x = x.data(),
            .bias = has_bias ? bias.data() : nullptr,
            .dx = dx.data(),
            .y = y_again.data(),
            .dbias = dbias.data(),
            .rows = rows,
            .H = H,
            .form = form};
  }

  // x + bias is rounded once; the derivative is below 1.2 and its own derivative below 1.
  void check() {
    SCOPED_TRACE(testing::Message() << rows << " rows, H " << H << ", form " << static_cast<int>(form));
    Case<float> expected(rows, H, form);
    expected.has_bias = has_bias;
    for (auto [from, to] : {std::pair{&x, &expected.x}, {&dy, &expected.dy}}) {
      std::vector<float> wide = from->values();
      std::copy(wide.begin(), wide.end(), to->data());
    }
    bias_gelu_forward(forward());
    bias_gelu_forward_ref(expected.forward());
    double most_x = max_abs(x.values()) + max_abs(bias.values()) + 1, most_dy = max_abs(dy.values());
    expect_close(y.values(), expected.y.values(), (kForwardError + 1.2 * kUnit) * most_x, kRounding<T>, "y");
    bias_gelu_backward(backward());
    bias_gelu_backward_ref(expected.backward());
    double error = (kBackwardError + kUnit * most_x) * most_dy;
    EXPECT_EQ(y_again.values(), y.values()) << "forward and backward";
    expect_close(dx.values(), expected.dx.values(), error, kRounding<T> + kUnit, "dx");
    expect_close(dbias.values(), expected.dbias.values(), rows * (error + 4 * sum_error(rows) * 1.2 * most_dy), 0, "dbias");
  }
};

TEST_P(BiasGeluTest, AgreesWithReferenceAtEverySize) {
  for (Gelu form : {Gelu::erf, Gelu::tanh})
    for (int64_t H : {1, 3, 15, 16, 17, 64, 129, 1000})
      for (int64_t rows : {0, 1, 33}) {
        Case<float>(rows, H, form).check();
        Case<bfloat16>(rows, H, form).check();
      }
}

TEST_P(BiasGeluTest, WithoutBias) {
  for (Gelu form : {Gelu::erf, Gelu::tanh}) {
    Case<float> c(5, 77, form);
    c.has_bias = false;
    c.check();
  }
}

// Every 4096th from -15 to 15, and tiny numbers, each element against its own bound.
TEST_P(BiasGeluTest, AccurateEverywhere) {
  std::vector<float> points;
  for (double x = -15; x <= 15; x += 1.0 / 4096) points.push_back(static_cast<float>(x));
  for (float x = 1e-38f; x < 1; x *= 3) points.insert(points.end(), {x, -x});
  for (float x = 16; x < 1e38f; x *= 3) points.insert(points.end(), {x, -x});
  const int64_t n = static_cast<int64_t>(points.size());
  std::vector<float> ones(n, 1), y(n), y_again(n), dx(n), exact_y(n), exact_dx(n);
  for (Gelu form : {Gelu::erf, Gelu::tanh}) {
    bias_gelu_forward<float>({.x = points.data(), .y = y.data(), .rows = 1, .H = n, .form = form});
    bias_gelu_forward_ref({.x = points.data(), .y = exact_y.data(), .rows = 1, .H = n, .form = form});
    bias_gelu_backward<float>({.dy = ones.data(), .x = points.data(), .dx = dx.data(), .y = y_again.data(), .rows = 1, .H = n, .form = form});
    EXPECT_EQ(y_again, y);
    std::vector<float> near = points;  // the reference's own x^3 overflows for what is far out
    for (float& x : near) x = std::max(-1e10f, std::min(1e10f, x));
    bias_gelu_backward_ref({.dy = ones.data(), .x = near.data(), .dx = exact_dx.data(), .rows = 1, .H = n, .form = form});
    for (int64_t i = 0; i < n; ++i) {
      double bound = kForwardError * std::max(1.0f, std::abs(points[i]));
      ASSERT_LE(std::abs(double{y[i]} - exact_y[i]), bound) << "gelu(" << points[i] << "), form " << static_cast<int>(form);
      ASSERT_LE(std::abs(double{dx[i]} - exact_dx[i]), kBackwardError)
          << "gelu'(" << points[i] << "), form " << static_cast<int>(form);
    }
  }
}

// Small x is where most activations lie: gelu is x / 2 there, and keeps its digits.
TEST_P(BiasGeluTest, RelativelyAccurateNearZero) {
  for (Gelu form : {Gelu::erf, Gelu::tanh})
    for (float x : {1e-30f, -1e-30f, 1e-6f, -1e-6f, 0.01f, -0.01f}) {
      float y, exact;
      bias_gelu_forward<float>({.x = &x, .y = &y, .rows = 1, .H = 1, .form = form});
      bias_gelu_forward_ref({.x = &x, .y = &exact, .rows = 1, .H = 1, .form = form});
      EXPECT_NEAR(y / exact, 1, kForwardError * 2) << x;
    }
}

TEST_P(BiasGeluTest, NanAndInfinity) {
  for (Gelu form : {Gelu::erf, Gelu::tanh}) {
    std::vector<float> x = {kNan, kInfinity, -kInfinity, 0}, y(4), dx(4), dy(4, 1), y_again(4);
    bias_gelu_forward<float>({.x = x.data(), .y = y.data(), .rows = 1, .H = 4, .form = form});
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], kInfinity);
    EXPECT_TRUE(std::isnan(y[2])) << y[2];
    EXPECT_EQ(y[3], 0);
    bias_gelu_backward<float>({.dy = dy.data(), .x = x.data(), .dx = dx.data(), .y = y_again.data(), .rows = 1, .H = 4, .form = form});
    EXPECT_EQ(std::memcmp(y_again.data(), y.data(), sizeof(float) * 4), 0);
    EXPECT_TRUE(std::isnan(dx[0]));
    EXPECT_EQ(dx[1], 1);
    EXPECT_NEAR(dx[2], 0, 1e-20);
    EXPECT_NEAR(dx[3], 0.5, kBackwardError);
  }
}

TEST_P(BiasGeluTest, InPlace) {
  Case<bfloat16> apart(5, 141, Gelu::erf), over_y(5, 141, Gelu::erf), over_x(5, 141, Gelu::erf);
  bias_gelu_forward(apart.forward());
  bias_gelu_backward(apart.backward());
  auto backward = over_y.backward();
  backward.dx = over_y.dy.data();
  bias_gelu_backward(backward);
  EXPECT_EQ(over_y.dy.values(), apart.dx.values());
  backward = over_x.backward();
  backward.dx = over_x.x.data();
  bias_gelu_backward(backward);
  EXPECT_EQ(over_x.x.values(), apart.dx.values());
  EXPECT_EQ(over_x.y_again.values(), apart.y.values());
  Case<bfloat16> y_over_x(5, 141, Gelu::erf);
  backward = y_over_x.backward();
  backward.dx = y_over_x.dy.data();
  backward.y = y_over_x.x.data();
  bias_gelu_backward(backward);
  EXPECT_EQ(y_over_x.dy.values(), apart.dx.values());
  EXPECT_EQ(y_over_x.x.values(), apart.y.values());
  auto forward = over_y.forward();
  forward.y = over_y.x.data();
  bias_gelu_forward(forward);
  EXPECT_EQ(over_y.x.values(), apart.y.values());
}

TEST_P(BiasGeluTest, SameBitsForAnyNumberOfThreads) {
  expect_same_for_any_threads([] {
    Case<float> c(2000, 100, Gelu::erf);
    bias_gelu_forward(c.forward());
    bias_gelu_backward(c.backward());
    return joined({c.y.values(), c.dx.values(), c.dbias.values()});
  });
}

// Central differences of y, rounded to fp32, with steps of 1e-2: errors of 1e-5 from rounding, 1e-4 from the third
// derivative, per row.
TEST(BiasGeluReference, BackwardIsTheDerivative) {
  for (Gelu form : {Gelu::erf, Gelu::tanh}) {
    Case<float> c(4, 6, form);
    auto loss = [&] {
      bias_gelu_forward_ref(c.forward());
      return dot(c.y.values(), c.dy.values());
    };
    bias_gelu_backward_ref(c.backward());
    expect_derivative(loss, c.x.data(), 24, c.dx.values(), 1e-2, 5e-4);
    expect_derivative(loss, c.bias.data(), 6, c.dbias.values(), 1e-2, 2e-3);
  }
}

TEST(BiasGelu, RefusesShapes) {
  EXPECT_THROW(bias_gelu_forward<float>({.rows = 3, .H = 0}), InvalidArgument);
  EXPECT_THROW(bias_gelu_backward<float>({.rows = -1, .H = 8}), InvalidArgument);
}

}  // namespace
}  // namespace trireme::kernels
