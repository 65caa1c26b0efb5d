// The operators, for C++; torch.ops.trireme.* are the same. All have gradients unless said otherwise. Sequences are packed:
// tokens lie end to end, [T, ...], and cu_seqlens (int64, one more than there are sequences) says where each begins.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

namespace trireme::ops {

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

}  // namespace trireme::ops
