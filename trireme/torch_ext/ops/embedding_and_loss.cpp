// The two ends of a model for question answering: the embeddings, and the loss over packed sequences.
#include <algorithm>

#include "trireme/kernels/embedding.h"
#include "trireme/kernels/span_loss.h"
#include "trireme/torch_ext/ops/autograd.h"
#include "trireme/torch_ext/ops/ops.h"
#include "trireme/torch_ext/ops/tensors.h"

namespace trireme::ops {

namespace {

using at::Tensor;

// ---- Tables ----

// A table as the kernels take it: of floats. Of one in bfloat16 only the rows that occur are converted: `rows` names them,
// and `ids` are places among them.
struct Table {
  Tensor ids, weight, rows;

  bool is_given() const { return weight.defined(); }
  kernels::EmbeddingTable call() const {
    if (!is_given()) return {};
    return {data<float>(weight), weight.size(0), ids.const_data_ptr<int64_t>()};
  }
};

void check_table(const char* name, const Tensor& ids, const Tensor& weight, const Tensor& word_ids, const Tensor& word) {
  TORCH_CHECK(weight.dim() == 2 && weight.size(1) == word.size(1), "embedding: the ", name, " table is ", weight.sizes(),
              "; it must be [size, H], with the H of the word table, ", word.size(1));
  TORCH_CHECK(ids.sizes() == word_ids.sizes(), "embedding: the ", name, " ids are ", ids.sizes(), ", the word ids ",
              word_ids.sizes(), "; they must be the same");
  TORCH_CHECK(ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt, "embedding: the ", name, " ids are ",
              ids.scalar_type(), "; they must be int64 or int32");
  TORCH_CHECK_NOT_IMPLEMENTED(weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kBFloat16, "embedding: the ",
                              name, " table is ", weight.scalar_type(), "; float32 and bfloat16 are supported");
  if (ids.numel() == 0) return;
  auto [least, greatest] = at::aminmax(ids);
  int64_t wrong = least.item<int64_t>() < 0 ? least.item<int64_t>() : greatest.item<int64_t>();
  TORCH_CHECK_INDEX(wrong >= 0 && wrong < weight.size(0), "embedding: there is a ", name, " id ", wrong,
                    "; the table has rows 0 to ", weight.size(0) - 1);
}

Table table_of(const char* name, const OptionalTensor& ids, const OptionalTensor& weight, const Tensor& word_ids,
               const Tensor& word) {
  TORCH_CHECK(is_given(ids) == is_given(weight), "embedding: ", name, " ids and the ", name,
              " table must be given together");
  if (!is_given(weight)) return {};
  check_table(name, *ids, *weight, word_ids, word);
  Tensor wide = ids->to(at::kLong).contiguous();
  if (weight->scalar_type() == at::kFloat) return {wide, weight->contiguous(), {}};
  auto [rows, places, counts] = at::_unique2(wide, /*sorted=*/true, /*return_inverse=*/true);
  return {places.contiguous(), as_float(weight->index_select(0, rows)), rows};
}

struct Tables {
  Table word, position, type;
  int64_t rows, H;

  Tables(const Tensor& ids, const Tensor& weight, const OptionalTensor& position_ids, const OptionalTensor& positions,
         const OptionalTensor& type_ids, const OptionalTensor& types)
      : word(table_of("word", ids, weight, ids, weight)),
        position(table_of("position", position_ids, positions, ids, weight)),
        type(table_of("type", type_ids, types, ids, weight)),
        rows(ids.numel()),
        H(weight.size(1)) {}

  kernels::EmbeddingInput call() const { return {word.call(), position.call(), type.call(), rows, H}; }
};

// The gradient of a table: a sum that the kernel adds to, and from it the whole table's.
struct TableGradient {
  const Table& table;
  Tensor sum;  // undefined where it is not wanted
  int64_t padding_idx;

