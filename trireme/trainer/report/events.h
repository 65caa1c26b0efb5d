// TensorBoard's event files: TFRecords that hold Event messages (protobuf), written by hand as there are only a few fields.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/fd.h"

namespace trireme::trainer {

// Owns one file, DIRECTORY/events.out.tfevents.<time>.<host>.<pid>.<n>, which begins with the format's version. Each call is
// one write of a whole record, without a buffer: TensorBoard sees it at once, and a crash loses nothing. Not for several
// threads. IoError names the file and the remedy; what was written before stays readable.
class EventWriter {
 public:
  explicit EventWriter(const std::filesystem::path& directory);

  void scalar(std::string_view tag, double value, int64_t step) { scalars({{std::string(tag), value}}, step); }
  // Several values of one step, in one record.
  void scalars(const std::vector<std::pair<std::string, double>>& values, int64_t step);

  const std::filesystem::path& file() const { return file_; }

 private:
  void append(std::string_view event);

  std::filesystem::path file_;
  UniqueFd fd_;
};

// Hugging Face's names: "eval_f1" is shown as eval/f1, "test_f1" as test/f1, all others as train/<name>.
std::string tensorboard_tag(std::string_view metric);

// Hugging Face's place: OUTPUT_DIR/runs/Nov16_10-08-19_host.
std::filesystem::path default_logging_dir(const std::filesystem::path& output_dir);

}  // namespace trireme::trainer
