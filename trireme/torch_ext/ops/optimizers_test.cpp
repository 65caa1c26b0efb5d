// The optimizers from C++, without Python, against torch's own operators.
#include "trireme/torch_ext/ops/optimizers.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "trireme/torch_ext/ops/bf16.h"

namespace trireme::torch_ext {
namespace {

// Parameters of several shapes with everything Adam keeps.
struct Lists {
  std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;

  explicit Lists(at::ScalarType dtype = at::kFloat) {
    at::manual_seed(7);
    for (std::vector<int64_t> shape : std::vector<std::vector<int64_t>>{{3}, {0}, {17, 5}, {300, 100}}) {
      params.push_back(at::randn(shape).to(dtype));
      grads.push_back(at::randn(shape).to(dtype));
      exp_avgs.push_back(at::zeros(shape));
      exp_avg_sqs.push_back(at::zeros(shape));
      steps.push_back(at::zeros({}));
    }
  }
};

const kernels::AdamOptions kAdamW = {.lr = 0.01, .weight_decay = 0.1, .decoupled = true};

TEST(Optimizers, AdamWIsTorchs) {
  Lists ours, theirs;
  for (int step = 1; step <= 3; ++step) {
    adam_(ours.params, ours.grads, ours.exp_avgs, ours.exp_avg_sqs, {}, ours.steps, {}, kAdamW);
    for (at::Tensor& each : theirs.steps) each += 1;
    at::_fused_adamw_(theirs.params, theirs.grads, theirs.exp_avgs, theirs.exp_avg_sqs, {}, theirs.steps, 0.01, 0.9, 0.999,
                      0.1, 1e-8, false, false);
  }
  for (size_t i = 0; i < ours.params.size(); ++i) {
    EXPECT_TRUE(at::allclose(ours.params[i], theirs.params[i], 1e-6, 1e-6)) << i;
    EXPECT_TRUE(at::allclose(ours.exp_avg_sqs[i], theirs.exp_avg_sqs[i], 1e-6, 1e-9)) << i;
    EXPECT_EQ(ours.steps[i].item<float>(), 3);
  }
}

void expect_all_close(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-6, 1e-6)) << i;
}

