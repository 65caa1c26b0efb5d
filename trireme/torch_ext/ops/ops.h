// The operators, for C++; torch.ops.trireme.* are the same. All have gradients unless said otherwise. Sequences are packed:
// tokens lie end to end, [T, ...], and cu_seqlens (int64, one more than there are sequences) says where each begins.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

namespace trireme::ops {

#pragma GCC visibility push(default)

// softmax(scale q k^T + bias) v of each sequence. q: [T, heads, D], k and v: [T, kv_heads, D]; bias: float32, [sequences or
// 1, heads or 1, longest or 1, longest], without a gradient.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& cu_seqlens,
                     const std::optional<at::Tensor>& bias, double scale, bool causal, double dropout_p);

// The first half of an encoder layer, for x: [T, H]:
//   LayerNorm(x + dropout(W_o attention(W_q x + b_q, W_k x + b_k, W_v x + b_v) + b_o))
// weights: W_q, b_q, W_k, b_k, W_v, b_v, W_o, b_o, gamma, beta, as nn.Linear and nn.LayerNorm hold them.
at::Tensor self_attention_block(const at::Tensor& x, at::TensorList weights, const at::Tensor& cu_seqlens, int64_t heads,
                                double attention_p, double hidden_p, double eps);

// The second half: LayerNorm(x + dropout(W_2 gelu(W_1 x + b_1) + b_2)). weights: W_1, b_1, W_2, b_2, gamma, beta.
at::Tensor feed_forward_block(const at::Tensor& x, at::TensorList weights, bool tanh, double hidden_p, double eps);

// ---- Operators over rows: x has any leading dimensions, its last one is the row, H elements. float32 or bfloat16; the
// parameters are [H] of either type, and those that are optional may be absent. ----

// (x - mean) / sqrt(variance + eps) * gamma + beta, of each row.
at::Tensor layer_norm(const at::Tensor& x, const std::optional<at::Tensor>& gamma, const std::optional<at::Tensor>& beta,
                      double eps);

// gelu(x + bias), by erf or by tanh.
at::Tensor bias_gelu(const at::Tensor& x, const std::optional<at::Tensor>& bias, bool tanh);

// LayerNorm(dropout(x + bias) + residual). The residual is shaped like x.
at::Tensor bias_dropout_residual_layer_norm(const at::Tensor& x, const std::optional<at::Tensor>& bias,
                                            const std::optional<at::Tensor>& residual,
                                            const std::optional<at::Tensor>& gamma, const std::optional<at::Tensor>& beta,
                                            double p, double eps);

// dropout(x + bias) + residual.
at::Tensor bias_dropout_residual(const at::Tensor& x, const std::optional<at::Tensor>& bias,
                                 const std::optional<at::Tensor>& residual, double p);

// x where it is kept, scaled by 1 / (1 - p), else 0. x itself where p is 0.
at::Tensor dropout(const at::Tensor& x, double p);

// ---- The ends of a model ----

// A table of embeddings and which of its rows are wanted. Rows of `padding_idx` get no gradient; -1: there is none.
struct Embedding {
  std::optional<at::Tensor> ids;     // int64 or int32, broadcast to the words' shape
  std::optional<at::Tensor> weight;  // [size, H]
  int64_t padding_idx = -1;
};

// dropout(LayerNorm(word[ids] + position[ids] + type[ids])), in the word table's type; position and type may be absent. The
// tables' gradients are dense.
at::Tensor embedding(const Embedding& word, const Embedding& position, const Embedding& type,
                     const std::optional<at::Tensor>& gamma, const std::optional<at::Tensor>& beta, double p, double eps);

// The loss of extractive question answering: half the sum of the mean cross entropies of where the answers start and end,
// each a softmax over its sequence's own tokens. logits: [T, 2], of start and end; positions: int64, one per sequence,
// relative to it. One outside of its sequence does not count; NaN where none counts. float32, whatever the logits are.
at::Tensor span_loss(const at::Tensor& logits, const at::Tensor& cu_seqlens, const at::Tensor& start_positions,
                     const at::Tensor& end_positions);

#pragma GCC visibility pop

}  // namespace trireme::ops
