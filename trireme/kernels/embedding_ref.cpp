// Embeddings by the references of what they are made of, tables summed in double.
#include <initializer_list>
#include <vector>

#include "trireme/kernels/embedding.h"
#include "trireme/kernels/layer_norm.h"

namespace trireme::kernels {

namespace {

std::vector<float> embedded(const EmbeddingInput& input) {
  std::vector<float> z(input.rows * input.H);
  for (int64_t row = 0; row < input.rows; ++row)
    for (int64_t i = 0; i < input.H; ++i) {
      double sum = 0;
      for (const EmbeddingTable* table : {&input.word, &input.position, &input.type})
        if (table->weight) sum += table->weight[table->ids[row] * input.H + i];
      z[row * input.H + i] = sum;
    }
  return z;
}

void add_gradient(const EmbeddingTable& table, const EmbeddingTableGradient& gradient, const float* dz, int64_t rows,
                  int64_t H) {
  if (!table.weight || !gradient.sum) return;
  std::vector<double> sum(gradient.sum, gradient.sum + table.size * H);
  for (int64_t row = 0; row < rows; ++row)
    if (table.ids[row] != gradient.padding_idx)
      for (int64_t i = 0; i < H; ++i) sum[table.ids[row] * H + i] += dz[row * H + i];
  for (int64_t i = 0; i < table.size * H; ++i) gradient.sum[i] = sum[i];
}

}  // namespace

void embedding_forward_ref(const EmbeddingForward<float>& call) {
  const EmbeddingInput& input = call.input;
  std::vector<float> z = embedded(input);
  layer_norm_forward_ref({.x = z.data(),
                          .gamma = call.gamma,
                          .beta = call.beta,
                          .y = call.y,
                          .mean = call.mean,
                          .rstd = call.rstd,
                          .rows = input.rows,
                          .H = input.H,
                          .eps = call.eps});
  dropout_ref(call.y, call.y, input.rows, input.H, call.dropout);
}

void embedding_backward_ref(const EmbeddingBackward<float>& call) {
  const EmbeddingInput& input = call.input;
  std::vector<float> z = embedded(input), dropped(z.size());
  dropout_ref(call.dy, dropped.data(), input.rows, input.H, call.dropout);
  layer_norm_backward_ref({.dy = dropped.data(),
                           .x = z.data(),
                           .mean = call.mean,
                           .rstd = call.rstd,
                           .gamma = call.gamma,
                           .dx = call.dz,
                           .dgamma = call.dgamma,
                           .dbeta = call.dbeta,
                           .rows = input.rows,
                           .H = input.H});
  add_gradient(input.word, call.word, call.dz, input.rows, input.H);
  add_gradient(input.position, call.position, call.dz, input.rows, input.H);
  add_gradient(input.type, call.type, call.dz, input.rows, input.H);
}

}  // namespace trireme::kernels
