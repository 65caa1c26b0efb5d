#include "trireme/kernels/embedding.h"

#include <immintrin.h>

#include "trireme/base/error.h"
#include "trireme/cpu/isa.h"
#include "trireme/cpu/target_region.h"
#include "trireme/cpu/vector_types.h"
#include "trireme/kernels/rows.h"

namespace trireme::kernels {

#define TRIREME_BODY "trireme/kernels/embedding-inl.h"
#include "trireme/kernels/foreach_isa.h"

namespace {

// Tables up to this size (BERT has 2 types) are summed in chunks of rows: grouped by id there would be no work for more
// threads than ids.
constexpr int64_t kFewIds = 8;

void check_ids(const char* name, const EmbeddingTable& table, int64_t rows) {
  if (!table.weight) return;
  for (int64_t row = 0; row < rows; ++row)
    if (table.ids[row] < 0 || table.ids[row] >= table.size)
      throw InvalidArgument(str("embedding: the ", name, " id at position ", row, " is ", table.ids[row],
                                "; the table has rows 0 to ", table.size - 1));
}

void check(const EmbeddingInput& input) {
  check_shape("embedding", input.rows, input.H);
  if (!input.word.weight) throw InvalidArgument("embedding: there is no word table");
  check_ids("word", input.word, input.rows);
  check_ids("position", input.position, input.rows);
  check_ids("type", input.type, input.rows);
}

// Rows in the order of their ids, and among equal ids in their own: a counting sort, which is stable.
struct RowsById {
  std::vector<int64_t> rows;
  std::vector<int64_t> ends;  // of each id's rows

  RowsById(const EmbeddingTable& table, int64_t count) : rows(count), ends(table.size + 1) {
    for (int64_t row = 0; row < count; ++row) ++ends[table.ids[row] + 1];
    for (int64_t id = 0; id < table.size; ++id) ends[id + 1] += ends[id];
    for (int64_t row = 0; row < count; ++row) rows[ends[table.ids[row]]++] = row;
  }
};

// A thread takes the ids whose first row lies in its share of the sorted rows: shares are about equal, and no id has two
// threads.
void add_grouped(const EmbeddingTable& table, const EmbeddingTableGradient& gradient, const float* dz, int64_t rows,
                 int64_t H) {
  RowsById sorted(table, rows);
  auto sum_rows = TRIREME_AT_LEVEL(sum_named_rows);
  parallel_rows(rows, H, [&](int64_t begin, int64_t end) {
    int64_t at = begin;
    if (begin > 0 && table.ids[sorted.rows[begin - 1]] == table.ids[sorted.rows[begin]])
      at = sorted.ends[table.ids[sorted.rows[begin]]];
    while (at < end) {
      int64_t id = table.ids[sorted.rows[at]], next = sorted.ends[id];
      if (id != gradient.padding_idx) sum_rows(dz, &sorted.rows[at], next - at, gradient.sum + id * H, H);
      at = next;
    }
  });
}

void add_in_chunks(const EmbeddingTable& table, const EmbeddingTableGradient& gradient, const float* dz, int64_t rows,
                   int64_t H) {
  ColumnSums sums(rows, H, static_cast<int>(table.size));
  auto part = TRIREME_AT_LEVEL(sum_by_id);
  sums.add([&](int64_t begin, int64_t end, float* partial) {
    part(dz, table.ids, gradient.padding_idx, begin, end, partial, sums.stride(), H);
  });
  std::vector<float*> outputs;
  for (int64_t id = 0; id < table.size; ++id)
    outputs.push_back(id == gradient.padding_idx ? nullptr : gradient.sum + id * H);
  sums.add_to(outputs);
}

void add_gradient(const EmbeddingTable& table, const EmbeddingTableGradient& gradient, const float* dz, int64_t rows,
                  int64_t H) {
  if (!table.weight || !gradient.sum || rows == 0) return;
  if (table.size <= kFewIds)
    add_in_chunks(table, gradient, dz, rows, H);
  else
    add_grouped(table, gradient, dz, rows, H);
}

}  // namespace

template <class T>
void embedding_forward(const EmbeddingForward<T>& call) {
  const EmbeddingInput& input = call.input;
  check(input);
  RowOrConstant gamma(call.gamma, 1, input.H), beta(call.beta, 0, input.H);
  auto part = TRIREME_AT_LEVEL(embedding_rows<T>);
  parallel_rows(input.rows, input.H, [&](int64_t begin, int64_t end) {
    std::vector<float> z(input.H);
    part(call, gamma.data(), beta.data(), z.data(), begin, end);
  });
}

template <class T>
void embedding_backward(const EmbeddingBackward<T>& call) {
  const EmbeddingInput& input = call.input;
  check(input);
  RowOrConstant gamma(call.gamma, 1, input.H);
  ColumnSums sums(input.rows, input.H, 2);
  auto part = TRIREME_AT_LEVEL(embedding_backward_rows<T>);
  sums.add([&](int64_t begin, int64_t end, float* partial) {
    std::vector<float> z(input.H), dropped(input.H);
    part(call, gamma.data(), z.data(), dropped.data(), begin, end, partial, partial + sums.stride());
  });
  sums.write({call.dgamma, call.dbeta});
  add_gradient(input.word, call.word, call.dz, input.rows, input.H);
  add_gradient(input.position, call.position, call.dz, input.rows, input.H);
  add_gradient(input.type, call.type, call.dz, input.rows, input.H);
}

template void embedding_forward(const EmbeddingForward<float>&);
template void embedding_forward(const EmbeddingForward<bfloat16>&);
template void embedding_backward(const EmbeddingBackward<float>&);
template void embedding_backward(const EmbeddingBackward<bfloat16>&);

}  // namespace trireme::kernels
