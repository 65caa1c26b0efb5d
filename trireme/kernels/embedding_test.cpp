#include "trireme/kernels/embedding.h"

#include "trireme/base/error.h"
#include "trireme/kernels/row_test.h"

namespace trireme::kernels {
namespace {

class EmbeddingTest : public EachIsa {};
TRIREME_EACH_ISA(EmbeddingTest);

std::vector<int64_t> random_ids(int64_t n, int64_t size, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) id = static_cast<int64_t>(generator() % size);
  return ids;
}

constexpr int64_t kWords = 60, kPositions = 20, kTypes = 2;  // words repeat in 100 rows, as they do in a text

template <class T>
struct Case {
  int64_t rows, H;
  Dropout dropout;
  std::vector<int64_t> word_ids, position_ids, type_ids;
  Guarded<float> words, positions, types, gamma, beta, mean, rstd, dz, dgamma, dbeta, dwords, dpositions, dtypes;
  Guarded<T> y, dy;
  bool optional = true;  // position, type, gamma and beta are there
  int64_t padding_idx = -1;

  Case(int64_t rows, int64_t H, double p)
      : rows(rows),
        H(H),
        dropout(make_dropout(p, 8)),
        word_ids(random_ids(rows, kWords, 1)),
        position_ids(random_ids(rows, kPositions, 2)),
        type_ids(random_ids(rows, kTypes, 3)),
        words(normal(kWords * H, 4)),
        positions(normal(kPositions * H, 5)),
        types(normal(kTypes * H, 6)),
        gamma(normal(H, 7)),
        beta(normal(H, 8)),
        mean(rows),
        rstd(rows),
        dz(rows * H),
        dgamma(H, 7),
        dbeta(H, 7),
        dwords(kWords * H, 0.5f),
        dpositions(kPositions * H, 0.5f),
        dtypes(kTypes * H, 0.5f),
        y(rows * H),
        dy(normal(rows * H, 9)) {}

  EmbeddingInput input() {
    return {.word = {words.data(), kWords, word_ids.data()},
            .position = {optional ? positions.data() : nullptr, kPositions, position_ids.data()},
            .type = {optional ? types.data() : nullptr, kTypes, type_ids.data()},
            .rows = rows,
            .H = H};
  }
  EmbeddingForward<T> forward() {
    return {.input = input(),
            .gamma = optional ? gamma.data() : nullptr,
            .beta = optional ? beta.data() : nullptr,
            .y = y.data(),
            .mean = mean.data(),
            .rstd = rstd.data(),
            .dropout = dropout};
  }
  EmbeddingBackward<T> backward() {
    return {.input = input(),
            .dy = dy.data(),
            .mean = mean.data(),
            .rstd = rstd.data(),
            .gamma = optional ? gamma.data() : nullptr,
            .dz = dz.data(),
            .dgamma = dgamma.data(),
            .dbeta = dbeta.data(),
            .word = {dwords.data(), padding_idx},
            .position = {dpositions.data(), padding_idx},
            .type = {dtypes.data(), padding_idx},
            .dropout = dropout};
  }
  std::vector<float> gradients() {
    return joined({dz.values(), dgamma.values(), dbeta.values(), dwords.values(), dpositions.values(), dtypes.values()});
  }

