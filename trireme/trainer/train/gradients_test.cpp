#include "trireme/trainer/train/gradients.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/base/deadline.h"

namespace trireme::trainer {
namespace {

// The gradient of a sum times a factor is the factor.
void backward(const at::Tensor& value, double factor) { torch::autograd::backward({(value * factor).sum()}, {}); }

// 256 and 255 ones: in bfloat16, 256 + 1 is 256 again.
TEST(Gradients, SmallOnesOfManyMicroBatchesAreNotLostInBf16) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<Parameter> parameters{{"used", at::ones({3}, type).set_requires_grad(true), true},
                                      {"unused", at::ones({2}, type).set_requires_grad(true), true}};
    constexpr int64_t kMicroBatches = 256;
    Gradients gradients(parameters, World(), kMicroBatches);
    for (int step = 0; step < 2; ++step) {
      for (int64_t m = 0; m < kMicroBatches; ++m) {
        gradients.begin(m == 0, m == kMicroBatches - 1);
        backward(parameters[0].value, m == 0 ? 256 : 1);
      }
      gradients.finish();
      // 511 lies between the neighbours 510 and 512.
      EXPECT_TRUE(gradients.values()[0].equal(at::full({3}, type == at::kFloat ? 511 : 512, type))) << gradients.values()[0];
      EXPECT_EQ(gradients.values()[0].scalar_type(), type) << "the type that travels and that the optimizer takes";
      EXPECT_EQ(gradients.values()[1].count_nonzero().item<int64_t>(), 0);
    }
  }
}

// Each rank holds its backward pass between two gradients until the one that it has is summed over both: that comes true
// only if a bucket travels at once.
void pass_on_while_computing(const World& world) {
  std::vector<Parameter> parameters{{"first", at::full({3}, world.rank() + 1.0).set_requires_grad(true), true},
                                    {"last", at::ones({3}).set_requires_grad(true), true}};
  Gradients gradients(parameters, world, 1, 1);  // a bucket for each
  for (int step = 0; step < 3; ++step) {
    gradients.begin(true, true);
    const at::Tensor hidden = parameters[0].value * 2;
    bool summed = false;
    hidden.register_hook([&](const at::Tensor&) {
      const Deadline deadline = Deadline::after(std::chrono::seconds(20));
      while (!(summed = gradients.values()[1].equal(at::full({3}, 2.0 + 4.0))) && !deadline.passed())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(gradients.values()[0].count_nonzero().item<int64_t>(), 0) << "the other has not been computed";
    });
    torch::autograd::backward({(hidden * parameters[1].value).sum()}, {});
    EXPECT_TRUE(summed) << "rank " << world.rank() << ", step " << step;
    gradients.finish();
    EXPECT_TRUE(gradients.values()[0].equal(at::full({3}, 2.0 + 2.0)));
    for (const at::Tensor& value : gradients.values()) value.zero_();  // what the next step finds is its own
  }
}

TEST(Gradients, TravelWhileTheBackwardPassGoesOn) {
  using torch_ext::ProcessGroupCCL;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        const auto options = c10::make_intrusive<ProcessGroupCCL::Options>(std::chrono::seconds(60));
        pass_on_while_computing(World(c10::make_intrusive<ProcessGroupCCL>(store, rank, 2, options)));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace trireme::trainer
