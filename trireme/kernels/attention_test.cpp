#include "trireme/kernels/attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/kernels/kernel_test.h"

namespace trireme::kernels {
namespace {

class AttentionTest : public EachIsa {};
TRIREME_EACH_ISA(AttentionTest);

// One call's tensors: q, k and v in one matrix [T, (heads + 2 kv_heads) D], as a fused projection leaves them.
template <class T>
struct Call {
  Call(std::vector<int64_t> lengths, int64_t heads, int64_t kv_heads, int64_t size, uint32_t seed = 1) {
    cu_seqlens.push_back(0);
    for (int64_t length : lengths) cu_seqlens.push_back(cu_seqlens.back() + length);
    shape.cu_seqlens = cu_seqlens;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_size = size;
    shape.scale = 1 / std::sqrt(static_cast<float>(size));
    width = (heads + 2 * kv_heads) * size;
    qkv = draw(shape.tokens() * width, seed);
    out_gradient = draw(shape.tokens() * heads * size, seed + 1);
    out.resize(out_gradient.size());
    gradients.resize(qkv.size());
    softmax.resize(2 * heads * shape.tokens());
  }

  static std::vector<T> draw(int64_t n, uint32_t seed) {
    if constexpr (std::is_same_v<T, float>)
      return normal(n, seed);
    else
      return to_bfloat16(normal(n, seed));
  }

  template <class U>
  Heads<U> part(U* data, int64_t first_head) const {
    return {data + first_head * shape.head_size, width, shape.head_size};
  }
  Heads<const T> q() const { return part(qkv.data(), 0); }
  Heads<const T> k() const { return part(qkv.data(), shape.heads); }
  Heads<const T> v() const { return part(qkv.data(), shape.heads + shape.kv_heads); }
  template <class U>
  Heads<U> output(U* data) const {
    return {data, shape.heads * shape.head_size, shape.head_size};
  }
  AttentionGradients<T> gradient_parts() {
    return {part(gradients.data(), 0), part(gradients.data(), shape.heads),
            part(gradients.data(), shape.heads + shape.kv_heads)};
  }

  void run() {
    attention_forward<T>(shape, q(), k(), v(), output(out.data()), softmax.data());
    attention_backward<T>(shape, q(), k(), v(), output<const T>(out.data()), softmax.data(),
                          output<const T>(out_gradient.data()), gradient_parts());
  }
  void run_ref() {
    attention_forward_ref(shape, q(), k(), v(), output(out.data()), softmax.data());
    attention_backward_ref(shape, q(), k(), v(), output<const float>(out_gradient.data()), gradient_parts());
  }

