// Speed of bias, dropout and residual connection by type and ISA level, with dropout of 0.1 and without.
#include "trireme/kernels/bias_dropout_residual.h"
#include "trireme/kernels/row_bench.h"

namespace trireme::kernels {
namespace {

template <class T>
struct Buffers {
  Shape shape;
  Dropout dropout;
  int64_t n = shape.rows * shape.H;
  std::vector<T> x = random_row_values<T>(n, 1), residual = random_row_values<T>(n, 2), z = std::vector<T>(n),
                 dx = std::vector<T>(n);
  std::vector<float> bias = random_floats(shape.H, 4), dbias = std::vector<float>(shape.H);

  BiasDropoutResidualForward<T> forward() {
    return {x.data(), bias.data(), residual.data(), z.data(), shape.rows, shape.H, dropout};
  }
  BiasDropoutResidualBackward<T> backward() {
    return {residual.data(), dx.data(), dbias.data(), shape.rows, shape.H, dropout};
  }
};

// bf16 rounds what it writes: its answers are the tests' business.
bool right(Buffers<bfloat16>&) { return true; }
bool right(Buffers<float>& fast) {
  Buffers<float> expected{fast.shape, fast.dropout};
  bias_dropout_residual_forward(fast.forward());
  bias_dropout_residual_backward(fast.backward());
  bias_dropout_residual_forward_ref(expected.forward());
  bias_dropout_residual_backward_ref(expected.backward());
  return agrees(fast.z, expected.z) && agrees(fast.dx, expected.dx) && agrees(fast.dbias, expected.dbias);
}

template <class T>
void register_type(double p) {
  const Shape shape = kShapes[1];
  Dropout dropout = make_dropout(p, 1);
  int64_t array_bytes = shape.rows * shape.H * static_cast<int64_t>(sizeof(T));
  std::string name = std::string(type_name<T>()) + (p > 0 ? "/dropout/" : "/plain/") + shape_name(shape);
  register_per_isa("bias_dropout_residual/forward/" + name, [=](benchmark::State& state) {
    Buffers<T> buffers{shape, dropout};
    measure(
        state, 3 * array_bytes, [&] { bias_dropout_residual_forward(buffers.forward()); }, [&] { return right(buffers); });
  });
  register_per_isa("bias_dropout_residual/backward/" + name, [=](benchmark::State& state) {
    Buffers<T> buffers{shape, dropout};
    measure(
        state, 2 * array_bytes, [&] { bias_dropout_residual_backward(buffers.backward()); }, [&] { return right(buffers); });
  });
}

const bool registered = [] {
  for (double p : {0.0, 0.1}) register_type<float>(p), register_type<bfloat16>(p);
  return true;
}();

}  // namespace
}  // namespace trireme::kernels