TEST(Optimizers, SgdIsTorchs) {
  Lists ours, theirs;
  for (int step = 1; step <= 3; ++step) {
    sgd_(ours.params, ours.grads, ours.exp_avgs, std::vector<bool>(ours.params.size(), step == 1), {}, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
    at::_fused_sgd_(theirs.params, theirs.grads, theirs.exp_avgs, 0.01, 0.9, 0.1, 0, true, false, step == 1);
  }
  expect_all_close(ours.params, theirs.params);
  expect_all_close(ours.exp_avgs, theirs.exp_avgs);
}

TEST(Optimizers, AdagradIsTorchs) {
  Lists ours, theirs;
  for (int step = 1; step <= 3; ++step) {
    adagrad_(ours.params, ours.grads, ours.exp_avg_sqs, ours.steps, {}, {.lr = 0.1, .lr_decay = 0.05, .weight_decay = 0.01});
    for (at::Tensor& each : theirs.steps) each += 1;
    at::_fused_adagrad_(theirs.params, theirs.grads, theirs.exp_avg_sqs, theirs.steps, 0.1, 0.05, 0.01, 1e-10, false);
  }
  expect_all_close(ours.params, theirs.params);
  expect_all_close(ours.exp_avg_sqs, theirs.exp_avg_sqs);
}

// torch has none: the paper's update in torch's operators. You, Li et al., "Large Batch Optimization for Deep Learning", algorithm 2.
TEST(Optimizers, LambIsThePapers) {
  Lists ours, theirs;
  const kernels::LambOptions options = {.lr = 0.01, .weight_decay = 0.1};
  for (int step = 1; step <= 3; ++step) {
    lamb_(ours.params, ours.grads, ours.exp_avgs, ours.exp_avg_sqs, ours.steps, {}, options);
    for (size_t i = 0; i < theirs.params.size(); ++i) {
      at::Tensor& m = theirs.exp_avgs[i].mul_(0.9).add_(theirs.grads[i], 0.1);
      at::Tensor& v = theirs.exp_avg_sqs[i].mul_(0.999).addcmul_(theirs.grads[i], theirs.grads[i], 0.001);
      at::Tensor update = m / (1 - std::pow(0.9, step)) / ((v / (1 - std::pow(0.999, step))).sqrt() + options.eps) + options.weight_decay * theirs.params[i];
      double weights = theirs.params[i].norm().item<double>(), size = update.norm().item<double>();
      theirs.params[i].sub_(update, options.lr * (weights > 0 && size > 0 ? weights / size : 1));
    }
  }
  expect_all_close(ours.params, theirs.params);
  expect_all_close(ours.exp_avg_sqs, theirs.exp_avg_sqs);
}

TEST(Optimizers, GradientsThatLieOtherwise) {
  Lists ours, theirs;
  for (at::Tensor& grad : ours.grads)
    if (grad.dim() == 2) grad = grad.t().contiguous().t();
  adam_(ours.params, ours.grads, ours.exp_avgs, ours.exp_avg_sqs, {}, ours.steps, {}, kAdamW);
  adam_(theirs.params, theirs.grads, theirs.exp_avgs, theirs.exp_avg_sqs, {}, theirs.steps, {}, kAdamW);
  for (size_t i = 0; i < ours.params.size(); ++i) EXPECT_TRUE(at::equal(ours.params[i], theirs.params[i])) << i;
}

TEST(Optimizers, SplitMastersAreFp32) {
  Lists split(at::kBFloat16), fp32(at::kBFloat16);
  std::vector<at::Tensor> lower;
  for (size_t i = 0; i < split.params.size(); ++i) {
    lower.push_back(at::zeros_like(split.params[i], at::kShort));
    fp32.params[i] = fp32.params[i].to(at::kFloat);
  }
  for (int step = 0; step < 3; ++step) {
    adam_(split.params, split.grads, split.exp_avgs, split.exp_avg_sqs, {}, split.steps, lower, kAdamW);
    adam_(fp32.params, fp32.grads, fp32.exp_avgs, fp32.exp_avg_sqs, {}, fp32.steps, {}, kAdamW);
  }
  for (size_t i = 0; i < lower.size(); ++i) {
    EXPECT_TRUE(at::equal(join_bf16(split.params[i], lower[i]), fp32.params[i])) << i;
    auto [upper, rest] = split_bf16(fp32.params[i]);
    EXPECT_TRUE(at::equal(upper, split.params[i]) && at::equal(rest, lower[i])) << i;
  }
}

TEST(Bf16, RoundsAndWidensAsTorch) {
  const at::Tensor x = at::randn({100, 301}), bent = x.t().slice(0, 1);
  for (const at::Tensor& each : {x, bent, at::zeros({0})}) {
    const at::Tensor rounded = round_bf16(each);
    EXPECT_EQ(rounded.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(rounded, each.to(at::kBFloat16)));
    EXPECT_TRUE(at::equal(widen_bf16(rounded), rounded.to(at::kFloat)));
  }
  EXPECT_THROW(round_bf16(x.to(at::kDouble)), c10::Error);
  EXPECT_THROW(widen_bf16(x), c10::Error);
}

TEST(Optimizers, NormAndClipping) {
  Lists lists;
  double expected = 0;
  for (const at::Tensor& grad : lists.grads) expected += grad.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(global_norm(lists.grads), std::sqrt(expected), 1e-9 * expected);
  EXPECT_NEAR(clip_coefficient(10, 1), 0.1, 1e-7);
}

TEST(Optimizers, AutogradSeesAChange) {
  Lists lists;
  auto before = lists.params[0]._version();
  sgd_(lists.params, lists.grads, {}, {}, {}, {.lr = 0.1});
  EXPECT_GT(lists.params[0]._version(), before);
}

void expect_refused(const char* words, const std::function<void(Lists&)>& spoil) {
  Lists lists, before;
  spoil(lists);
  try {
    adam_(lists.params, lists.grads, lists.exp_avgs, lists.exp_avg_sqs, {}, lists.steps, {}, kAdamW);
    ADD_FAILURE() << "accepted: " << words;
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
  EXPECT_TRUE(at::equal(lists.params[0], before.params[0]));
}

TEST(Optimizers, WrongArgumentsChangeNothing) {
  expect_refused("parameter 2 is Strided of dtype Double",
                 [](Lists& lists) { lists.params[2] = lists.params[2].to(at::kDouble); });
  expect_refused("of parameter 2 overlap or have gaps", [](Lists& lists) {
    lists.params[2] = at::zeros({17, 10}).slice(1, 0, 5);
  });
  expect_refused("gradient 2 is Sparse", [](Lists& lists) { lists.grads[2] = lists.grads[2].to_sparse(); });
  expect_refused("gradient 3 has shape [100, 300]", [](Lists& lists) { lists.grads[3] = lists.grads[3].t(); });
  expect_refused("exp_avg_sq 3 is of dtype BFloat16",
                 [](Lists& lists) { lists.exp_avg_sqs[3] = lists.exp_avg_sqs[3].to(at::kBFloat16); });
  expect_refused("exp_avg 3 has shape", [](Lists& lists) { lists.exp_avgs[3] = at::zeros({100, 300}).t(); });
  expect_refused("4 parameters and 3 steps", [](Lists& lists) { lists.steps.pop_back(); });
  expect_refused("step 1 is -1", [](Lists& lists) { lists.steps[1].fill_(-1); });
}

TEST(Optimizers, AreOperators) {
  for (const char* name : {"adam_", "adamw_", "sgd_", "adagrad_", "lamb_", "global_norm", "round_bf16", "widen_bf16",
                           "split_bf16", "join_bf16"})
    EXPECT_TRUE(c10::Dispatcher::singleton().findSchema({std::string("trireme::") + name, ""})) << name;
}

// torch's threads and ours are the same ones only if there is one runtime.
TEST(Library, OneOpenMpRuntimeIsLoaded) {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> runtimes;
  for (std::string line; std::getline(maps, line);)
    if (size_t slash = line.find('/'); slash != std::string::npos && line.find("omp", slash) != std::string::npos)
      if (std::string file = line.substr(line.rfind('/') + 1);
          file.starts_with("libgomp") || file.starts_with("libiomp") || file.starts_with("libomp"))
        runtimes.insert(line.substr(slash));
  EXPECT_EQ(runtimes.size(), 1u);
}

}  // namespace
}  // namespace trireme::torch_ext
