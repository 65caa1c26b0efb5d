#include "trireme/trainer/options/small_options.h"

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

constexpr std::string_view kAsk =
    "trireme ask: a fine-tuned model answers questions about a text.\n"
    "\n"
    "  trireme ask --model OUT --context_file text.txt --question \"Who was it?\"\n"
    "  trireme ask --model OUT --context_file text.txt      questions from stdin, one a line\n";

constexpr std::string_view kInfo =
    "trireme info: this machine, and what a run on it would choose and why.\n"
    "\n"
    "  trireme info --ranks 2           as if two processes ran on this host\n";

constexpr std::string_view kBench =
    "trireme bench: how fast the collectives are between the processes of this job.\n"
    "\n"
    "  mpirun -n 2 trireme bench --collectives allreduce broadcast\n";

template <class Command>
Command parse(FlagTable (*flags)(decltype(Command::options)&), const std::vector<std::string>& arguments) {
  Command command;
  command.given = parse_flags(flags(command.options), arguments);
  return command;
}

template <class Options>
std::string help(FlagTable (*flags)(Options&), std::string_view introduction) {
  Options defaults;
  return help_text(flags(defaults), introduction);
}

void check(const AskOptions& o) {
  if (o.model_name_or_path.empty())
    throw InvalidArgument("--model is missing: the --output_dir of a `trireme qa` run, say");
  if (o.context.has_value() == o.context_file.has_value())
    throw InvalidArgument("one of --context and --context_file is wanted: the text in which to look for answers");
  if (o.doc_stride >= o.max_seq_length)
    throw InvalidArgument(
        str("--doc_stride ", o.doc_stride, ": it must be below --max_seq_length, which is ", o.max_seq_length));
}

void check(const BenchOptions& o) {
  if (o.min_bytes > o.max_bytes)
    throw InvalidArgument(str("--min_bytes ", o.min_bytes, ": it must not be above --max_bytes, which is ", o.max_bytes));
}

}  // namespace

FlagTable ask_flags(AskOptions& o) {
  FlagTable table("trireme ask");
  table.group("Model");
  table.flag("model_name_or_path", &o.model_name_or_path, "A directory with a fine-tuned model, or its name on the hub.")
      .aliases = {"model"};
  table.flag("tokenizer_name", &o.tokenizer_name, "Another directory or name for the tokenizer.");
  table.flag("cache_dir", &o.cache_dir, "Where downloads are kept, instead of the hub's cache below HF_HOME.");
  table.flag("model_revision", &o.model_revision, "Branch, tag or commit on the hub.");
  table.flag("token", &o.token, "Token for the hub, instead of HF_TOKEN.");
  table.group("Questions");
  table.flag("context", &o.context, "The text in which to look.");
  table.flag("context_file", &o.context_file, "The same from a file.");
  table.flag("question", &o.question, "One or more questions, each in quotes; stdin where there is none.");
  table.group("Answers");
  table.flag("top", &o.top, "So many answers to a question, best first.", at_least(1));
  table.flag("version_2_with_negative", &o.version_2_with_negative, "\"No answer\" is an answer.");
  table.flag("null_score_diff_threshold", &o.null_score_diff_threshold,
             "\"No answer\" wins if its score exceeds the best answer's by more than this.");
  table.flag("n_best_size", &o.n_best_size, "Candidates that are looked at.", at_least(1));
  table.flag("max_answer_length", &o.max_answer_length, "Tokens of an answer, at most.", at_least(1));
  table.flag("max_seq_length", &o.max_seq_length,
             "Tokens of question and context together; a longer context becomes several features.", at_least(8));
  table.flag("doc_stride", &o.doc_stride, "Tokens that two neighbouring features of one context share.", at_least(0));
  table.flag("json", &o.json, "Answers as JSON.");
  return table;
}

AskCommand parse_ask(const std::vector<std::string>& arguments) {
  auto command = parse<AskCommand>(ask_flags, arguments);
  if (!command.given.help) check(command.options);
  return command;
}

std::string ask_help() { return help<AskOptions>(ask_flags, kAsk); }

FlagTable info_flags(InfoOptions& o) {
  FlagTable table("trireme info");
  table.group("What to show");
  table.flag("ranks", &o.ranks, "Processes on this host, for which threads and cores are planned; the launcher's, or 1.",
             between(1, 65536));
  table.flag("hosts", &o.hosts, "Hosts of the job, taken to be alike.", between(1, 65536));
  table.flag("json", &o.json, "The same as JSON.");
  return table;
}

InfoCommand parse_info(const std::vector<std::string>& arguments) { return parse<InfoCommand>(info_flags, arguments); }

std::string info_help() { return help<InfoOptions>(info_flags, kInfo); }

FlagTable bench_flags(BenchOptions& o) {
  FlagTable table("trireme bench");
  table.group("What to measure");
  table.flag("collectives", &o.collectives, "Which ones.",
             one_of({"allreduce", "reduce", "broadcast", "allgather", "alltoall", "reduce_scatter", "barrier"}));
  table.flag("dtype", &o.dtype, "Of the elements.", one_of({"float32", "bfloat16"}));
  table.flag("min_bytes", &o.min_bytes, "The smallest message; each next one is four times as large.", at_least(4));
  table.flag("max_bytes", &o.max_bytes, "The largest message.", at_least(4));
  table.flag("seconds", &o.seconds, "Time for each size.", above(0));
  table.flag("shared_buffers", &o.shared_buffers,
             "Buffers from the library's allocator, which ranks of a host share, as gradients lie; else from malloc.");
  table.flag("json", &o.json, "Results as JSON.");
  return table;
}

BenchCommand parse_bench(const std::vector<std::string>& arguments) {
  auto command = parse<BenchCommand>(bench_flags, arguments);
  if (!command.given.help) check(command.options);
  return command;
}

std::string bench_help() { return help<BenchOptions>(bench_flags, kBench); }

}  // namespace trireme::trainer
