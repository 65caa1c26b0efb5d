// Speed of the embeddings by type, shape and ISA level: BERT's tables, words distributed as in a text (Zipf), dropout of
// 0.1. Bytes: rows of the word table and y forward; dy, rows of the word table, dz twice and rows of the gradient twice
// backward.
#include "trireme/kernels/embedding.h"
#include "trireme/kernels/row_bench.h"

namespace trireme::kernels {
namespace {

constexpr int64_t kWords = 30522, kPositions = 512, kTypes = 2, kLength = 161;

std::vector<int64_t> zipf_ids(int64_t n) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> draw(0, std::log(kWords));
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) id = static_cast<int64_t>(std::exp(draw(generator))) - 1;
  return ids;
}

template <class T>
struct Buffers {
  Shape shape;
  int64_t n = shape.rows * shape.H;
  std::vector<int64_t> words = zipf_ids(shape.rows), positions = std::vector<int64_t>(shape.rows), types = positions;
  std::vector<float> word = random_floats(kWords * shape.H, 2), position = random_floats(kPositions * shape.H, 3),
                     type = random_floats(kTypes * shape.H, 4), gamma = random_floats(shape.H, 5),
                     beta = random_floats(shape.H, 6), mean = std::vector<float>(shape.rows),
                     rstd = std::vector<float>(shape.rows), dz = std::vector<float>(n), dgamma = std::vector<float>(shape.H),
                     dbeta = std::vector<float>(shape.H), dword = std::vector<float>(word.size()),
                     dposition = std::vector<float>(position.size()), dtype = std::vector<float>(type.size());
  std::vector<T> y = std::vector<T>(n), dy = random_row_values<T>(n, 7);
  Dropout dropout = make_dropout(0.1, 1);

  explicit Buffers(Shape shape) : shape(shape) {
    for (int64_t row = 0; row < shape.rows; ++row) positions[row] = row % kLength, types[row] = row % kLength > 20;
  }
  EmbeddingInput input() {
    return {{word.data(), kWords, words.data()},
            {position.data(), kPositions, positions.data()},
            {type.data(), kTypes, types.data()},
            shape.rows,
            shape.H};
  }
  EmbeddingForward<T> forward() {
    return {input(), gamma.data(), beta.data(), y.data(), mean.data(), rstd.data(), 1e-5f, dropout};
  }
  EmbeddingBackward<T> backward() {
    return {input(),       dy.data(),    mean.data(),       rstd.data(),        gamma.data(),   dz.data(),
            dgamma.data(), dbeta.data(), {dword.data(), 0}, {dposition.data()}, {dtype.data()}, dropout};
  }
};

// bf16 rounds what it writes: its answers are the tests' business.
bool right(Buffers<bfloat16>&) { return true; }
bool right(Buffers<float>& timed) {
  Buffers<float> fast(timed.shape), expected(timed.shape);
  embedding_forward(fast.forward());
  embedding_backward(fast.backward());
  embedding_forward_ref(expected.forward());
  embedding_backward_ref(expected.backward());
  return agrees(fast.y, expected.y) && agrees(fast.dword, expected.dword) && agrees(fast.dposition, expected.dposition) &&
         agrees(fast.dtype, expected.dtype);
}

template <class T>
void register_type() {
  for (Shape shape : {kShapes[0], kShapes[2]}) {
    int64_t n = shape.rows * shape.H, forward_bytes = n * (4 + sizeof(T)), backward_bytes = n * (sizeof(T) + 5 * 4);
    std::string name = std::string(type_name<T>()) + "/" + shape_name(shape);
    register_per_isa("embedding/forward/" + name, [=](benchmark::State& state) {
      Buffers<T> buffers(shape);
      measure(
          state, forward_bytes, [&] { embedding_forward(buffers.forward()); }, [&] { return right(buffers); });
    });
    register_per_isa("embedding/backward/" + name, [=](benchmark::State& state) {
      Buffers<T> buffers(shape);
      embedding_forward(buffers.forward());
      measure(
          state, backward_bytes, [&] { embedding_backward(buffers.backward()); }, [&] { return right(buffers); });
    });
  }
}

const bool registered = (register_type<float>(), register_type<bfloat16>(), true);

}  // namespace
}  // namespace trireme::kernels