  std::vector<int64_t> cu_seqlens;
  AttentionShape shape;
  int64_t width;
  std::vector<T> qkv, out, out_gradient, gradients;
  std::vector<float> softmax;
};

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (float each : x) sum += double{each} * double{each};
  return std::sqrt(sum);
}

void expect_close(const std::vector<float>& fast, const std::vector<float>& reference, double tolerance,
                  const std::string& what) {
  double largest = 0;
  for (size_t i = 0; i < fast.size(); ++i) {
    ASSERT_EQ(std::isnan(fast[i]), std::isnan(reference[i])) << what << " at " << i;
    largest = std::max(largest, std::abs(double{fast[i]} - double{reference[i]}));
  }
  // Every element is a sum of products whose absolute values add up to at most a few times the largest element's size here.
  EXPECT_LE(largest, tolerance * std::max(1.0, norm(reference) /
                                                   std::sqrt(static_cast<double>(std::max<size_t>(reference.size(), 1)))))
      << what;
}

// Scores are sums of D products of normal numbers times 1/sqrt(D), so |s| < 8: an error of 2 D eps |s| in s is a relative
// error in p; sums over S keys add at most S eps of relative error in the worst case and sqrt(S) eps typically. 2^-24 * 64
// covers all shapes here with a margin of about 4.
constexpr double kTolerance = 64.0 / (1 << 24);

void expect_matches_reference(Call<float> call, const std::string& what) {
  Call<float> reference = call;
  reference.shape.cu_seqlens = reference.cu_seqlens;
  call.shape.cu_seqlens = call.cu_seqlens;
  call.run();
  reference.run_ref();
  expect_close(call.out, reference.out, kTolerance, what + ": out");
  expect_close(call.softmax, reference.softmax, kTolerance, what + ": softmax");
  expect_close(call.gradients, reference.gradients, 4 * kTolerance, what + ": gradients");
}

TEST_P(AttentionTest, EveryHeadSize) {
  for (int64_t size : {1, 7, 16, 24, 32, 33, 48, 64, 80, 96, 128, 160})
    expect_matches_reference({{5, 33, 18}, 2, 2, size}, str("head size ", size));
}

TEST_P(AttentionTest, EveryLengthAroundTheBlocks) {
  for (int64_t length : {1, 2, 3, 15, 16, 17, 23, 24, 25, 47, 48, 49, 63, 64, 65, 127, 128, 129, 161, 257})
    expect_matches_reference({{length}, 1, 1, 32}, str("length ", length));
}

TEST_P(AttentionTest, LongSequence) { expect_matches_reference({{512, 1}, 1, 1, 64}, "length 512"); }

TEST_P(AttentionTest, Dropout) {
  Call<float> call({70, 1, 140}, 3, 3, 32);
  call.shape.dropout = make_dropout(0.25, 0xfeedbeef12345);
  expect_matches_reference(call, "dropout");
  call.shape.dropout = make_dropout(1, 5);
  expect_matches_reference(call, "everything dropped");
}

// Against the same projections with the biases added beforehand.
TEST_P(AttentionTest, BiasesOfTheProjections) {
  Call<float> call({70, 1, 140}, 4, 2, 40), reference = call;
  std::vector<float> biases = normal(call.width, 7), gradients(call.width), expected(call.width);
  call.shape.cu_seqlens = call.cu_seqlens;
  reference.shape.cu_seqlens = reference.cu_seqlens;
  const int64_t q_width = 160, kv_width = 80;
  call.shape.q_bias = biases.data();
  call.shape.k_bias = biases.data() + q_width;
  call.shape.v_bias = biases.data() + q_width + kv_width;
  for (size_t i = 0; i < reference.qkv.size(); ++i) reference.qkv[i] += biases[i % call.width];
  reference.run_ref();
  for (size_t i = 0; i < reference.gradients.size(); ++i) expected[i % call.width] += reference.gradients[i];

  attention_forward<float>(call.shape, call.q(), call.k(), call.v(), call.output(call.out.data()), call.softmax.data());
  AttentionGradients<float> parts = call.gradient_parts();
  parts.q_bias = gradients.data();
  parts.k_bias = gradients.data() + q_width;
  parts.v_bias = gradients.data() + q_width + kv_width;
  attention_backward<float>(call.shape, call.q(), call.k(), call.v(), call.output<const float>(call.out.data()),
                            call.softmax.data(), call.output<const float>(call.out_gradient.data()), parts);
  expect_close(call.out, reference.out, kTolerance, "out");
  expect_close(call.gradients, reference.gradients, 4 * kTolerance, "gradients");
  // A sum over 211 tokens of gradients with those errors.
  expect_close(gradients, expected, 8 * kTolerance, "gradients of the biases");
}

TEST_P(AttentionTest, Causal) {
  Call<float> call({70, 1, 24, 25, 140}, 2, 2, 32);
  call.shape.causal = true;
  expect_matches_reference(call, "causal");
  call.shape.dropout = make_dropout(0.5, 11);
  expect_matches_reference(call, "causal with dropout");
}

TEST_P(AttentionTest, SharedKeyHeads) {
  expect_matches_reference({{40, 9}, 6, 2, 32}, "3 heads a key head");
  expect_matches_reference({{40, 9}, 4, 1, 48}, "one key head");
}

// One thread takes two key heads of a sequence in a turn, and one in the last.
TEST_P(AttentionTest, SeveralHeadsInATurn) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  for (int64_t size : {7, 32, 40}) {
    Call<float> call({70, 3, 140, 33}, 10, 5, size);
    call.shape.dropout = make_dropout(0.1, 3);
    expect_matches_reference(call, str("head size ", size));
  }
  omp_set_num_threads(before);
}

