// Writes what a run reports, for the tests that read it with other programs.
//   write_report events DIR            scalars, for TensorBoard; prints the file's name
//   write_report state FROM TO         reads a trainer_state.json and writes it again
//   write_report metrics FILE DIR      saves the metrics in FILE as those of "train" below DIR, and prints their table
#include <iostream>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/trainer/report/events.h"
#include "trireme/trainer/report/results.h"
#include "trireme/trainer/report/trainer_state.h"

namespace trireme::trainer {
namespace {

void write_events(const std::string& directory) {
  EventWriter writer(directory);
  for (int64_t step = 1; step <= 300; ++step)
    writer.scalars({{"train/loss", 1.0 / static_cast<double>(step)}, {"train/learning_rate", 3e-5}}, step * 1000);
  writer.scalar("eval/f1", 88.5, int64_t{1} << 40);
  writer.scalar("eval/nothing", std::numeric_limits<double>::quiet_NaN(), 0);
  std::cout << writer.file().string() << '\n';
}

int run(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "events")
    write_events(words[1]);
  else if (words.size() == 3 && words[0] == "state")
    save_state(load_state(words[1]), words[2]);
  else if (words.size() == 3 && words[0] == "metrics") {
    const Json metrics = read_json(words[1]);
    save_metrics(words[2], "train", metrics);
    std::cout << metrics_table("train", metrics);
  } else
    return 1;
  return 0;
}

}  // namespace
}  // namespace trireme::trainer

int main(int count, char** words) {
  try {
    return trireme::trainer::run({words + 1, words + count});
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
