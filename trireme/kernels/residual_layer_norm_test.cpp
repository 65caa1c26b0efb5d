#include "trireme/kernels/residual_layer_norm.h"

#include "trireme/base/error.h"
#include "trireme/kernels/bias_dropout_residual.h"
#include "trireme/kernels/layer_norm.h"
#include "trireme/kernels/row_test.h"

namespace trireme::kernels {
namespace {

class ResidualLayerNormTest : public EachIsa {};
TRIREME_EACH_ISA(ResidualLayerNormTest);

template <class T>
struct Case {
  int64_t rows, H;
  Dropout dropout;
  Guarded<T> x, residual, z, y, dy, dz, dx;
  Guarded<float> bias, gamma, beta, mean, rstd, dbias, dgamma, dbeta;
  bool optional = true;  // bias, residual, gamma and beta are there

  Case(int64_t rows, int64_t H, double p)
      : rows(rows),
        H(H),
        dropout(make_dropout(p, 6)),
        x(normal(rows * H, 1)),
        residual(normal(rows * H, 2)),
        z(rows * H),
        y(rows * H),
        dy(normal(rows * H, 3)),
        dz(rows * H),
        dx(rows * H),
        bias(normal(H, 4)),
        gamma(normal(H, 5)),
        beta(normal(H, 6)),
        mean(rows),
        rstd(rows),
        dbias(H, 7),
        dgamma(H, 7),
        dbeta(H, 7) {}

