// Speed of bias, dropout, residual connection and LayerNorm by type, shape and ISA level, with dropout of 0.1 and without.
#include "trireme/kernels/residual_layer_norm.h"
#include "trireme/kernels/row_bench.h"

namespace trireme::kernels {
namespace {

template <class T>
struct Buffers {
  Shape shape;
  Dropout dropout;
  int64_t n = shape.rows * shape.H;
  std::vector<T> x = random_row_values<T>(n, 1), residual = random_row_values<T>(n, 2), dy = random_row_values<T>(n, 3),
                 z = std::vector<T>(n), y = std::vector<T>(n), dz = std::vector<T>(n), dx = std::vector<T>(n);
  std::vector<float> bias = random_floats(shape.H, 4), gamma = random_floats(shape.H, 5), beta = random_floats(shape.H, 6),
                     mean = std::vector<float>(shape.rows), rstd = std::vector<float>(shape.rows),
                     dbias = std::vector<float>(shape.H), dgamma = std::vector<float>(shape.H),
                     dbeta = std::vector<float>(shape.H);

  ResidualLayerNormForward<T> forward() {
    return {.x = x.data(),
            .bias = bias.data(),
            .residual = residual.data(),
            .gamma = gamma.data(),
            .beta = beta.data(),
            .z = z.data(),
            .y = y.data(),
            .mean = mean.data(),
            .rstd = rstd.data(),
            .rows = shape.rows,
            .H = shape.H,
            .dropout = dropout};
  }
  ResidualLayerNormBackward<T> backward() {
    return {.dy = dy.data(),
            .z = z.data(),
            .mean = mean.data(),
            .rstd = rstd.data(),
            .gamma = gamma.data(),
            .dz = dz.data(),
            .dx = dropout.active() ? dx.data() : dz.data(),
            .dbias = dbias.data(),
            .dgamma = dgamma.data(),
            .dbeta = dbeta.data(),
            .rows = shape.rows,
            .H = shape.H,
            .dropout = dropout};
  }
};

// bf16 rounds what it writes: its answers are the tests' business.
bool right(Buffers<bfloat16>&) { return true; }
bool right(Buffers<float>& fast) {
  Buffers<float> expected{fast.shape, fast.dropout};
  residual_layer_norm_forward(fast.forward());
  residual_layer_norm_backward(fast.backward());
  residual_layer_norm_forward_ref(expected.forward());
  residual_layer_norm_backward_ref(expected.backward());
  return agrees(fast.y, expected.y) && agrees(fast.dz, expected.dz) && agrees(fast.dx, expected.dx) &&
         agrees(fast.dbias, expected.dbias);
}

template <class T>
void register_type(double p) {
  for (Shape shape : kShapes) {
    Dropout dropout = make_dropout(p, 1);
    int64_t array_bytes = shape.rows * shape.H * static_cast<int64_t>(sizeof(T));
    std::string name = std::string(type_name<T>()) + (p > 0 ? "/dropout/" : "/plain/") + shape_name(shape);
    register_per_isa("residual_layer_norm/forward/" + name, [=](benchmark::State& state) {
      Buffers<T> buffers{shape, dropout};
      measure(
          state, 4 * array_bytes, [&] { residual_layer_norm_forward(buffers.forward()); }, [&] { return right(buffers); });
    });
    register_per_isa("residual_layer_norm/backward/" + name, [=](benchmark::State& state) {
      Buffers<T> buffers{shape, dropout};
      residual_layer_norm_forward(buffers.forward());
      measure(
          state, (p > 0 ? 4 : 3) * array_bytes, [&] { residual_layer_norm_backward(buffers.backward()); },
          [&] { return right(buffers); });
    });
  }
}

const bool registered = [] {
  for (double p : {0.0, 0.1}) register_type<float>(p), register_type<bfloat16>(p);
  return true;
}();

}  // namespace
}  // namespace trireme::kernels
