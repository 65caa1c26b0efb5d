// Weights in Hugging Face's safetensors format: 8 bytes of length, a JSON header, the tensors end to end, little endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::trainer {

// In the order by which the format's own writer lays tensors out, last first: the widest come first and all are aligned.
enum class Dtype : uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};

std::string_view dtype_name(Dtype dtype);  // as the format spells it: "BOOL", "F32"
std::optional<Dtype> find_dtype(std::string_view name);
size_t dtype_bits(Dtype dtype);

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;  // empty: one element
  std::span<const std::byte> data;
};

struct SafetensorsContent {
  std::vector<TensorEntry>
      entries;  // in the order of their data, which lies in the bytes that were parsed, at any alignment
  std::map<std::string, std::string> metadata;
};

// The whole of a file. InvalidArgument names `source`, the tensor and what is wrong with it. Takes any bytes at all.
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& source);

// A file, mapped read-only. Owns the mapping, into which the entries' data point; threads may share it; the constructor
// reads the header only, pages of data are read when they are touched. A file must not be cut short while it is mapped (it
// may be replaced): touching what is gone ends the process.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path);  // IoError, InvalidArgument
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;
  ~SafetensorsFile();

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorEntry>& entries() const { return content_.entries; }
  const std::map<std::string, std::string>& metadata() const { return content_.metadata; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> mapping_;
  SafetensorsContent content_;
};

// Which shard of a model holds which tensor: "weight_map" of a model.safetensors.index.json. A shard is a name in the same
// folder, never a path. InvalidArgument.
std::map<std::string, std::string> read_safetensors_index(const std::filesystem::path& path);

// The weights of a model's directory: model.safetensors, else the shards that model.safetensors.index.json names. Owns the
// mappings; threads may share it. The constructor sees every header and throws what SafetensorsFile throws; a directory
// without such weights, or an index that does not fit its shards, is an InvalidArgument.
class SafetensorsModel {
 public:
  explicit SafetensorsModel(const std::filesystem::path& directory);

  const TensorEntry* find(std::string_view name) const;  // nullptr: there is none
  std::vector<std::string> names() const;                // sorted
  // For messages: the file that holds a tensor, which must exist.
  const std::filesystem::path& file_of(std::string_view name) const;

 private:
  struct Place {
    const TensorEntry* entry;
    size_t file;
  };
  void add_shards(const std::filesystem::path& index);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> places_;
};

// Writes a file whole or not at all, byte for byte as the `safetensors` package does (which puts several entries of
// metadata in no particular order; here they are sorted). InvalidArgument if entries contradict themselves or each other,
// IoError if the disk refuses.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorEntry>& entries,
                       const std::map<std::string, std::string>& metadata);

}  // namespace trireme::trainer