  ResidualLayerNormForward<T> forward() {
    return {.x = x.data(),
            .bias = optional ? bias.data() : nullptr,
            .residual = optional ? residual.data() : nullptr,
            .gamma = optional ? gamma.data() : nullptr,
            .beta = optional ? beta.data() : nullptr,
            .z = z.data(),
            .y = y.data(),
            .mean = mean.data(),
            .rstd = rstd.data(),
            .rows = rows,
            .H = H,
            .dropout = dropout};
  }
  ResidualLayerNormBackward<T> backward() {
    return {.dy = dy.data(),
            .z = z.data(),
            .mean = mean.data(),
            .rstd = rstd.data(),
            .gamma = optional ? gamma.data() : nullptr,
            .dz = dz.data(),
            .dx = dx.data(),
            .dbias = dbias.data(),
            .dgamma = dgamma.data(),
            .dbeta = dbeta.data(),
            .rows = rows,
            .H = H,
            .dropout = dropout};
  }
  std::vector<float> outputs() {
    return joined({z.values(), y.values(), mean.values(), rstd.values(), dz.values(), dx.values(), dbias.values(),
                   dgamma.values(), dbeta.values()});
  }
};

// The kernels that it is made of, which have tests of their own against their references, do the same operations in the same
// order: every bit must agree.
template <class T>
std::vector<float> by_parts(int64_t rows, int64_t H, double p, bool optional) {
  Case<T> c(rows, H, p);
  c.optional = optional;
  auto f = c.forward();
  auto b = c.backward();
  bias_dropout_residual_forward<T>(
      {.x = f.x, .bias = f.bias, .residual = f.residual, .z = f.z, .rows = rows, .H = H, .dropout = f.dropout});
  layer_norm_forward<T>({.x = f.z,
                         .gamma = f.gamma,
                         .beta = f.beta,
                         .y = f.y,
                         .mean = f.mean,
                         .rstd = f.rstd,
                         .rows = rows,
                         .H = H,
                         .eps = f.eps});
  layer_norm_backward<T>({.dy = b.dy,
                          .x = b.z,
                          .mean = b.mean,
                          .rstd = b.rstd,
                          .gamma = b.gamma,
                          .dx = b.dz,
                          .dgamma = b.dgamma,
                          .dbeta = b.dbeta,
                          .rows = rows,
                          .H = H});
  bias_dropout_residual_backward<T>({.dz = b.dz, .dx = b.dx, .dbias = b.dbias, .rows = rows, .H = H, .dropout = b.dropout});
  return c.outputs();
}

template <class T>
void check_against_parts(int64_t rows, int64_t H, double p, bool optional) {
  Case<T> c(rows, H, p);
  c.optional = optional;
  residual_layer_norm_forward(c.forward());
  residual_layer_norm_backward(c.backward());
  EXPECT_EQ(c.outputs(), by_parts<T>(rows, H, p, optional)) << rows << " rows, H " << H << ", p " << p;
}

TEST_P(ResidualLayerNormTest, IsItsParts) {
  for (double p : {0.0, 0.2})
    for (int64_t H : {2, 15, 16, 17, 127, 128, 129, 384, 1000})
      for (int64_t rows : {0, 1, 33}) {
        check_against_parts<float>(rows, H, p, true);
        check_against_parts<bfloat16>(rows, H, p, true);
        check_against_parts<float>(rows, H, p, false);
      }
}

// Forward as derived in layer_norm_test.cpp, with z wrong by 3 roundings more; |gamma|, |dy|, |z| < 6 and 0.2 < rstd < 5
// here.
TEST_P(ResidualLayerNormTest, AgreesWithReference) {
  for (double p : {0.0, 0.2}) {
    Case<float> c(40, 312, p), expected(40, 312, p);
    residual_layer_norm_forward(c.forward());
    residual_layer_norm_backward(c.backward());
    residual_layer_norm_forward_ref(expected.forward());
    residual_layer_norm_backward_ref(expected.backward());
    double error = 100 * sum_error(312);
    for (auto [fast, exact] : {std::pair{&c.y, &expected.y}, {&c.dz, &expected.dz}, {&c.dx, &expected.dx}})
      expect_close(fast->values(), exact->values(), error, 0, "activations");
    for (auto [fast, exact] :
         {std::pair{&c.dbias, &expected.dbias}, {&c.dgamma, &expected.dgamma}, {&c.dbeta, &expected.dbeta}})
      expect_close(fast->values(), exact->values(), error, sum_error(40), "sums");
  }
}

TEST_P(ResidualLayerNormTest, InPlace) {
  const int64_t rows = 35, H = 141;
  for (double p : {0.0, 0.2}) {
    Case<bfloat16> apart(rows, H, p), over(rows, H, p);
    residual_layer_norm_forward(apart.forward());
    residual_layer_norm_backward(apart.backward());
    auto forward = over.forward();
    forward.z = over.x.data();
    residual_layer_norm_forward(forward);
    EXPECT_EQ(over.y.values(), apart.y.values());
    EXPECT_EQ(over.x.values(), apart.z.values());
    auto backward = over.backward();
    backward.z = over.x.data();
    backward.dz = over.dy.data();
    backward.dx = p == 0 ? over.dy.data() : over.x.data();
    residual_layer_norm_backward(backward);
    EXPECT_EQ(over.dy.values(), apart.dz.values());
    EXPECT_EQ((p == 0 ? over.dy : over.x).values(), apart.dx.values());
    EXPECT_EQ(over.dbias.values(), apart.dbias.values());
    EXPECT_EQ(over.dgamma.values(), apart.dgamma.values());
  }
}

TEST_P(ResidualLayerNormTest, WithoutTheResidualsGradient) {
  for (double p : {0.0, 0.2}) {
    Case<float> both(35, 141, p), one(35, 141, p);
    residual_layer_norm_forward(both.forward());
    residual_layer_norm_backward(both.backward());
    residual_layer_norm_forward(one.forward());
    auto backward = one.backward();
    backward.dz = nullptr;
    residual_layer_norm_backward(backward);
    EXPECT_EQ(one.dx.values(), both.dx.values());
    EXPECT_EQ(one.dbias.values(), both.dbias.values());
  }
}

TEST_P(ResidualLayerNormTest, NanStaysInItsRow) {
  Case<float> c(3, 50, 0.1);
  c.residual.data()[50 + 49] = kNan;
  residual_layer_norm_forward(c.forward());
  residual_layer_norm_backward(c.backward());
  for (int64_t i = 0; i < 150; ++i) {
    EXPECT_EQ(std::isnan(c.y.data()[i]), i / 50 == 1) << i;
    EXPECT_EQ(std::isnan(c.dz.data()[i]), i / 50 == 1) << i;
  }
}

TEST_P(ResidualLayerNormTest, SameBitsForAnyNumberOfThreads) {
  expect_same_for_any_threads([] {
    Case<float> c(2000, 100, 0.1);
    residual_layer_norm_forward(c.forward());
    residual_layer_norm_backward(c.backward());
    return c.outputs();
  });
}

// As in layer_norm_test.cpp.
TEST(ResidualLayerNormReference, BackwardIsTheDerivative) {
  Case<float> c(3, 5, 0.3);
  auto loss = [&] {
    residual_layer_norm_forward_ref(c.forward());
    return dot(c.y.values(), c.dy.values());
  };
  loss();
  residual_layer_norm_backward_ref(c.backward());
  expect_derivative(loss, c.x.data(), 15, c.dx.values(), 1e-2, 2e-3);
  expect_derivative(loss, c.bias.data(), 5, c.dbias.values(), 1e-2, 2e-3);
  expect_derivative(loss, c.residual.data(), 15, c.dz.values(), 1e-2, 2e-3);
  expect_derivative(loss, c.gamma.data(), 5, c.dgamma.values(), 1e-2, 1e-4);
}

TEST(ResidualLayerNorm, RefusesShapesAndAliases) {
  EXPECT_THROW(residual_layer_norm_forward<float>({.rows = 3, .H = 0}), InvalidArgument);
  EXPECT_THROW(residual_layer_norm_backward<float>({.rows = -1, .H = 8}), InvalidArgument);
  Case<float> c(2, 8, 0.1);
  auto forward = c.forward();
  forward.y = c.z.data();
  EXPECT_THROW(residual_layer_norm_forward(forward), InvalidArgument);
  auto backward = c.backward();
  backward.dx = c.dz.data();
  EXPECT_THROW(residual_layer_norm_backward(backward), InvalidArgument);
}

}  // namespace
}  // namespace trireme::kernels
