#include "trireme/trainer/model/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trireme::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Compute = std::function<at::Tensor(const at::Tensor&)>;

// How autograd's node keeps it.
struct Kept : torch::CustomClassHolder {
  explicit Kept(Compute compute) : compute(std::move(compute)) {}
  Compute compute;
};

// Puts torch's generator into a state, and back into its own at the end.
class WithGeneratorState {
 public:
  explicit WithGeneratorState(const at::Tensor& state)
      : generator_(at::detail::getDefaultCPUGenerator()), before_(generator_.get_state()) {
    generator_.set_state(state);
  }
  ~WithGeneratorState() { generator_.set_state(before_); }

 private:
  at::Generator generator_;
  at::Tensor before_;
};

struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const c10::intrusive_ptr<Kept>& kept) {
    ctx->save_for_backward({x});
    ctx->saved_data["random"] = at::detail::getDefaultCPUGenerator().get_state();
    ctx->saved_data["compute"] = c10::IValue::make_capsule(kept);
    return kept->compute(x);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto capsule = ctx->saved_data["compute"].toCapsule();
    const Compute& compute = static_cast<const Kept&>(*capsule).compute;
    const at::Tensor x = ctx->get_saved_variables()[0].detach().set_requires_grad(true);
    at::Tensor y;
    {
      const at::AutoGradMode with_gradients(true);
      const WithGeneratorState as_then(ctx->saved_data["random"].toTensor());
      y = compute(x);
    }
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recompute(const Compute& compute, const at::Tensor& x) {
  return Recompute::apply(x, c10::make_intrusive<Kept>(compute));
}

}  // namespace trireme::trainer
