#include "trireme/trainer/model/weights.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include "trireme/base/error.h"
#include "trireme/trainer/safetensors/safetensors.h"

namespace trireme::trainer {
namespace {

std::string replaced_end(const std::string& name, std::string_view end, std::string_view by) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) + std::string(by) : name;
}

// The names under which a parameter may stand in a file.
std::vector<std::string> spellings(const std::string& name) {
  std::vector<std::string> all{name};
  const size_t dot = name.find('.');
  if (!name.starts_with("qa_outputs")) all.push_back(name.substr(dot + 1));  // a bare encoder's
  for (size_t i = 0, count = all.size(); i < count; ++i) {
    std::string old =
        replaced_end(replaced_end(all[i], "LayerNorm.weight", "LayerNorm.gamma"), "LayerNorm.bias", "LayerNorm.beta");
    if (old != all[i]) all.push_back(std::move(old));
  }
  return all;
}

const TensorEntry* find(const SafetensorsModel& file, const std::string& name) {
  for (const std::string& spelling : spellings(name))
    if (const TensorEntry* entry = file.find(spelling)) return entry;
  return nullptr;
}

at::ScalarType float_type(const TensorEntry& entry, const std::filesystem::path& file) {
  switch (entry.dtype) {
    case Dtype::f64: return at::kDouble;
    case Dtype::f32: return at::kFloat;
    case Dtype::f16: return at::kHalf;
    case Dtype::bf16: return at::kBFloat16;
    default:
      throw InvalidArgument(
          str(file.string(), ": ", entry.name, " is ", dtype_name(entry.dtype), "; weights must be F32, F64, F16 or BF16"));
  }
}

void fill(const Parameter& parameter, const TensorEntry& entry, const std::filesystem::path& file) {
  const at::ScalarType type = float_type(entry, file);
  if (parameter.value.sizes() != at::IntArrayRef(entry.shape))
    throw InvalidArgument(trireme::str(file.string(), ": ", entry.name, " has shape ", at::IntArrayRef(entry.shape),
                                       "; by config.json it should have ", parameter.value.sizes()));
  // The mapping is read-only, and so are we: copy_ converts from it.
  const at::Tensor source = at::from_blob(const_cast<std::byte*>(entry.data.data()), entry.shape, at::TensorOptions(type));
  parameter.value.detach().copy_(source);
}

void initialise(const Parameter& parameter, double range, at::Generator& generator) {
  at::Tensor value = parameter.value.detach();
  if (parameter.name.ends_with(".bias"))
    value.zero_();
  else
    value.normal_(0, range, generator);
}

}  // namespace

LoadedWeights load_weights(QaModel& model, const std::filesystem::path& directory, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const SafetensorsModel file(directory);
  at::Generator generator = at::detail::createCPUGenerator(seed);
  LoadedWeights loaded;
  for (const Parameter& parameter : model.parameters()) {
    if (const TensorEntry* entry = find(file, parameter.name)) {
      fill(parameter, *entry, file.file_of(entry->name));
    } else if (parameter.name.starts_with("qa_outputs")) {
      initialise(parameter, model.config().initializer_range, generator);
      loaded.new_ones.push_back(parameter.name);
    } else {
      throw InvalidArgument(str(directory.string(), ": the weights have no ", parameter.name, ", which a model of type ",
                                name_of(model.config().family), " with ", model.config().layers,
                                " layers needs; do config.json and the weights belong together?"));
    }
  }
  return loaded;
}

void save_weights(const std::filesystem::path& file, const QaModel& model, const std::vector<at::Tensor>& weights) {
  std::vector<at::Tensor> kept;  // until they are written
  std::vector<TensorEntry> entries;
  for (size_t i = 0; i < weights.size(); ++i) {
    kept.push_back(weights[i].detach().to(at::kFloat).contiguous());
    const at::Tensor& value = kept.back();
    entries.push_back({model.parameters()[i].name,
                       Dtype::f32,
                       value.sizes().vec(),
                       {static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()}});
  }
  write_safetensors(file, entries, {{"format", "pt"}});
}

}  // namespace trireme::trainer
