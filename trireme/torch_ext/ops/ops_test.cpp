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

void expect_refused(const std::string& message, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "accepted, without \"" << message << '"';
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << message << "\nis not in\n" << error.what();
  }
}

Tensors block_weights(const std::vector<std::vector<int64_t>>& shapes) {
  Tensors weights;
  for (const auto& shape : shapes) weights.push_back(at::ones(shape));
  return weights;
}

Tensors self_attention_weights() {
  return block_weights({{kH, kH}, {kH}, {kH, kH}, {kH}, {kH, kH}, {kH}, {kH, kH}, {kH}, {kH}, {kH}});
}
Tensors feed_forward_weights() { return block_weights({{40, kH}, {40}, {kH, 40}, {kH}, {kH}, {kH}}); }

TEST(Ops, WrongArgumentsAreNamed) {
  const Tensor x = at::ones({3, 8}), ids = at::zeros({3}, at::kLong);
  expect_refused("layer_norm: gamma is [7]; it must be [8]", [&] { layer_norm(x, at::ones({7}), std::nullopt, kEps); });
  expect_refused("layer_norm: beta: Double is not supported",
                 [&] { layer_norm(x, std::nullopt, at::ones({8}, at::kDouble), kEps); });
  expect_refused("bias_gelu: the bias is [8, 1]; it must be [8]", [&] { bias_gelu(x, at::ones({8, 1}), false); });
  expect_refused("bias_dropout_residual: the residual is [2, 8]", [&] {
    bias_dropout_residual(x, std::nullopt, at::ones({2, 8}), 0);
  });
  expect_refused("embedding: there is a word id 5; the table has rows 0 to 4", [&] {
    embedding({.ids = ids + 5, .weight = at::ones({5, 8})}, {}, {}, std::nullopt, std::nullopt, 0, kEps);
  });
  expect_refused("embedding: gamma is [7]; it must be [8]", [&] {
    embedding({.ids = ids, .weight = at::ones({5, 8})}, {}, {}, at::ones({7}), std::nullopt, 0, kEps);
  });
  expect_refused("span_loss: positions are [2] of Long; there must be 3", [&] {
    span_loss(at::ones({kTokens, 2}), bounds(), at::zeros({2}, at::kLong), at::zeros({3}, at::kLong));
  });
}

TEST(Ops, AProbabilityLiesBetween0And1) {
  const Tensor q = at::ones({kTokens, kHeads, kSize}), x = at::ones({kTokens, kH}), ids = at::zeros({0}, at::kLong);
  for (double p : {-0.1, 2.0, std::nan("")}) {
    const std::string end = c10::str(": the dropout probability is ", p, "; it must lie between 0 and 1");
    expect_refused("attention" + end, [&] { attention(q, q, q, bounds(), std::nullopt, 1, false, p); });
    for (bool is_first : {false, true})
      expect_refused("self_attention_block" + end, [&] {
        self_attention_block(x, self_attention_weights(), bounds(), kHeads, is_first ? p : 0, is_first ? 0 : p, kEps);
      });
    expect_refused("feed_forward_block" + end, [&] { feed_forward_block(x, feed_forward_weights(), false, p, kEps); });
    expect_refused("bias_dropout_residual_layer_norm" + end,
                   [&] { bias_dropout_residual_layer_norm(x, std::nullopt, x, std::nullopt, std::nullopt, p, kEps); });
    expect_refused("bias_dropout_residual" + end, [&] { bias_dropout_residual(x, std::nullopt, x, p); });
    expect_refused("dropout" + end, [&] { dropout(x, p); });
    expect_refused("embedding" + end, [&] {
      embedding({.ids = ids, .weight = at::ones({5, kH})}, {}, {}, std::nullopt, std::nullopt, p, kEps);
    });
  }
}

TEST(Ops, WrongBoundsAreNamed) {
  const Tensor q = at::ones({kTokens, kHeads, kSize}), x = at::ones({kTokens, kH}), logits = at::ones({kTokens, 2});
  const auto expect_all_refuse = [&](const std::string& message, const Tensor& cu_seqlens) {
    const Tensor places = at::zeros({std::max<int64_t>(cu_seqlens.numel() - 1, 0)}, at::kLong);
    expect_refused("attention" + message, [&] { attention(q, q, q, cu_seqlens, std::nullopt, 1, false, 0); });
    expect_refused("self_attention_block" + message, [&] { self_attention_block(x, self_attention_weights(), cu_seqlens, kHeads, 0, 0, kEps); });
    expect_refused("span_loss" + message, [&] { span_loss(logits, cu_seqlens, places, places); });
  };
  const auto vector = [](const std::vector<int64_t>& elements) { return at::tensor(elements); };
  for (const Tensor& no_vector : {bounds().to(at::kInt), bounds().unsqueeze(0), vector({})})
    expect_all_refuse(": cu_seqlens must be a contiguous vector of int64", no_vector);
  expect_all_refuse(": cu_seqlens goes from 0 to 20, but there are 21 tokens", vector({0, 20}));
  expect_all_refuse(": cu_seqlens goes from 1 to 21, but there are 21 tokens", vector({1, kTokens}));
  expect_all_refuse(": cu_seqlens goes from -5 to 21, but there are 21 tokens", vector({-5, kTokens}));
  expect_all_refuse(": sequence 1 is empty", vector({0, 7, 7, kTokens}));
  expect_all_refuse(": sequence 1 ends before it begins", vector({0, 100, kTokens}));
}

