#include "trireme/trainer/report/events.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

#include "trireme/base/error.h"
#include "trireme/trainer/files/files.h"
#include "trireme/trainer/report/crc32c.h"

namespace trireme::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "records and protobuf are little-endian");

template <class T>
void put_fixed(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// Protobuf's ways to write a field.
enum class Wire : uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_key(std::string& out, uint64_t field, Wire wire) { put_varint(out, field << 3 | static_cast<uint64_t>(wire)); }

void put_varint_field(std::string& out, uint64_t field, uint64_t value) {
  put_key(out, field, Wire::varint);
  put_varint(out, value);
}

void put_double_field(std::string& out, uint64_t field, double value) {
  put_key(out, field, Wire::fixed64);
  put_fixed(out, value);
}

void put_float_field(std::string& out, uint64_t field, float value) {
  put_key(out, field, Wire::fixed32);
  put_fixed(out, value);
}

void put_bytes_field(std::string& out, uint64_t field, std::string_view value) {
  put_key(out, field, Wire::bytes);
  put_varint(out, value.size());
  out += value;
}

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string event_header(int64_t step) {
  std::string event;
  put_double_field(event, 1, wall_time());
  put_varint_field(event, 2, static_cast<uint64_t>(step));
  return event;
}

// Summary.Value: tag = 1, simple_value = 2.
std::string scalar_value(std::string_view tag, double value) {
  std::string message;
  put_bytes_field(message, 1, tag);
  put_float_field(message, 2, static_cast<float>(value));
  return message;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

// Two writers of one process have different files.
std::string file_name() {
  static std::atomic<int> count{0};
  return str("events.out.tfevents.", static_cast<int64_t>(wall_time()), ".", host_name(), ".", ::getpid(), ".", count++);
}

[[noreturn]] void fail(const std::filesystem::path& file, int error_number) {
  throw IoError(write_failure(file, error_number) + "; --report_to none does without TensorBoard's files");
}

}  // namespace

EventWriter::EventWriter(const std::filesystem::path& directory) {
  make_directory(directory);
  file_ = directory / file_name();
  fd_.reset(::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
  if (!fd_) fail(file_, errno);
  std::string event;
  put_double_field(event, 1, wall_time());
  put_bytes_field(event, 3, "brain.Event:2");
  append(event);
}

void EventWriter::scalars(const std::vector<std::pair<std::string, double>>& values, int64_t step) {
  std::string summary;
  for (const auto& [tag, value] : values) put_bytes_field(summary, 1, scalar_value(tag, value));
  std::string event = event_header(step);
  put_bytes_field(event, 5, summary);
  append(event);
}

// A record: the length, its CRC, the data, its CRC.
void EventWriter::append(std::string_view event) {
  std::string record;
  put_fixed(record, static_cast<uint64_t>(event.size()));
  put_fixed(record, masked_crc32c(record));
  record += event;
  put_fixed(record, masked_crc32c(event));
  for (std::string_view rest = record; !rest.empty();) {
    const ssize_t written = ::write(fd_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(file_, errno);
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

std::string tensorboard_tag(std::string_view metric) {
  for (std::string_view split : {"eval", "test"})
    if (metric.starts_with(str(split, "_"))) return str(split, "/", metric.substr(split.size() + 1));
  return str("train/", metric);
}

std::filesystem::path default_logging_dir(const std::filesystem::path& output_dir) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[64] = {};
  std::strftime(text, sizeof text, "%b%d_%H-%M-%S", &local);
  return output_dir / "runs" / str(text, "_", host_name());
}

}  // namespace trireme::trainer
