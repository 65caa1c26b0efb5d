// docs/threads.md: every row of its table of examples is what the plan says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/cpu/affinity.h"
#include "trireme/cpu/plan.h"
#include "trireme/cpu/temporary_root.h"

namespace trireme::cpu {
namespace {

struct Row {
  std::string machine, granted, quota, ranks, settings, rank, line;
};

// "a `b` " => "a b"
std::string plain(std::string cell) {
  std::erase(cell, '`');
  size_t begin = cell.find_first_not_of(' ');
  return begin == std::string::npos ? "" : cell.substr(begin, cell.find_last_not_of(' ') - begin + 1);
}

std::vector<Row> rows_of_the_page() {
  std::ifstream page(std::string(TRIREME_DOCS) + "/threads.md");
  std::vector<Row> rows;
  for (std::string text; std::getline(page, text);) {
    if (!text.starts_with("| `pack:")) continue;
    std::vector<std::string> cells;
    std::istringstream parts(text.substr(1));
    for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(plain(cell));
    if (cells.size() != 7) throw InvalidArgument("a row has other than 7 cells: " + text);
    rows.push_back({cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]});
  }
  return rows;
}

// The settings of a row: variables of the environment, as a user would set them.
UserSettings read_settings(const std::string& settings) {
  TemporaryRoot no_ancestors;
  std::vector<std::string> names;
  std::istringstream words(settings);
  for (std::string word; words >> word;) {
    names.push_back(word.substr(0, word.find('=')));
    setenv(names.back().c_str(), word.substr(word.find('=') + 1).c_str(), 1);
  }
  UserSettings result = read_user_settings(no_ancestors.path());
  for (const std::string& name : names) unsetenv(name.c_str());
  return result;
}

// A job on two hosts that are alike.
PlanInput input_of(const Row& row) {
  PlanInput input;
  input.topology = synthetic_topology(row.machine);
  for (const Core& core : input.topology.cores) input.granted.insert(input.granted.end(), core.cpus.begin(), core.cpus.end());
  std::ranges::sort(input.granted);
  std::istringstream granted(row.granted);
  std::string kind, list;  // "all", "cpuset LIST", "mask LIST", "own mask LIST"
  granted >> kind;
  while (granted >> list) continue;
  if (kind != "all") input.granted = parse_cpu_list(list);
  input.mask_was_set = kind == "mask" || kind == "own";
  if (row.quota != "") input.quota = std::stod(row.quota);
  input.local_rank = std::stoi(row.rank);
  input.local_size = std::stoi(row.ranks);
  input.world_size = 2 * input.local_size;
  if (kind == "own") {  // the others have theirs elsewhere
    input.masks.resize(static_cast<size_t>(input.local_size));
    input.masks[static_cast<size_t>(input.local_rank)] = input.granted;
  }
  input.user = read_settings(row.settings);
  return input;
}

TEST(ThreadsPage, ItsExamplesAreWhatThePlanSays) {
  const std::vector<Row> rows = rows_of_the_page();
  ASSERT_GE(rows.size(), 15u) << "the table of docs/threads.md was not found";
  for (const char* name : {"OMP_NUM_THREADS", "TORCHELASTIC_RUN_ID", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND",
                           "KMP_HW_SUBSET", "I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST", "I_MPI_PIN_PROCS", "TRIREME_PIN",
                           "CCL_WORKER_AFFINITY", "CCL_WORKER_COUNT", "CCL_WORKER_OFFLOAD"})
    unsetenv(name);
  for (const Row& row : rows) {
    std::string sentence = make_plan(input_of(row)).sentence;
    std::string prefix = str("local rank ", row.rank, " of ", row.ranks, ": ");
    if (sentence.starts_with(prefix)) sentence.erase(0, prefix.size());
    EXPECT_EQ(sentence, row.line) << row.machine << ", granted " << row.granted << ", " << row.ranks << " ranks, " << row.settings;
  }
}

}  // namespace
}  // namespace trireme::cpu
