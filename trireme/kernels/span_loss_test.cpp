#include "trireme/kernels/span_loss.h"

#include "trireme/base/error.h"
#include "trireme/kernels/row_test.h"

namespace trireme::kernels {
namespace {

class SpanLossTest : public EachIsa {};
TRIREME_EACH_ISA(SpanLossTest);

// Sequences of these lengths, interleaved logits; positions on both ends, in the middle, and outside.
template <class T>
struct Case {
  std::vector<int64_t> cu_seqlens = {0}, starts, ends;
  Guarded<T> logits, dlogits;
  float dloss = 1.5f;

  explicit Case(const std::vector<int64_t>& lengths)
      : logits(normal(2 * total(lengths), 1, 3)), dlogits(2 * total(lengths), 9) {
    for (size_t b = 0; b < lengths.size(); ++b) {
      cu_seqlens.push_back(cu_seqlens.back() + lengths[b]);
      starts.push_back(b % 4 == 3 ? lengths[b] : static_cast<int64_t>(b) % lengths[b]);
      ends.push_back(b % 5 == 4 ? -1 : lengths[b] - 1);
    }
  }
  static int64_t total(const std::vector<int64_t>& lengths) {
    int64_t sum = 0;
    for (int64_t length : lengths) sum += length;
    return sum;
  }
  SpanLogits<T> input() { return {logits.data(), logits.data() + 1, 2}; }
  SpanLogitsGradient<T> output() { return {dlogits.data(), dlogits.data() + 1, 2}; }
  SpanTargets targets() { return {cu_seqlens.data(), starts.data(), ends.data(), static_cast<int64_t>(starts.size())}; }

