// The operators from C++, without Python: results and gradients against the same composed of at:: operations.
#include "trireme/torch_ext/ops/ops.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>

namespace trireme::ops {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensors&)>;

constexpr int64_t kTokens = 21, kHeads = 3, kSize = 8, kH = kHeads * kSize;
constexpr double kEps = 1e-5;
// Both sides compute in fp32, through sums of at most 40 terms, one after another at most 5 times: 200 roundings of 2^-24.
constexpr double kTolerance = 200.0 / (1 << 24);

Tensor bounds() { return at::tensor(std::vector<int64_t>{0, 7, 8, kTokens}); }

Tensors random(const std::vector<std::vector<int64_t>>& shapes) {
  at::manual_seed(3);
  Tensors tensors;
  for (const auto& shape : shapes) {
    double scale = shape.size() == 2 && shape[0] != kTokens ? 1 / std::sqrt(static_cast<double>(shape[1])) : 1;
    tensors.push_back((at::randn(shape) * scale).requires_grad_());
  }
  return tensors;
}

// The result, then the gradient of each input.
Tensors run(const Function& function, const Tensors& inputs, const Tensor& weight) {
  Tensor y = function(inputs);
  Tensors results{y.detach()};
  for (Tensor& gradient : torch::autograd::grad({y}, inputs, {weight})) results.push_back(gradient);
  return results;
}

void expect_same(const Function& ours, const Function& composed, const Tensors& inputs) {
  Tensor weight = at::randn(composed(inputs).sizes());
  Tensors actual = run(ours, inputs, weight), expected = run(composed, inputs, weight);
  double largest = 0;
  for (const Tensor& each : expected) largest = std::max(largest, each.norm().item<double>());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes()) << i;
    // The gradient of the keys' bias is 0 in theory; there is only the largest to compare it with.
    double norm = expected[i].norm().item<double>(), scale = norm < 1e-4 * largest ? largest : norm;
    EXPECT_LE((actual[i] - expected[i]).norm().item<double>(), kTolerance * scale) << (i == 0 ? "y" : "gradient ") << i;
  }
}

Tensor composed_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
  Tensor bound = bounds();
  Tensors parts;
  for (int64_t i = 0; i + 1 < bound.numel(); ++i) {
    int64_t begin = bound[i].item<int64_t>(), length = bound[i + 1].item<int64_t>() - begin;
    auto part = [&](const Tensor& x) { return x.narrow(0, begin, length).transpose(0, 1); };
    parts.push_back(at::matmul(at::softmax(at::matmul(part(q), part(k).mT()) * scale, -1), part(v)).transpose(0, 1));
  }
  return at::cat(parts);
}

Tensor composed_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  return at::layer_norm(x, {kH}, gamma, beta, kEps);
}

TEST(Ops, Attention) {
  std::vector<int64_t> shape{kTokens, kHeads, kSize};
  expect_same([](const Tensors& in) { return attention(in[0], in[1], in[2], bounds(), std::nullopt, 0.3, false, 0); },
              [](const Tensors& in) { return composed_attention(in[0], in[1], in[2], 0.3); }, random({shape, shape, shape}));
}

TEST(Ops, SelfAttentionBlock) {
  std::vector<std::vector<int64_t>> shapes{{kTokens, kH}};
  for (int i = 0; i < 4; ++i) shapes.insert(shapes.end(), {{kH, kH}, {kH}});
  shapes.insert(shapes.end(), {{kH}, {kH}});
  expect_same(
      [](const Tensors& in) {
        return self_attention_block(in[0], at::TensorList(in).slice(1), bounds(), kHeads, 0, 0, kEps);
      },
      [](const Tensors& in) {
        auto heads = [&](int i) { return at::linear(in[0], in[i], in[i + 1]).view({kTokens, kHeads, kSize}); };
        Tensor context = composed_attention(heads(1), heads(3), heads(5), 1 / std::sqrt(double{kSize}));
        return composed_norm(in[0] + at::linear(context.reshape({kTokens, kH}), in[7], in[8]), in[9], in[10]);
      },
      random(shapes));
}