  // LayerNorm's errors are derived in layer_norm_test.cpp, for a row x; here x is z. Small H makes rows with little
  // variance, so the bounds scale with rstd. A table's gradient errs by what its rows err, and by the rounding of adding
  // them up.
  void check() {
    SCOPED_TRACE(testing::Message() << rows << " rows, H " << H << ", threshold " << dropout.threshold << ", padding "
                                    << padding_idx);
    Case<float> expected(rows, H, 0);
    expected.dropout = dropout;
    expected.optional = optional;
    expected.padding_idx = padding_idx;
    std::vector<float> wide = dy.values();
    std::copy(wide.begin(), wide.end(), expected.dy.data());

    embedding_forward(forward());
    embedding_forward_ref(expected.forward());
    const double normals = std::min(std::sqrt(H) + 1, 6.0), most_z = 15, most_gamma = 4, scale = dropout.scale;
    double most_rstd = max_abs(expected.rstd.values());
    double error_n = (sum_error(H) + 4 * kUnit) * (most_z * most_rstd + normals);
    expect_close(mean.values(), expected.mean.values(), sum_error(H) * most_z, kUnit, "mean");
    expect_close(y.values(), expected.y.values(), scale * most_gamma * error_n, kRounding<T>, "y");

    embedding_backward(backward());
    embedding_backward_ref(expected.backward());
    double most_dy = scale * 5, error_dz = 4 * most_rstd * most_gamma * most_dy * error_n * (1 + normals);
    expect_close(dz.values(), expected.dz.values(), error_dz, 0, "dz");
    double error_sum = rows * (error_dz + 4 * sum_error(rows) * max_abs(expected.dz.values())) + kUnit;
    expect_close(dwords.values(), expected.dwords.values(), error_sum, kUnit, "word");
    expect_close(dpositions.values(), expected.dpositions.values(), error_sum, kUnit, "position");
    expect_close(dtypes.values(), expected.dtypes.values(), error_sum, kUnit, "type");
    expect_close(dgamma.values(), expected.dgamma.values(), rows * most_dy * (error_n + 4 * sum_error(rows) * normals),
                 kUnit, "dgamma");
    expect_close(dbeta.values(), expected.dbeta.values(), 4 * sum_error(rows) * rows * most_dy, kUnit, "dbeta");
  }
};

TEST_P(EmbeddingTest, AgreesWithReferenceAtEverySize) {
  for (double p : {0.0, 0.2})
    for (int64_t H : {3, 15, 16, 17, 64, 128, 131, 384})
      for (int64_t rows : {0, 1, 100}) {
        Case<float>(rows, H, p).check();
        Case<bfloat16>(rows, H, p).check();
      }
}

TEST_P(EmbeddingTest, WordsAlone) {
  Case<float> c(50, 70, 0.1);
  c.optional = false;
  c.check();
  EXPECT_THAT(c.dpositions.values(), testing::Each(0.5f));
}

TEST_P(EmbeddingTest, PaddingGetsNoGradient) {
  Case<float> c(200, 40, 0.1);
  c.padding_idx = 1;
  c.check();
  for (Guarded<float>* gradient : {&c.dwords, &c.dpositions, &c.dtypes})
    for (int64_t i = 40; i < 80; ++i) EXPECT_EQ(gradient->data()[i], 0.5f);
}

// Sums by another order would differ in the last bits: this is the order that embedding.h promises.
TEST_P(EmbeddingTest, OneIdIsAddedInRowOrder) {
  const int64_t rows = 3000, H = 24;
  Case<float> c(rows, H, 0.1);
  std::fill(c.word_ids.begin(), c.word_ids.end(), 11);
  embedding_forward(c.forward());
  embedding_backward(c.backward());
  for (int64_t i = 0; i < H; ++i) {
    float sum = 0.5f;
    for (int64_t row = 0; row < rows; ++row) sum += c.dz.data()[row * H + i];
    EXPECT_EQ(c.dwords.data()[11 * H + i], sum);
  }
}

TEST_P(EmbeddingTest, SameBitsForAnyNumberOfThreads) {
  for (int64_t rows : {100, 3000})
    expect_same_for_any_threads([&] {
      Case<float> c(rows, 384, 0.1);
      embedding_forward(c.forward());
      embedding_backward(c.backward());
      return joined({c.y.values(), c.gradients()});
    });
}

TEST_P(EmbeddingTest, NanStaysInItsRows) {
  Case<float> c(50, 30, 0);
  c.words.data()[c.word_ids[4] * 30 + 29] = kNan;
  embedding_forward(c.forward());
  embedding_backward(c.backward());
  for (int64_t row = 0; row < 50; ++row)
    for (int64_t i = 0; i < 30; ++i) {
      EXPECT_EQ(std::isnan(c.y.data()[row * 30 + i]), c.word_ids[row] == c.word_ids[4]);
      EXPECT_EQ(std::isnan(c.dz.data()[row * 30 + i]), c.word_ids[row] == c.word_ids[4]);
    }
}

// As in layer_norm_test.cpp; a word stands in several rows.
TEST(EmbeddingReference, BackwardIsTheDerivative) {
  const int64_t rows = 6, H = 5;
  Case<float> c(rows, H, 0.3);
  for (int64_t& id : c.word_ids) id %= 3;
  for (Guarded<float>* gradient : {&c.dwords, &c.dpositions, &c.dtypes})
    std::fill_n(gradient->data(), gradient->size(), 0.0f);
  auto loss = [&] {
    embedding_forward_ref(c.forward());
    return dot(c.y.values(), c.dy.values());
  };
  loss();
  embedding_backward_ref(c.backward());
  expect_derivative(loss, c.words.data(), 4 * H, c.dwords.values(), 1e-2, 5e-3);
  expect_derivative(loss, c.positions.data(), kPositions * H, c.dpositions.values(), 1e-2, 5e-3);
  expect_derivative(loss, c.types.data(), kTypes * H, c.dtypes.values(), 1e-2, 5e-3);
  expect_derivative(loss, c.gamma.data(), H, c.dgamma.values(), 1e-2, 1e-4);
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Embedding, NamesAnIdThatIsNotInItsTable) {
  Case<float> c(10, 8, 0);
  c.type_ids[7] = kTypes;
  EXPECT_EQ(message_of([&] { embedding_forward(c.forward()); }),
            "embedding: the type id at position 7 is 2; the table has rows 0 to 1");
  EXPECT_THAT(c.y.values(), testing::Each(0));
  c.word_ids[3] = -1;
  EXPECT_EQ(message_of([&] { embedding_backward(c.backward()); }),
            "embedding: the word id at position 3 is -1; the table has rows 0 to 59");
  EXPECT_THAT(c.dwords.values(), testing::Each(0.5f));
  EXPECT_THAT(c.dgamma.values(), testing::Each(7));
}

TEST(Embedding, RefusesShapes) {
  EXPECT_THROW(embedding_forward<float>({.input = {.rows = 0, .H = 8}}), InvalidArgument);
  float weight = 0;
  EXPECT_THROW(embedding_forward<float>({.input = {.word = {&weight, 1, nullptr}, .rows = -1, .H = 8}}), InvalidArgument);
}

}  // namespace
}  // namespace trireme::kernels