  // A softmax's sum errs by sum_error(length), exp by 2 units and by the rounding of its argument, which is below 32: so
  // does the loss, which is a logarithm of it. A gradient is at most dloss / 2.
  void check() {
    std::vector<float> wide = logits.values(), gradient(wide.size());
    SpanLogits<float> wide_input = {wide.data(), wide.data() + 1, 2};
    int64_t longest = 0;
    for (size_t b = 0; b + 1 < cu_seqlens.size(); ++b) longest = std::max(longest, cu_seqlens[b + 1] - cu_seqlens[b]);
    double error = sum_error(longest) + 40 * kUnit;
    float loss = span_loss_forward_ref(wide_input, targets());
    expect_close({span_loss_forward(input(), targets())}, {loss}, error, 2 * kUnit, "loss");
    span_loss_backward(input(), targets(), dloss, output());
    span_loss_backward_ref(wide_input, targets(), dloss, {gradient.data(), gradient.data() + 1, 2});
    expect_close(dlogits.values(), gradient, error * dloss, kRounding<T>, "dlogits");
  }
};

TEST_P(SpanLossTest, AgreesWithReferenceAtEveryLength) {
  for (const std::vector<int64_t>& lengths : std::vector<std::vector<int64_t>>{
           {1}, {2}, {15}, {16}, {17}, {384}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {33, 7, 384, 161, 16, 1, 64, 500}}) {
    Case<float>(lengths).check();
    Case<bfloat16>(lengths).check();
  }
}

TEST_P(SpanLossTest, ContiguousLogitsGiveTheSameBits) {
  Case<float> c({33, 7, 161, 5, 40});
  const int64_t tokens = c.cu_seqlens.back();
  std::vector<float> starts(tokens), ends(tokens), dstarts(tokens), dends(tokens);
  for (int64_t t = 0; t < tokens; ++t) starts[t] = c.logits.data()[2 * t], ends[t] = c.logits.data()[2 * t + 1];
  EXPECT_EQ(span_loss_forward<float>({starts.data(), ends.data(), 1}, c.targets()),
            span_loss_forward(c.input(), c.targets()));
  span_loss_backward<float>({starts.data(), ends.data(), 1}, c.targets(), 1.5f, {dstarts.data(), dends.data(), 1});
  span_loss_backward(c.input(), c.targets(), 1.5f, c.output());
  for (int64_t t = 0; t < tokens; ++t) {
    EXPECT_EQ(c.dlogits.data()[2 * t], dstarts[t]);
    EXPECT_EQ(c.dlogits.data()[2 * t + 1], dends[t]);
  }
}

TEST_P(SpanLossTest, InPlace) {
  Case<bfloat16> c({33, 7, 161, 5, 40});
  span_loss_backward(c.input(), c.targets(), 1, c.output());
  span_loss_backward<bfloat16>(c.input(), c.targets(), 1, {c.logits.data(), c.logits.data() + 1, 2});
  EXPECT_EQ(c.logits.values(), c.dlogits.values());
}

TEST_P(SpanLossTest, LogitsOfAnySizeDoNotOverflow) {
  std::vector<float> starts = {1e30f, 0, -1e30f}, ends = {-1e38f, -1e38f, -1e38f};
  std::vector<int64_t> cu_seqlens = {0, 3}, first = {0}, second = {1};
  EXPECT_NEAR(span_loss_forward<float>({starts.data(), ends.data(), 1}, {cu_seqlens.data(), first.data(), second.data(), 1}),
              std::log(3.0) / 2, 1e-6);
}

TEST_P(SpanLossTest, NoPositionCounts) {
  Case<float> c({4, 5});
  c.starts = {4, -1};
  EXPECT_TRUE(std::isnan(span_loss_forward(c.input(), c.targets())));
  c.ends = {4, 5};
  span_loss_backward(c.input(), c.targets(), 1, c.output());
  EXPECT_THAT(c.dlogits.values(), testing::Each(0));
}

TEST_P(SpanLossTest, NoSequences) {
  Case<float> c({});
  EXPECT_TRUE(std::isnan(span_loss_forward(c.input(), c.targets())));
  span_loss_backward(c.input(), c.targets(), 1, c.output());
}

TEST_P(SpanLossTest, NanStaysInItsSequence) {
  for (int64_t at : {20, 36}) {  // in a whole vector, in the rest
    Case<float> c({20, 17, 20});
    c.starts = {1, 1, 1};
    c.logits.data()[2 * at] = kNan;
    EXPECT_TRUE(std::isnan(span_loss_forward(c.input(), c.targets())));
    span_loss_backward(c.input(), c.targets(), 1, c.output());
    for (int64_t t = 0; t < 57; ++t) {
      EXPECT_EQ(std::isnan(c.dlogits.data()[2 * t]), t >= 20 && t < 37) << t;
      EXPECT_FALSE(std::isnan(c.dlogits.data()[2 * t + 1])) << t;
    }
  }
}

TEST_P(SpanLossTest, SameBitsForAnyNumberOfThreads) {
  expect_same_for_any_threads([] {
    Case<float> c(std::vector<int64_t>(400, 301));
    float loss = span_loss_forward(c.input(), c.targets());
    span_loss_backward(c.input(), c.targets(), 1, c.output());
    return joined({{loss}, c.dlogits.values()});
  });
}

// Rounding the loss to fp32, 1e-7 * 5, over a step of 2e-2; the third derivative is below 0.1.
TEST(SpanLossReference, BackwardIsTheDerivative) {
  Case<float> c({5, 1, 3, 4, 6});
  auto loss = [&] { return double{c.dloss} * span_loss_forward_ref(c.input(), c.targets()); };
  span_loss_backward_ref(c.input(), c.targets(), c.dloss, c.output());
  expect_derivative(loss, c.logits.data(), 38, c.dlogits.values(), 1e-2, 2e-4);
}

TEST(SpanLoss, NamesAnEmptySequence) {
  Case<float> c({3, 4, 2, 5, 6});
  c.cu_seqlens[4] = c.cu_seqlens[3];
  try {
    span_loss_forward(c.input(), c.targets());
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "span_loss: sequence 3 is empty");
  }
  EXPECT_THROW(span_loss_backward(c.input(), c.targets(), 1, c.output()), InvalidArgument);
  EXPECT_THAT(c.dlogits.values(), testing::Each(9));
  c.cu_seqlens[4] = 1;
  EXPECT_THROW(span_loss_forward(c.input(), c.targets()), InvalidArgument);
}

}  // namespace
}  // namespace trireme::kernels
