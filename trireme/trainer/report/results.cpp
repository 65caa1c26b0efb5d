#include "trireme/trainer/report/results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/trainer/files/files.h"

namespace trireme::trainer {
namespace {

// As Python's round(): the decimal number nearest to the binary one.
double rounded(double value, int digits) {
  if (!std::isfinite(value)) return value;
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return std::strtod(buffer, nullptr);
}

std::string two_digits(int64_t value) { return str(value < 10 ? "0" : "", value); }

// 0:00:12.34, 1 day, 2:00:00.00: the hundredths are cut off, not rounded.
std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  const auto hundredths = static_cast<int64_t>(std::abs(seconds - static_cast<double>(whole)) * 100);
  const int64_t days = whole / 86400, rest = whole % 86400;
  const std::string day_text = days == 0 ? "" : str(days, days == 1 ? " day, " : " days, ");
  return str(day_text, rest / 3600, ":", two_digits(rest / 60 % 60), ":", two_digits(rest % 60), ".",
             two_digits(hundredths));
}

std::string value_text(const std::string& name, const Json& value) {
  if (value.is_number() && name.find("_mem_") != std::string::npos) return str(value.get<int64_t>() >> 20, "MB");
  if (value.is_number() && name.find("_runtime") != std::string::npos) return duration_text(value.get<double>());
  if (value.is_number() && name == "total_flos") return str(static_cast<int64_t>(value.get<double>()) >> 30, "GF");
  if (value.is_number_float()) return python_repr(rounded(value.get<double>(), 4));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// nlohmann::json keeps its keys in order.
std::string sorted_text(const Json& json) { return nlohmann::json(json).dump(4); }

// A file that is spoilt is no reason to lose what a whole training has found.
Json earlier_results(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return Json::object();
  try {
    const Json all = read_python_json(file);
    return JsonPlace(all, file.string()).object();
  } catch (const InvalidArgument& error) {
    log(LogLevel::warn, str(error.what(), "; the file is written anew"));
    return Json::object();
  }
}

}  // namespace

Json speed_metrics(std::string_view split, double seconds, int64_t samples, int64_t steps) {
  Json metrics = {{str(split, "_runtime"), rounded(seconds, 4)}};
  if (seconds <= 0) return metrics;
  const auto per_second = [&](int64_t count) { return rounded(static_cast<double>(count) / seconds, 3); };
  metrics[str(split, "_samples_per_second")] = per_second(samples);
  metrics[str(split, "_steps_per_second")] = per_second(steps);
  return metrics;
}

void save_metrics(const std::filesystem::path& output_dir, std::string_view split, const Json& metrics) {
  make_directory(output_dir);
  write_file_atomically(output_dir / str(split, "_results.json"), sorted_text(metrics));
  const std::filesystem::path all_file = output_dir / "all_results.json";
  Json all = earlier_results(all_file);
  for (const auto& [name, value] : metrics.items()) all[name] = value;
  write_file_atomically(all_file, sorted_text(all));
}

std::string metrics_table(std::string_view split, const Json& metrics) {
  std::map<std::string, std::string> rows;
  size_t name_width = 0, value_width = 0;
  for (const auto& [name, value] : metrics.items()) {
    const std::string& text = rows[name] = value_text(name, value);
    name_width = std::max(name_width, name.size());
    value_width = std::max(value_width, text.size());
  }
  std::string table = str("***** ", split, " metrics *****\n");
  for (const auto& [name, text] : rows)
    table += str("  ", name, std::string(name_width - name.size(), ' '), " = ", std::string(value_width - text.size(), ' '),
                 text, "\n");
  return table;
}

}  // namespace trireme::trainer