TEST_P(AttentionTest, Bias) {
  const int64_t longest = 70, heads = 2;
  std::vector<float> bias = normal(2 * heads * longest * longest, 5);
  Call<float> call({longest, 31}, heads, heads, 32);
  call.shape.bias = {bias.data(), heads * longest * longest, longest * longest, longest};
  expect_matches_reference(call, "own bias");
  call.shape.bias = {bias.data(), 0, longest * longest, longest};
  expect_matches_reference(call, "shared by the sequences");
  for (size_t i = 0; i < bias.size(); i += 3) bias[i] = -std::numeric_limits<float>::infinity();
  call.shape.causal = false;
  expect_matches_reference(call, "with a mask in it");
}

// Rows in which a mask hides every key. With minus infinity nothing is seen: the result is 0, and so is its share of the
// gradients. With the lowest number there is the scores are lost in it, and all keys are seen alike.
TEST_P(AttentionTest, RowsThatAMaskHides) {
  const int64_t longest = 40;
  const std::vector<int64_t> hidden_rows = {0, 3, 24, 39};
  for (float low : {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::lowest()}) {
    std::vector<float> bias(longest * longest);
    for (size_t i = 0; i < bias.size(); i += 3) bias[i] = low;
    for (int64_t row : hidden_rows) std::fill_n(bias.begin() + row * longest, longest, low);
    for (double p : {0.0, 0.25}) {
      Call<float> call({longest, 7}, 2, 1, 32), reference({longest, 7}, 2, 1, 32);
      call.shape.bias = reference.shape.bias = {bias.data(), 0, 0, longest};
      call.shape.dropout = reference.shape.dropout = make_dropout(p, 3);
      call.run();
      reference.run_ref();
      expect_close(call.out, reference.out, kTolerance, str("out, mask ", low, ", dropout ", p));
      expect_close(call.gradients, reference.gradients, 4 * kTolerance, str("gradients, mask ", low, ", dropout ", p));
      for (int64_t row : hidden_rows) EXPECT_EQ(call.out[row * 64] == 0, reference.out[row * 64] == 0) << row;
    }
  }
}

TEST_P(AttentionTest, NoSequences) {
  Call<float> call({}, 2, 1, 32);
  std::vector<float> bias_gradients(call.width, 1.0f);
  AttentionGradients<float> parts = call.gradient_parts();
  parts.q_bias = bias_gradients.data();
  parts.k_bias = bias_gradients.data() + 64;
  parts.v_bias = bias_gradients.data() + 96;
  attention_forward<float>(call.shape, call.q(), call.k(), call.v(), call.output(call.out.data()), call.softmax.data());
  attention_backward<float>(call.shape, call.q(), call.k(), call.v(), call.output<const float>(call.out.data()),
                            call.softmax.data(), call.output<const float>(call.out_gradient.data()), parts);
  EXPECT_EQ(bias_gradients, std::vector<float>(call.width));
}

// The scores' maximum is subtracted: they may be far beyond what exp can take.
TEST_P(AttentionTest, LargeScores) {
  Call<float> call({50}, 1, 1, 32);
  call.shape.scale = 100;
  Call<float> reference = call;
  call.shape.cu_seqlens = call.cu_seqlens;
  reference.shape.cu_seqlens = reference.cu_seqlens;
  call.run();
  reference.run_ref();
  for (float each : call.out) EXPECT_TRUE(std::isfinite(each));
  // s is about 1000 with an error of a few ulp of it, 2^-24 * 1000 * 16, which is the relative error of p.
  expect_close(call.out, reference.out, 1000.0 * 16 / (1 << 24), "out");
}

TEST_P(AttentionTest, NanStaysInItsSequence) {
  Call<float> call({20, 30}, 1, 1, 32);
  call.qkv[25 * call.width] = std::numeric_limits<float>::quiet_NaN();  // q of token 5 of the second sequence
  call.run();
  for (int64_t token = 0; token < 50; ++token) EXPECT_EQ(std::isnan(call.out[token * 32]), token == 25) << token;
  for (int64_t token = 0; token < 20; ++token) EXPECT_FALSE(std::isnan(call.gradients[token * call.width + 32])) << token;
  for (int64_t token = 20; token < 50; ++token) EXPECT_TRUE(std::isnan(call.gradients[token * call.width + 32])) << token;
}

