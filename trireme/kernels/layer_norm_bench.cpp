// Speed of LayerNorm by type, shape and ISA level.
#include "trireme/kernels/layer_norm.h"
#include "trireme/kernels/row_bench.h"

namespace trireme::kernels {
namespace {

template <class T>
struct Buffers {
  Shape shape;
  int64_t n = shape.rows * shape.H;
  std::vector<T> x = random_row_values<T>(n, 1), dy = random_row_values<T>(n, 2), y = std::vector<T>(n),
                 dx = std::vector<T>(n);
  std::vector<float> gamma = random_floats(shape.H, 3), beta = random_floats(shape.H, 4),
                     mean = std::vector<float>(shape.rows), rstd = std::vector<float>(shape.rows),
                     dgamma = std::vector<float>(shape.H), dbeta = std::vector<float>(shape.H);

  LayerNormForward<T> forward() {
    return {x.data(), gamma.data(), beta.data(), y.data(), mean.data(), rstd.data(), shape.rows, shape.H};
  }
  LayerNormBackward<T> backward() {
    return {dy.data(), x.data(),      mean.data(),  rstd.data(), gamma.data(),
            dx.data(), dgamma.data(), dbeta.data(), shape.rows,  shape.H};
  }
};

// bf16 rounds what it writes: its answers are the tests' business.
bool right(Buffers<bfloat16>&) { return true; }
bool right(Buffers<float>& fast) {
  Buffers<float> expected{fast.shape};
  layer_norm_forward(fast.forward());
  layer_norm_backward(fast.backward());
  layer_norm_forward_ref(expected.forward());
  layer_norm_backward_ref(expected.backward());
  return agrees(fast.y, expected.y) && agrees(fast.dx, expected.dx) && agrees(fast.dgamma, expected.dgamma);
}

template <class T>
void register_type() {
  for (Shape shape : kShapes) {
    int64_t array_bytes = shape.rows * shape.H * static_cast<int64_t>(sizeof(T));
    std::string name = std::string(type_name<T>()) + "/" + shape_name(shape);
    register_per_isa("layer_norm/forward/" + name, [=](benchmark::State& state) {
      Buffers<T> buffers{shape};
      measure(
          state, 2 * array_bytes, [&] { layer_norm_forward(buffers.forward()); }, [&] { return right(buffers); });
    });
    register_per_isa("layer_norm/backward/" + name, [=](benchmark::State& state) {
      Buffers<T> buffers{shape};
      layer_norm_forward(buffers.forward());
      measure(
          state, 3 * array_bytes, [&] { layer_norm_backward(buffers.backward()); }, [&] { return right(buffers); });
    });
  }
}

const bool registered = (register_type<float>(), register_type<bfloat16>(), true);

}  // namespace
}  // namespace trireme::kernels
