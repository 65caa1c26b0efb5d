// The embeddings of a transformer: word, position and type, LayerNorm, dropout, in one pass over memory. Tables, parameters,
// statistics and gradients are float; y is T, float or bfloat16. The mask as in dropout.h, stream 0.
#pragma once

#include <cstdint>

#include "trireme/base/float16.h"
#include "trireme/kernels/dropout.h"

namespace trireme::kernels {

struct EmbeddingTable {
  const float* weight = nullptr;  // [size, H]; null: there is no such table
  int64_t size = 0;
  const int64_t* ids = nullptr;  // [rows]
};

struct EmbeddingInput {
  EmbeddingTable word = {};      // always there
  EmbeddingTable position = {};  // may be absent
  EmbeddingTable type = {};      // may be absent
  int64_t rows = 0;
  int64_t H = 0;
};

// z = word[ids] + position[ids] + type[ids]; y = dropout(LayerNorm(z)). z is not stored.
template <class T>
struct EmbeddingForward {
  EmbeddingInput input = {};
  const float* gamma = nullptr;  // [H]; null: 1
  const float* beta = nullptr;   // [H]; null: 0
  T* y = nullptr;                // [rows, H]
  float* mean = nullptr;         // [rows]; null: not wanted
  float* rstd = nullptr;         // [rows]; null: not wanted
  float eps = 1e-5f;
  Dropout dropout = {};
};

struct EmbeddingTableGradient {
  float* sum = nullptr;      // [size, H]; what is found is added to it; null: not wanted
  int64_t padding_idx = -1;  // rows with this id add nothing; -1: there is none
};

// The gradients of all parameters. Every sum has the same bits for any number of threads: rows of one id are added in row
// order by one thread, or, where a table has few ids, in chunks that depend on the number of rows alone.
template <class T>
struct EmbeddingBackward {
  EmbeddingInput input = {};     // as it was forward
  const T* dy = nullptr;         // [rows, H]
  const float* mean = nullptr;   // [rows], from forward
  const float* rstd = nullptr;   // [rows], from forward
  const float* gamma = nullptr;  // [H]; null: 1
  float* dz = nullptr;      // [rows, H], written: the gradient of each row's sum, from which the tables' gradients are made
  float* dgamma = nullptr;  // [H], written; null: not wanted
  float* dbeta = nullptr;   // [H], written; null: not wanted
  EmbeddingTableGradient word = {}, position = {}, type = {};
  Dropout dropout = {};
};

// For T = float and bfloat16. InvalidArgument, before anything is written, for an id that is not in its table, a missing
// word table, or unless rows >= 0 and H >= 1.
template <class T>
void embedding_forward(const EmbeddingForward<T>& call);
template <class T>
void embedding_backward(const EmbeddingBackward<T>& call);

void embedding_forward_ref(const EmbeddingForward<float>& call);
void embedding_backward_ref(const EmbeddingBackward<float>& call);

}  // namespace trireme::kernels
