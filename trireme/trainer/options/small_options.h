// What the smaller subcommands are told: ask, info and bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/trainer/options/flags.h"

namespace trireme::trainer {

// `trireme ask`: a trained model answers questions about a text. Without --question, questions are read from stdin, one a
// line.
struct AskOptions {
  std::string model_name_or_path;
  std::optional<std::string> tokenizer_name, cache_dir, token;
  std::string model_revision = "main";
  std::optional<std::string> context, context_file;
  std::vector<std::string> question;
  int64_t max_seq_length = 384;
  int64_t doc_stride = 128;
  int64_t n_best_size = 20;
  int64_t max_answer_length = 30;
  bool version_2_with_negative = false;
  double null_score_diff_threshold = 0.0;
  int64_t top = 1;
  bool json = false;
};
FlagTable ask_flags(AskOptions& options);
struct AskCommand {
  AskOptions options;
  Given given;
};
AskCommand parse_ask(const std::vector<std::string>& arguments);
std::string ask_help();

// `trireme info`: this machine, and what a run on it would choose.
struct InfoOptions {
  std::optional<int64_t> ranks, hosts;  // as the launcher has it, or one
  bool json = false;
};
FlagTable info_flags(InfoOptions& options);
struct InfoCommand {
  InfoOptions options;
  Given given;
};
InfoCommand parse_info(const std::vector<std::string>& arguments);
std::string info_help();

// `trireme bench`: how fast the collectives are between the processes of this job.
struct BenchOptions {
  std::vector<std::string> collectives = {"allreduce"};
  std::string dtype = "float32";
  int64_t min_bytes = 1024;
  int64_t max_bytes = 16777216;
  double seconds = 1.0;  // for each size
  bool shared_buffers = false;
  bool json = false;
};
FlagTable bench_flags(BenchOptions& options);
struct BenchCommand {
  BenchOptions options;
  Given given;
};
BenchCommand parse_bench(const std::vector<std::string>& arguments);
std::string bench_help();

}  // namespace trireme::trainer
