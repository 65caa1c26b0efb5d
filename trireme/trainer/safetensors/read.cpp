// Reads a header that anybody may have written: every number in it is checked before it is used.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/trainer/safetensors/layout.h"

namespace trireme::trainer {
namespace {

// Not the ordered kind: that one looks a key up by comparing it with all others.
using Header = nlohmann::json;

struct Range {
  uint64_t begin, end;
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  SafetensorsContent read() {
    const std::string_view text = header_text();
    data_ = bytes_.subspan(kLengthBytes + text.size());
    const Header header = parse(text);
    for (const auto& [key, value] : header.items()) {
      if (key == kMetadataKey) {
        read_metadata(value);
      } else {
        read_tensor(key, value);
      }
    }
    check_ranges();
    for (Found& found : tensors_) content_.entries.push_back(std::move(found.entry));
    return std::move(content_);
  }

 private:
  struct Found {
    TensorEntry entry;
    Range range;
  };

  [[noreturn]] void refuse(const std::string& what) const { throw InvalidArgument(str(source_, ": ", what)); }

  [[noreturn]] void refuse(const std::string& tensor, const std::string& what) const {
    refuse(str("tensor \"", tensor, "\": ", what));
  }

  std::string_view header_text() const {
    if (bytes_.size() < kLengthBytes) {
      refuse(str("has ", bytes_.size(), " bytes, too few for a safetensors file; it was cut short, or is something else"));
    }
    uint64_t length = 0;
    for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<uint8_t>(bytes_[i]);
    if (length > kMaxHeaderBytes) refuse(str("announces a header of ", length, " bytes: not a safetensors file"));
    if (length > bytes_.size() - kLengthBytes) {
      refuse(str("announces a header of ", length, " bytes but has ", bytes_.size(), " in all; it was cut short"));
    }
    return {reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes, length};
  }

  Header parse(std::string_view text) const {
    // The parser takes a zero for the end of the text and skips a byte order mark; neither is JSON.
    if (text.empty() || text.front() != '{') refuse("the header is not a JSON object");
    if (text.find('\0') != std::string_view::npos) refuse("the header is not JSON: it contains a zero byte");
    std::vector<std::set<std::string>> keys;
    const auto notice = [&](int, Header::parse_event_t event, Header& value) {
      if (event == Header::parse_event_t::object_start) keys.emplace_back();
      if (event == Header::parse_event_t::object_end) keys.pop_back();
      if (event == Header::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
        refuse(str("the header has the key ", value.dump(-1, ' ', false, Header::error_handler_t::replace), " twice"));
      }
      return true;
    };
    try {
      return Header::parse(text, notice);
    } catch (const Header::exception& error) {  // also numbers that no type can hold
      refuse(str("the header is not JSON: ", error.what()));
    }
  }

  void read_metadata(const Header& value) {
    if (!value.is_object()) refuse("__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) refuse(str("__metadata__: \"", key, "\" is not a string"));
      content_.metadata[key] = text.get<std::string>();
    }
  }

  void read_tensor(const std::string& name, const Header& value) {
    if (!value.is_object()) refuse(name, "is not an object");
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!value.contains(key)) refuse(name, str("has no ", key));
    }
    Found found;
    found.entry.name = name;
    found.entry.dtype = read_dtype(name, value["dtype"]);
    found.entry.shape = read_shape(name, value["shape"]);
    found.range = read_range(name, value["data_offsets"]);
    const auto [begin, end] = found.range;
    const auto bytes = tensor_bytes(found.entry.dtype, found.entry.shape);
    if (!bytes) refuse(name, str("shape ", value["shape"].dump(), " overflows or does not end on a byte"));
    if (*bytes != end - begin) {
      refuse(name, str(dtype_name(found.entry.dtype), " of shape ", value["shape"].dump(), " takes ", *bytes,
                       " bytes, but its data_offsets span ", end - begin));
    }
    found.entry.data = data_.subspan(begin, end - begin);
    tensors_.push_back(std::move(found));
  }

  Dtype read_dtype(const std::string& name, const Header& value) const {
    if (!value.is_string()) refuse(name, "dtype is not a string");
    const auto dtype = find_dtype(value.get_ref<const std::string&>());
    if (!dtype) refuse(name, str("dtype ", value.dump(), " is not known"));
    return *dtype;
  }

  std::vector<int64_t> read_shape(const std::string& name, const Header& value) const {
    if (!value.is_array()) refuse(name, "shape is not an array");
    std::vector<int64_t> shape;
    for (const Header& extent : value) {
      if (!extent.is_number_unsigned() || extent.get<uint64_t>() > INT64_MAX) {
        refuse(name, str("shape ", value.dump(), " has an extent that is not a whole number from 0 to 2^63 - 1"));
      }
      shape.push_back(extent.get<int64_t>());
    }
    return shape;
  }

  Range read_range(const std::string& name, const Header& value) const {
    const auto is_offset = [](const Header& offset) { return offset.is_number_unsigned(); };
    if (!value.is_array() || value.size() != 2 || !std::all_of(value.begin(), value.end(), is_offset)) {
      refuse(name, "data_offsets are not two whole numbers");
    }
    const Range range{value[0].get<uint64_t>(), value[1].get<uint64_t>()};
    if (range.begin > range.end) refuse(name, str("data_offsets ", value.dump(), " end before they begin"));
    if (range.end > data_.size()) {
      refuse(name, str("data_offsets ", value.dump(), " lie beyond the file's ", data_.size(),
                       " bytes of data; it was cut short"));
    }
    return range;
  }

  // Every byte of data belongs to exactly one tensor, so that a file has no room for anything hidden.
  void check_ranges() {
    std::sort(tensors_.begin(), tensors_.end(), [](const Found& a, const Found& b) {
      return std::tie(a.range.begin, a.range.end, a.entry.name) < std::tie(b.range.begin, b.range.end, b.entry.name);
    });
    uint64_t covered = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const auto& [entry, range] = tensors_[i];
      // With a range before it: the first one begins at 0 or above.
      if (range.begin < covered) refuse(entry.name, str("its data overlap those of \"", tensors_[i - 1].entry.name, "\""));
      if (range.begin > covered)
        refuse(entry.name, str("before its data lie ", range.begin - covered, " bytes that are nobody's"));
      covered = range.end;
    }
    if (covered < data_.size())
      refuse(str("after the last tensor lie ", data_.size() - covered, " bytes that are nobody's"));
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
  std::span<const std::byte> data_;
  std::vector<Found> tensors_;
  SafetensorsContent content_;
};

}  // namespace

std::optional<uint64_t> tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape) {
  uint64_t bits = dtype_bits(dtype);
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bits, static_cast<uint64_t>(extent), &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& source) {
  return Reader(bytes, source).read();
}

}  // namespace trireme::trainer
