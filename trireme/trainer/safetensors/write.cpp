#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/trainer/files/files.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/safetensors/layout.h"

namespace trireme::trainer {
namespace {

// With quotes and escapes. Throws InvalidArgument if it is not UTF-8.
std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    throw InvalidArgument(str("a name or a text to be written is not UTF-8: ",
                              Json(text).dump(-1, ' ', true, Json::error_handler_t::replace)));
  }
}

void check(const std::vector<const TensorEntry*>& entries) {
  std::set<std::string_view> names;
  for (const TensorEntry* entry : entries) {
    const auto bytes = tensor_bytes(entry->dtype, entry->shape);
    if (!bytes || *bytes != entry->data.size()) {
      throw InvalidArgument(str("tensor \"", entry->name, "\": its ", entry->data.size(), " bytes do not fit its shape and ",
                                dtype_name(entry->dtype)));
    }
    if (entry->name == kMetadataKey) throw InvalidArgument("a tensor cannot be named __metadata__");
    if (!names.insert(entry->name).second) throw InvalidArgument(str("two tensors are named \"", entry->name, "\""));
  }
}

// The widest first, so that each lies at a multiple of its width; then by name.
std::vector<const TensorEntry*> in_order_of_layout(const std::vector<TensorEntry>& entries) {
  std::vector<const TensorEntry*> ordered;
  for (const TensorEntry& entry : entries) ordered.push_back(&entry);
  std::sort(ordered.begin(), ordered.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::tie(b->dtype, a->name) < std::tie(a->dtype, b->name);
  });
  return ordered;
}

std::string metadata_text(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) text += str(text.empty() ? "" : ",", quoted(key), ":", quoted(value));
  return str(quoted(std::string(kMetadataKey)), ":{", text, "}");
}

std::string tensor_text(const TensorEntry& entry, uint64_t begin) {
  std::string shape;
  for (const int64_t extent : entry.shape) shape += str(shape.empty() ? "" : ",", extent);
  return str(quoted(entry.name), ":{\"dtype\":\"", dtype_name(entry.dtype), "\",\"shape\":[", shape, "],\"data_offsets\":[",
             begin, ",", begin + entry.data.size(), "]}");
}

// Spaces at its end make the data begin at a multiple of 8.
std::string header_text(const std::vector<const TensorEntry*>& entries, const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += metadata_text(metadata);
  uint64_t begin = 0;
  for (const TensorEntry* entry : entries) {
    if (text.size() > 1) text += ",";
    text += tensor_text(*entry, begin);
    begin += entry->data.size();
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    throw InvalidArgument("the names and metadata take more than 100 MB, the format's limit");
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorEntry>& entries,
                       const std::map<std::string, std::string>& metadata) {
  const auto ordered = in_order_of_layout(entries);
  check(ordered);
  const std::string header = header_text(ordered, metadata);
  std::array<uint8_t, kLengthBytes> length;
  for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<uint8_t>(header.size() >> 8 * i);

  NewFile file(path);
  file.write(length.data(), length.size());
  file.write(header.data(), header.size());
  for (const TensorEntry* entry : ordered) file.write(entry->data.data(), entry->data.size());
  file.commit();
}

}  // namespace trireme::trainer
