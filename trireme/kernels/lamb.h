// A step of LAMB (You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", algorithm 2) on
// many tensors.
//
// With Adam's m and v, corrected for bias, the direction of a tensor is r = m / (sqrt(v) + eps) + weight_decay * w, and its
// step is lr * |w| / |r| long; lr * 1 where either norm is 0. Since the norms come before the step there are two passes over
// memory: the first updates m and v and adds up the norms, the second makes the direction again from them. Norms are added
// up in double over fixed chunks: the same bits for any number of threads.
#pragma once

#include <span>

#include "trireme/kernels/weights.h"

namespace trireme::kernels {

struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;
  bool maximize = false;
  double gradient_scale = 1;
};

struct LambTensor {
  Weights weights;
  Gradient gradient;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  double step = 1;  // the number of this step, from 1 on
  int64_t count = 0;
};

// Tensors must not overlap. InvalidArgument, before anything is written, where pointers are missing.
void lamb(std::span<const LambTensor> tensors, const LambOptions& options);
void lamb_ref(std::span<const LambTensor> tensors, const LambOptions& options);

}  // namespace trireme::kernels