TEST(Ops, FeedForwardBlock) {
  expect_same([](const Tensors& in) { return feed_forward_block(in[0], at::TensorList(in).slice(1), true, 0, kEps); },
              [](const Tensors& in) {
                Tensor inner = at::gelu(at::linear(in[0], in[1], in[2]), "tanh");
                return composed_norm(in[0] + at::linear(inner, in[3], in[4]), in[5], in[6]);
              },
              random({{kTokens, kH}, {40, kH}, {40}, {kH, 40}, {kH}, {kH}, {kH}}));
}

TEST(Ops, ResidualAndLayerNorm) {
  expect_same([](const Tensors& in) { return bias_dropout_residual_layer_norm(in[0], in[1], in[2], in[3], in[4], 0, kEps); },
              [](const Tensors& in) { return composed_norm(in[0] + in[1] + in[2], in[3], in[4]); },
              random({{kTokens, kH}, {kH}, {kTokens, kH}, {kH}, {kH}}));
}

TEST(Ops, Embedding) {
  Tensor ids = at::arange(kTokens).remainder(5), places = at::arange(kTokens).remainder(7);
  expect_same(
      [&](const Tensors& in) {
        return embedding({.ids = ids, .weight = in[0], .padding_idx = 1}, {.ids = places, .weight = in[1]}, {}, in[2], in[3],
                         0, kEps);
      },
      [&](const Tensors& in) {
        return composed_norm(at::embedding(in[0], ids, /*padding_idx=*/1) + at::embedding(in[1], places), in[2], in[3]);
      },
      random({{30, kH}, {7, kH}, {kH}, {kH}}));
}

TEST(Ops, SpanLoss) {
  Tensor start = at::tensor(std::vector<int64_t>{2, 0, 40}), end = at::tensor(std::vector<int64_t>{6, 0, 12});
  expect_same([&](const Tensors& in) { return span_loss(in[0], bounds(), start, end); },
              [&](const Tensors& in) {
                Tensor first = in[0].slice(0, 0, 7), second = in[0].slice(0, 7, 8), third = in[0].slice(0, 8);
                auto loss = [](const Tensor& logits, int column, int64_t place) {
                  return -at::log_softmax(logits.select(1, column), 0)[place];
                };
                // The third answer starts beyond its window.
                return (loss(first, 0, 2) + loss(second, 0, 0)) / 4 +
                       (loss(first, 1, 6) + loss(second, 1, 0) + loss(third, 1, 12)) / 6;
              },
              random({{kTokens, 2}}));
}

TEST(Ops, DropoutHasOneMaskInBothPasses) {
  Tensor x = at::ones({50, 40}).requires_grad_();
  at::manual_seed(1);
  Tensor y = dropout(x, 0.25);
  Tensor gradient = torch::autograd::grad({y.sum()}, {x})[0];
  EXPECT_TRUE(at::equal(gradient, y.detach()));
  EXPECT_NEAR(y.count_nonzero().item<double>(), 1500, 5 * std::sqrt(2000 * 0.25 * 0.75));
  EXPECT_FALSE(at::equal(dropout(x, 0.25), y));
  at::manual_seed(1);
  EXPECT_TRUE(at::equal(dropout(x, 0.25), y));
}

TEST(Ops, AutocastReachesCallsFromCpp) {
  std::vector<int64_t> shape{kTokens, kHeads, kSize};
  Tensors in = random({shape, shape, shape});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  Tensor y = attention(in[0], in[1], in[2], bounds(), std::nullopt, 0.3, false, 0);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(torch::autograd::grad({y.sum()}, {in[0]})[0].scalar_type(), at::kFloat);
}

TEST(Ops, WrongArgumentsAreNamed) {
  try {
    layer_norm(at::ones({3, 8}), at::ones({7}), std::nullopt, kEps);
    ADD_FAILURE() << "accepted";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer_norm: gamma is [7]; it must be [8]"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme::ops