  TableGradient(const Table& table, bool wanted, int64_t padding_idx)
      : table(table), sum(wanted ? at::zeros_like(table.weight) : Tensor()), padding_idx(padding_idx) {
    if (table.rows.defined()) {
      const int64_t *begin = table.rows.const_data_ptr<int64_t>(), *end = begin + table.rows.numel(),
                    *at = std::lower_bound(begin, end, padding_idx);
      this->padding_idx = at != end && *at == padding_idx ? at - begin : -1;
    }
  }

  kernels::EmbeddingTableGradient call() const { return {sum.defined() ? data<float>(sum) : nullptr, padding_idx}; }

  Tensor whole(const OptionalTensor& weight) const {
    if (!sum.defined()) return nothing();
    if (!table.rows.defined()) return sum;
    return at::zeros(weight->sizes(), weight->options()).index_copy_(0, table.rows, sum.to(weight->scalar_type()));
  }
};

// ---- Embedding ----

std::vector<int64_t> sizes_with(const Tensor& ids, int64_t H) {
  std::vector<int64_t> sizes = ids.sizes().vec();
  sizes.push_back(H);
  return sizes;
}

std::tuple<Tensor, Tensor, Tensor> embedding_forward(const Tensor& ids, const Tensor& word,
                                                     const OptionalTensor& position_ids, const OptionalTensor& position,
                                                     const OptionalTensor& type_ids, const OptionalTensor& type,
                                                     const OptionalTensor& gamma_, const OptionalTensor& beta_, double p,
                                                     double eps, const Tensor& seeds) {
  TORCH_CHECK(word.dim() == 2 && word.size(1) >= 1, "embedding: the word table is ", word.sizes(), "; it must be [size, H]");
  Tables tables(ids, word, position_ids, position, type_ids, type);
  OptionalTensor gamma = row_parameter("embedding", "gamma", gamma_, tables.H),
                 beta = row_parameter("embedding", "beta", beta_, tables.H);
  Tensor y = at::empty(sizes_with(ids, tables.H), word.options()), mean = at::empty({tables.rows}, at::kFloat),
         rstd = at::empty({tables.rows}, at::kFloat);
  const kernels::Dropout dropout = dropout_of("embedding", p, seeds, 0);
  if (tables.rows == 0) return {y, mean, rstd};
  with_element_type("embedding", y, [&]<class T>(T) {
    kernels::embedding_forward<T>({.input = tables.call(),
                                   .gamma = data<float>(gamma),
                                   .beta = data<float>(beta),
                                   .y = data<T>(y),
                                   .mean = data<float>(mean),
                                   .rstd = data<float>(rstd),
                                   .eps = static_cast<float>(eps),
                                   .dropout = dropout});
  });
  return {y, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> embedding_forward_meta(const Tensor& ids, const Tensor& word, const OptionalTensor&,
                                                          const OptionalTensor&, const OptionalTensor&,
                                                          const OptionalTensor&, const OptionalTensor&,
                                                          const OptionalTensor&, double, double, const Tensor&) {
  std::vector<c10::SymInt> sizes = ids.sym_sizes().vec();
  sizes.push_back(word.sym_size(1));
  auto per_row = [&] { return word.new_empty_symint({ids.sym_numel()}, at::TensorOptions(at::kFloat)); };
  return {word.new_empty_symint(sizes), per_row(), per_row()};
}

enum EmbeddingArgument { kIds, kWord, kPositionIds, kPosition, kTypeIds, kType, kGamma, kBeta };

// Of the word, position and type tables, gamma and beta. padding_idx: of word, position, type.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> embedding_backward(
    const Tensor& dy_, const Tensor& ids, const Tensor& word, const OptionalTensor& position_ids,
    const OptionalTensor& position, const OptionalTensor& type_ids, const OptionalTensor& type, const OptionalTensor& gamma_,
    const Tensor& mean, const Tensor& rstd, double p, at::IntArrayRef padding_idx, const Tensor& seeds, ArgumentSet wanted) {
  Tables tables(ids, word, position_ids, position, type_ids, type);
  OptionalTensor gamma = as_float(gamma_);
  Tensor dy = dy_.contiguous(), dz = at::empty({tables.rows, tables.H}, at::kFloat);
  TableGradient d_word(tables.word, has(wanted, kWord), padding_idx[0]),
      d_position(tables.position, has(wanted, kPosition), padding_idx[1]),
      d_type(tables.type, has(wanted, kType), padding_idx[2]);
  auto parameter = [&](EmbeddingArgument i) { return has(wanted, i) ? at::zeros({tables.H}, at::kFloat) : nothing(); };
  Tensor dgamma = parameter(kGamma), dbeta = parameter(kBeta);
  if (tables.rows > 0)
    with_element_type("embedding", dy, [&]<class T>(T) {
      kernels::embedding_backward<T>({.input = tables.call(),
                                      .dy = data<T>(dy),
                                      .mean = data<float>(mean),
                                      .rstd = data<float>(rstd),
                                      .gamma = data<float>(gamma),
                                      .dz = data<float>(dz),
                                      .dgamma = has(wanted, kGamma) ? data<float>(dgamma) : nullptr,
                                      .dbeta = has(wanted, kBeta) ? data<float>(dbeta) : nullptr,
                                      .word = d_word.call(),
                                      .position = d_position.call(),
                                      .type = d_type.call(),
                                      .dropout = dropout_of("embedding", p, seeds, 0)});
    });
  return {d_word.whole(word), d_position.whole(position), d_type.whole(type), dgamma, dbeta};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> embedding_backward_meta(
    const Tensor&, const Tensor&, const Tensor& word, const OptionalTensor&, const OptionalTensor& position,
    const OptionalTensor&, const OptionalTensor& type, const OptionalTensor&, const Tensor&, const Tensor&, double,
    at::IntArrayRef, const Tensor&, ArgumentSet wanted) {
  auto table = [&](EmbeddingArgument i, const OptionalTensor& weight) {
    return has(wanted, i) ? weight->new_empty_symint(weight->sym_sizes()) : nothing_like(word);
  };
  auto parameter = [&](EmbeddingArgument i) {
    return has(wanted, i) ? word.new_empty_symint({word.sym_size(1)}, at::TensorOptions(at::kFloat)) : nothing_like(word);
  };
  return {table(kWord, word), table(kPosition, position), table(kType, type), parameter(kGamma), parameter(kBeta)};
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& ids, const Tensor& word, const OptionalTensor& position_ids,
                        const OptionalTensor& position, const OptionalTensor& type_ids, const OptionalTensor& type,
                        const OptionalTensor& gamma, const OptionalTensor& beta, double p, double eps,
                        std::vector<int64_t> padding_idx) {
    at::AutoDispatchBelowADInplaceOrView below;
    Tensor seeds = draw_seeds(1, p > 0);
    static auto op = operator_named<decltype(embedding_forward)>("trireme::embedding_forward");
    auto [y, mean, rstd] = op.call(ids, word, position_ids, position, type_ids, type, gamma, beta, p, eps, seeds);
    ctx->save_for_backward({ids, word, or_undefined(position_ids), or_undefined(position), or_undefined(type_ids),
                            or_undefined(type), or_undefined(gamma), mean, rstd, seeds});
    ctx->saved_data["p"] = p;
    ctx->saved_data["padding_idx"] = std::move(padding_idx);
    ctx->saved_data["given"] = given_of({ids, word, position_ids, position, type_ids, type, gamma, beta});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    variable_list saved = ctx->get_saved_variables();
    const ArgumentSet wanted = wanted_of(ctx, ctx->saved_data["given"].toInt());
    static auto op = operator_named<decltype(embedding_backward)>("trireme::embedding_backward");
    auto [word, position, type, gamma, beta] =
        op.call(gradients[0], saved[0], saved[1], or_none(saved[2]), or_none(saved[3]), or_none(saved[4]), or_none(saved[5]),
                or_none(saved[6]), saved[7], saved[8], ctx->saved_data["p"].toDouble(),
                ctx->saved_data["padding_idx"].toIntVector(), saved[9], wanted);
    return gradients_for(11, wanted, {Tensor(), word, Tensor(), position, Tensor(), type, gamma, beta});
  }
};

// ---- Span loss ----

template <class T>
kernels::SpanLogits<T> span_logits(const Tensor& logits) {
  return {data<T>(logits), data<T>(logits) + 1, 2};
}

// Positions kept alive beside what points to them.
struct Targets {
  Tensor cu_seqlens, start, end;

  Targets(const Tensor& logits, const Tensor& cu_seqlens_, const Tensor& start_, const Tensor& end_)
      : cu_seqlens(cu_seqlens_.contiguous()), start(start_.contiguous()), end(end_.contiguous()) {
    TORCH_CHECK(logits.dim() == 2 && logits.size(1) == 2, "span_loss: the logits are ", logits.sizes(),
                "; they must be [tokens, 2]");
    bounds_of("span_loss", cu_seqlens, logits.size(0));
    for (const Tensor& positions : {start, end})
      TORCH_CHECK(positions.dim() == 1 && positions.scalar_type() == at::kLong && positions.numel() == sequences(),
                  "span_loss: positions are ", positions.sizes(), " of ", positions.scalar_type(), "; there must be ",
                  sequences(), " of int64, one per sequence");
  }

  int64_t sequences() const { return cu_seqlens.numel() - 1; }
  kernels::SpanTargets call() const {
    return {cu_seqlens.const_data_ptr<int64_t>(), start.const_data_ptr<int64_t>(), end.const_data_ptr<int64_t>(),
            sequences()};
  }
};

Tensor span_loss_forward(const Tensor& logits_, const Tensor& cu_seqlens, const Tensor& start, const Tensor& end) {
  Targets targets(logits_, cu_seqlens, start, end);
  Tensor logits = logits_.contiguous(), loss = at::empty({}, at::kFloat);
  with_element_type("span_loss", logits, [&]<class T>(T) {
    *data<float>(loss) = kernels::span_loss_forward<T>(span_logits<T>(logits), targets.call());
  });
  return loss;
}

Tensor span_loss_forward_meta(const Tensor& logits, const Tensor&, const Tensor&, const Tensor&) {
  return logits.new_empty({}, at::TensorOptions(at::kFloat));
}

Tensor span_loss_backward(const Tensor& loss_gradient, const Tensor& logits_, const Tensor& cu_seqlens, const Tensor& start,
                          const Tensor& end) {
  Targets targets(logits_, cu_seqlens, start, end);
  Tensor logits = logits_.contiguous(), gradient = at::empty(logits.sizes(), logits.options());
  const float scale = loss_gradient.item<float>();
  with_element_type("span_loss", logits, [&]<class T>(T) {
    kernels::span_loss_backward<T>(span_logits<T>(logits), targets.call(), scale,
                                   {data<T>(gradient), data<T>(gradient) + 1, 2});
  });
  return gradient;
}

Tensor span_loss_backward_meta(const Tensor&, const Tensor& logits, const Tensor&, const Tensor&, const Tensor&) {
  return logits.new_empty_symint(logits.sym_sizes());
}

struct SpanLoss : torch::autograd::Function<SpanLoss> {
  static Tensor forward(AutogradContext* ctx, const Tensor& logits, const Tensor& cu_seqlens, const Tensor& start,
                        const Tensor& end) {
    at::AutoDispatchBelowADInplaceOrView below;
    static auto op = operator_named<decltype(span_loss_forward)>("trireme::span_loss_forward");
    ctx->save_for_backward({logits, cu_seqlens, start, end});
    return op.call(logits, cu_seqlens, start, end);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    variable_list saved = ctx->get_saved_variables();
    static auto op = operator_named<decltype(span_loss_backward)>("trireme::span_loss_backward");
    return {op.call(gradients[0], saved[0], saved[1], saved[2], saved[3]), Tensor(), Tensor(), Tensor()};
  }
};

// Ids in the words' shape: positions are often given once for all sequences of a batch.
OptionalTensor broadcast(const OptionalTensor& ids, const Tensor& word_ids) {
  return is_given(ids) ? OptionalTensor(ids->expand_symint(word_ids.sym_sizes())) : std::nullopt;
}

Tensor embedding_front(const Tensor& ids, const Tensor& word, const OptionalTensor& position_ids,
                       const OptionalTensor& position, const OptionalTensor& type_ids, const OptionalTensor& type,
                       const OptionalTensor& gamma, const OptionalTensor& beta, double p, double eps, int64_t padding_idx,
                       int64_t position_padding_idx, int64_t type_padding_idx) {
  return EmbeddingFunction::apply(ids, word, broadcast(position_ids, ids), position, broadcast(type_ids, ids), type, gamma,
                                  beta, p, eps, std::vector<int64_t>{padding_idx, position_padding_idx, type_padding_idx});
}

}  // namespace

Tensor embedding(const Embedding& word, const Embedding& position, const Embedding& type, const OptionalTensor& gamma,
                 const OptionalTensor& beta, double p, double eps) {
  TORCH_CHECK(is_given(word.ids) && is_given(word.weight), "embedding: there are no words");
  return embedding_front(*word.ids, *word.weight, position.ids, position.weight, type.ids, type.weight, gamma, beta, p, eps,
                         word.padding_idx, position.padding_idx, type.padding_idx);
}

Tensor span_loss(const Tensor& logits, const Tensor& cu_seqlens, const Tensor& start_positions,
                 const Tensor& end_positions) {
  return SpanLoss::apply(logits, cu_seqlens, start_positions, end_positions);
}

TORCH_LIBRARY_FRAGMENT(trireme, m) {
  m.def(
      "embedding(Tensor ids, Tensor word, Tensor? position_ids, Tensor? position, Tensor? type_ids, Tensor? type, Tensor? "
      "gamma, Tensor? beta, float p, float eps, int padding_idx=-1, int position_padding_idx=-1, int type_padding_idx=-1) "
      "-> Tensor");
  m.def(
      "embedding_forward(Tensor ids, Tensor word, Tensor? position_ids, Tensor? position, Tensor? type_ids, Tensor? type, "
      "Tensor? gamma, Tensor? beta, float p, float eps, Tensor seeds) -> (Tensor, Tensor, Tensor)");
  m.def(
      "embedding_backward(Tensor y_gradient, Tensor ids, Tensor word, Tensor? position_ids, Tensor? position, Tensor? "
      "type_ids, Tensor? type, Tensor? gamma, Tensor mean, Tensor rstd, float p, int[] padding_idx, Tensor seeds, int "
      "wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");

  m.def("span_loss(Tensor logits, Tensor cu_seqlens, Tensor start_positions, Tensor end_positions) -> Tensor");
  m.def("span_loss_forward(Tensor logits, Tensor cu_seqlens, Tensor start_positions, Tensor end_positions) -> Tensor");
  m.def(
      "span_loss_backward(Tensor loss_gradient, Tensor logits, Tensor cu_seqlens, Tensor start_positions, Tensor "
      "end_positions) -> Tensor");
}
TORCH_LIBRARY_IMPL(trireme, CPU, m) {
  m.impl("embedding_forward", &embedding_forward);
  m.impl("embedding_backward", &embedding_backward);
  m.impl("span_loss_forward", &span_loss_forward);
  m.impl("span_loss_backward", &span_loss_backward);
}
TORCH_LIBRARY_IMPL(trireme, Meta, m) {
  m.impl("embedding_forward", &embedding_forward_meta);
  m.impl("embedding_backward", &embedding_backward_meta);
  m.impl("span_loss_forward", &span_loss_forward_meta);
  m.impl("span_loss_backward", &span_loss_backward_meta);
}
TORCH_LIBRARY_IMPL(trireme, CompositeImplicitAutograd, m) {
  m.impl("embedding", &embedding_front);
  m.impl("span_loss", &span_loss);
}
TORCH_LIBRARY_IMPL(trireme, Autograd, m) {
  refuse_derivatives(m, {"embedding_forward", "embedding_backward", "span_loss_forward", "span_loss_backward"});
}

}  // namespace trireme::ops
