// Attention as the formula says, in double: every score of a row, then its softmax.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trireme/kernels/attention.h"

namespace trireme::kernels {

namespace {

struct Row {
  std::vector<double> probability;  // before dropout
  std::vector<double> kept;         // the scale of what dropout keeps, 0 elsewhere
  double largest, log_sum;
};

Row softmax_row(const AttentionShape& shape, int64_t sequence, int64_t head, int64_t query, Heads<const float> q,
                Heads<const float> k) {
  const int64_t begin = shape.cu_seqlens[sequence], length = shape.cu_seqlens[sequence + 1] - begin;
  const int64_t keys = shape.causal ? query + 1 : length, kv_head = head / (shape.heads / shape.kv_heads);
  Row row{std::vector<double>(keys), std::vector<double>(keys), 0, 0};
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t j = 0; j < keys; ++j) {
    double score = 0;
    for (int64_t d = 0; d < shape.head_size; ++d)
      score += double{q.at(begin + query, head)[d]} * double{k.at(begin + j, kv_head)[d]};
    score *= shape.scale;
    const AttentionBias& bias = shape.bias;
    if (bias.data)
      score += bias.data[sequence * bias.sequence_stride + head * bias.head_stride + query * bias.query_stride + j];
    row.probability[j] = score;
    largest = std::max(largest, score);
  }
  const double infinity = std::numeric_limits<double>::infinity();
  const bool sees_nothing =
      std::all_of(row.probability.begin(), row.probability.end(), [&](double score) { return score == -infinity; });
  if (sees_nothing) largest = infinity;
  for (double& each : row.probability) total += each = std::exp(each - largest);
  for (double& each : row.probability) each /= sees_nothing ? 1 : total;
  row.largest = largest;
  row.log_sum = sees_nothing ? 0 : std::log(total);
  for (int64_t j = 0; j < keys; ++j) {
    bool kept = keeps_ref(shape.dropout, static_cast<uint32_t>(head), static_cast<uint32_t>(begin + query),
                          static_cast<uint32_t>(j));
    row.kept[j] = kept ? shape.dropout.scale : 0;
  }
  return row;
}

template <class Body>
void for_each_row(const AttentionShape& shape, const Body& body) {
  for (int64_t sequence = 0; sequence < shape.sequences(); ++sequence)
    for (int64_t head = 0; head < shape.heads; ++head)
      for (int64_t query = 0; query < shape.cu_seqlens[sequence + 1] - shape.cu_seqlens[sequence]; ++query)
        body(sequence, head, query);
}

}  // namespace

void attention_forward_ref(const AttentionShape& shape, Heads<const float> q, Heads<const float> k, Heads<const float> v,
                           Heads<float> out, float* softmax) {
  for_each_row(shape, [&](int64_t sequence, int64_t head, int64_t query) {
    const Row row = softmax_row(shape, sequence, head, query, q, k);
    const int64_t begin = shape.cu_seqlens[sequence], kv_head = head / (shape.heads / shape.kv_heads);
    softmax[head * shape.tokens() + begin + query] = static_cast<float>(row.largest);
    softmax[(shape.heads + head) * shape.tokens() + begin + query] = static_cast<float>(row.log_sum);
    for (int64_t d = 0; d < shape.head_size; ++d) {
      double sum = 0;
      for (size_t j = 0; j < row.kept.size(); ++j)
        sum += row.probability[j] * row.kept[j] * double{v.at(begin + static_cast<int64_t>(j), kv_head)[d]};
      out.at(begin + query, head)[d] = static_cast<float>(sum);
    }
  });
}

void attention_backward_ref(const AttentionShape& shape, Heads<const float> q, Heads<const float> k, Heads<const float> v,
                            Heads<const float> out_gradient, AttentionGradients<float> gradients) {
  const int64_t size = shape.head_size;
  std::vector<double> dq(shape.tokens() * shape.heads * size), dk(shape.tokens() * shape.kv_heads * size), dv(dk.size());
  auto at = [&](std::vector<double>& x, int64_t token, int64_t head, int64_t heads) {
    return &x[(token * heads + head) * size];
  };
  for_each_row(shape, [&](int64_t sequence, int64_t head, int64_t query) {
    const Row row = softmax_row(shape, sequence, head, query, q, k);
    const int64_t begin = shape.cu_seqlens[sequence], kv_head = head / (shape.heads / shape.kv_heads);
    const int64_t keys = static_cast<int64_t>(row.kept.size());
    const float* gradient = out_gradient.at(begin + query, head);
    std::vector<double> dp(keys);
    double delta = 0;
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t d = 0; d < size; ++d) {
        dp[j] += double{gradient[d]} * double{v.at(begin + j, kv_head)[d]};
        at(dv, begin + j, kv_head, shape.kv_heads)[d] += row.probability[j] * row.kept[j] * double{gradient[d]};
      }
      dp[j] *= row.kept[j];
      delta += row.probability[j] * dp[j];
    }
    for (int64_t j = 0; j < keys; ++j) {
      double ds = row.probability[j] * (dp[j] - delta) * shape.scale;
      for (int64_t d = 0; d < size; ++d) {
        at(dq, begin + query, head, shape.heads)[d] += ds * double{k.at(begin + j, kv_head)[d]};
        at(dk, begin + j, kv_head, shape.kv_heads)[d] += ds * double{q.at(begin + query, head)[d]};
      }
    }
  });
  for (int64_t token = 0; token < shape.tokens(); ++token) {
    for (int64_t i = 0; i < shape.heads * size; ++i)
      gradients.q.at(token, i / size)[i % size] = static_cast<float>(dq[token * shape.heads * size + i]);
    for (int64_t i = 0; i < shape.kv_heads * size; ++i) {
      gradients.k.at(token, i / size)[i % size] = static_cast<float>(dk[token * shape.kv_heads * size + i]);
      gradients.v.at(token, i / size)[i % size] = static_cast<float>(dv[token * shape.kv_heads * size + i]);
    }
  }
}

}  // namespace trireme::kernels