TEST(Ops, WrongShapesOfAttentionAreNamed) {
  const Tensor q = at::ones({kTokens, kHeads, kSize});
  const auto attend = [](const Tensor& query, const Tensor& key, const std::optional<Tensor>& bias = std::nullopt) {
    return [=] { attention(query, key, key, bounds(), bias, 1, false, 0); };
  };
  expect_refused("attention: q, k and v must be [tokens, heads, head_size]", attend(q[0], q));
  expect_refused("tokens and head_size must be the same", attend(q, q.narrow(0, 0, 20)));
  expect_refused("tokens and head_size must be the same", attend(q, q.narrow(2, 0, 4)));
  expect_refused("attention: q, k and v must have one type", attend(q, q.to(at::kBFloat16)));
  expect_refused("attention: 3 heads cannot share 2 key heads", attend(q, q.narrow(1, 0, 2)));
  expect_refused("attention: a bias of [1, 1, 12, 13] does not fit", attend(q, q, at::ones({1, 1, 12, 13})));
  expect_refused("attention: the bias must be float32", attend(q, q, at::ones({1, 1, 13, 13}, at::kDouble)));
}

// Each weight of a block, longer and shorter than it must be, of other dimensions, and of another type.
void expect_weights_are_checked(const std::string& op, const Tensors& weights, const std::vector<std::string>& names,
                                const std::function<void(const Tensors&)>& block) {
  ASSERT_EQ(weights.size(), names.size());
  block(weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto with = [&](const Tensor& wrong) {
      Tensors changed = weights;
      changed[i] = wrong;
      return [=] { block(changed); };
    };
    const Tensor& right = weights[i];
    const std::string shape = op + ": " + names[i] + " is ";
    // W_1 says how wide the inner layer is: another height is the fault of its bias.
    const std::string of_height = names[i] == "W_1" ? op + ": b_1 is " : shape;
    expect_refused(of_height, with(at::cat({right, right})));
    expect_refused(of_height, with(right.narrow(0, 0, 1)));
    if (right.dim() == 2) expect_refused(shape, with(right.narrow(1, 0, 1)));
    expect_refused(shape, with(right.unsqueeze(0)));
    expect_refused(shape, with(at::ones({}, at::kFloat)));
    expect_refused(op + ": " + names[i] + ": Double is not supported", with(right.to(at::kDouble)));
    if (right.dim() == 2) expect_refused(shape + "BFloat16 and x Float", with(right.to(at::kBFloat16)));
  }
  expect_refused(op + ": 1 weights were given", [&] { block({weights[0]}); });
  expect_refused(op + ": a weight is undefined", [&] { block(Tensors(weights.size())); });
}

TEST(Ops, WrongWeightsOfBlocksAreNamed) {
  const Tensor x = at::ones({kTokens, kH});
  expect_weights_are_checked(
      "self_attention_block", self_attention_weights(),
      {"W_q", "b_q", "W_k", "b_k", "W_v", "b_v", "W_o", "b_o", "gamma", "beta"},
      [&](const Tensors& weights) { self_attention_block(x, weights, bounds(), kHeads, 0, 0, kEps); });
  expect_weights_are_checked("feed_forward_block", feed_forward_weights(), {"W_1", "b_1", "W_2", "b_2", "gamma", "beta"},
                             [&](const Tensors& weights) { feed_forward_block(x, weights, false, 0, kEps); });
  expect_refused("a hidden size of 24 cannot be divided into 5 heads",
                 [&] { self_attention_block(x, self_attention_weights(), bounds(), 5, 0, 0, kEps); });
  expect_refused("feed_forward_block: x must be [tokens, hidden]; it has 1 dimensions",
                 [&] { feed_forward_block(x[0], feed_forward_weights(), false, 0, kEps); });
}

}  // namespace
}  // namespace trireme::ops