// `change` sets what a shape has beyond its sizes.
template <class Change>
void expect_bf16_matches_reference(const std::vector<int64_t>& lengths, int64_t heads, int64_t kv_heads, int64_t size, Change change, const std::string& what) {
  Call<bfloat16> call(lengths, heads, kv_heads, size);
  Call<float> reference(lengths, heads, kv_heads, size);
  change(call.shape);
  change(reference.shape);
  reference.qkv = to_float(call.qkv);
  reference.out_gradient = to_float(call.out_gradient);
  call.run();
  reference.run_ref();
  // Results are rounded to 8 bits; delta is taken from the rounded output: its error is at most 2^-9 |out| |out_gradient|.
  expect_close(to_float(call.out), reference.out, 4.0 / 512, what + ": out");
  expect_close(to_float(call.gradients), reference.gradients, 16.0 / 512, what + ": gradients");
}

TEST_P(AttentionTest, Bfloat16) {
  auto plain = [](AttentionShape&) {};
  for (int64_t size : {7, 16, 32, 33, 64, 96, 128, 160}) expect_bf16_matches_reference({5, 33, 1, 70}, 2, 2, size, plain, str("head size ", size));
  for (int64_t length : {1, 2, 17, 24, 63, 65, 129, 257}) expect_bf16_matches_reference({length}, 1, 1, 32, plain, str("length ", length));
  expect_bf16_matches_reference({40, 9}, 6, 2, 32, plain, "3 heads a key head");
  expect_bf16_matches_reference({70, 33}, 2, 2, 64, [](AttentionShape& shape) { shape.dropout = make_dropout(0.1, 3); }, "dropout");
  expect_bf16_matches_reference({70, 1, 24, 25}, 2, 2, 32, [](AttentionShape& shape) { shape.causal = true; }, "causal");
  const int64_t longest = 70;
  std::vector<float> bias = normal(2 * longest * longest, 5);
  for (size_t i = 0; i < bias.size(); i += 3) bias[i] = -std::numeric_limits<float>::infinity();
  expect_bf16_matches_reference({longest, 31}, 2, 2, 32, [&](AttentionShape& shape) { shape.bias = {bias.data(), 0, longest * longest, longest}; }, "bias");
}

TEST_P(AttentionTest, Bfloat16NanStaysInItsSequence) {
  Call<bfloat16> call({20, 30}, 1, 1, 32);
  call.qkv[25 * call.width] = trireme::to_bfloat16(std::numeric_limits<float>::quiet_NaN());  // q of token 5 of the second sequence
  call.run();
  const std::vector<float> out = to_float(call.out), gradients = to_float(call.gradients);
  for (int64_t token = 0; token < 50; ++token) EXPECT_EQ(std::isnan(out[token * 32]), token == 25) << token;
  for (int64_t token = 0; token < 50; ++token) EXPECT_EQ(std::isnan(gradients[token * call.width + 32]), token >= 20) << token;
}

TEST_P(AttentionTest, SameBitsForAnyNumberOfThreads) {
  Call<float> one({70, 3, 140, 33, 12}, 4, 4, 32), many = one;
  one.shape.cu_seqlens = one.cu_seqlens;
  many.shape.cu_seqlens = many.cu_seqlens;
  one.shape.dropout = many.shape.dropout = make_dropout(0.1, 3);
  int before = omp_get_max_threads();
  omp_set_num_threads(1);
  one.run();
  omp_set_num_threads(5);
  many.run();
  omp_set_num_threads(before);
  EXPECT_EQ(one.out, many.out);
  EXPECT_EQ(one.gradients, many.gradients);
}

TEST(AttentionArguments, AreRefusedByName) {
  auto message = [](const AttentionShape& shape) -> std::string {
    try {
      attention_forward<float>(shape, {}, {}, {}, {}, nullptr);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  std::vector<int64_t> good = {0, 3}, empty = {0, 3, 3, 5}, backwards = {0, 3, 2}, late = {1, 2};
  EXPECT_EQ(message({empty, 1, 1, 32}), "attention: sequence 1 is empty");
  EXPECT_EQ(message({backwards, 1, 1, 32}), "attention: sequence 1 ends before it begins");
  EXPECT_NE(message({late, 1, 1, 32}).find("must begin with 0"), std::string::npos);
  EXPECT_EQ(message({good, 3, 2, 32}), "attention: 3 heads cannot share 2 key heads");
  EXPECT_EQ(message({good, 1, 1, 0}), "attention: the head size is 0");
}

}  // namespace
}  // namespace trireme::kernels
