#include "measure.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <sstream>
#include <stdexcept>

namespace trireme::bench {
namespace {

constexpr int kWarmUps = 3;
constexpr size_t kMinIterations = 7;

struct Summary {
  size_t iterations;
  double median_us, p10_us, p90_us;
  double met_before_us, met_after_us;  // what a meeting of the ranks took, without the library
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

template <typename T>
std::vector<T> parse_list(const std::string& text, T (*parse)(const std::string&)) {
  std::vector<T> values;
  for (const auto& part : split(text)) values.push_back(parse(part));
  return values;
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i++) {
    const std::string name = argv[i];
    if (name == "--shared-buffers") {
      options.shared_buffers = true;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(name + " wants a value");
    const std::string value = argv[++i];
    if (name == "--ops") {
      options.ops = parse_list<Op>(value, op_from);
    } else if (name == "--dtypes") {
      options.types = parse_list<Type>(value, type_from);
    } else if (name == "--bytes") {
      options.bytes = parse_list<size_t>(value, [](const std::string& x) { return size_t{std::stoull(x)}; });
    } else if (name == "--placement") {
      options.in_place = parse_list<bool>(value, [](const std::string& x) { return x == "in"; });
    } else if (name == "--budget-ms") {
      options.budget_ms = std::stod(value);
    } else if (name == "--calls") {
      options.calls = std::stoi(value);
    } else {
      throw std::invalid_argument("unknown option " + name);
    }
  }
  return options;
}

std::string environment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return value;
  }
  throw std::invalid_argument(std::string(*names.begin()) + " is not set: start this through bench/collectives/run.py");
}

// Where there is a core for each rank, each gets its own, whatever the launcher does: MPICH's leaves ranks to the scheduler,
// Intel's binds them, and the difference is not the libraries'.
void pin(int rank, int size) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < size) return;
  int core = -1;
  for (int seen = -1; seen < rank;) seen += CPU_ISSET(++core, &allowed) ? 1 : 0;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(core, &mine);
  sched_setaffinity(0, sizeof mine, &mine);
}

// The memory of one case, on one rank.
class Buffers {
 public:
  Buffers(Library& library, const Case& c, const Layout& layout) : library_(library), element_(size_of(c.type)) {
    if (c.in_place) {
      char* both =
          add(std::max(layout.send_offset_in_place + layout.send_count, layout.recv_offset_in_place + layout.recv_count));
      send = both + layout.send_offset_in_place * element_;
      recv = both + layout.recv_offset_in_place * element_;
    } else {
      send = add(layout.send_count);
      recv = add(layout.recv_count);
    }
  }
  ~Buffers() {
    for (auto& [data, bytes] : memory_) library_.release(data);
  }
  Buffers(const Buffers&) = delete;

  void set_all(int byte) {
    for (auto& [data, bytes] : memory_) std::memset(data, byte, bytes);
  }

  void* send;
  void* recv;

 private:
  char* add(size_t count) {
    const size_t bytes = std::max<size_t>(count * element_, 64);
    memory_.emplace_back(library_.allocate(bytes), bytes);
    return static_cast<char*>(memory_.back().first);
  }

  Library& library_;
  size_t element_;
  std::vector<std::pair<void*, size_t>> memory_;
};

// There and back; ranks beyond the first two look on.
void ping_pong(Library& library, const Call& call, int rank) {
  const size_t count = call.c.count();
  if (rank == 0) {
    library.send(call.send, count, call.c.type, 1);
    library.recv(call.recv, count, call.c.type, 1);
  } else if (rank == 1) {
    library.recv(call.recv, count, call.c.type, 0);
    library.send(call.send, count, call.c.type, 0);
  }
}

class Measurement {
 public:
  Measurement(Library& library, Scoreboard& board, const Options& options)
      : library_(library), board_(board), options_(options) {}

  void measure(const Case& c) {
    if (!is_defined(c, board_.size()) || !library_.supports(c)) return report(c, "\"unsupported\": true");
    const Layout layout = layout_of(c, board_.rank(), board_.size());
    Buffers buffers(library_, c, layout);
    const Call call{c, layout, buffers.send, buffers.recv};
    if (!answer_is_right(call, buffers)) return report(c, "\"error\": \"wrong answer\"");
    // Zeros stay zeros however often they are summed in place.
    buffers.set_all(0);
    report(c, time(call));
  }

 private:
  void run(const Call& call) {
    if (call.c.op == Op::send_recv) {
      ping_pong(library_, call, board_.rank());
    } else {
      library_.run(call);
    }
  }

  bool answer_is_right(const Call& call, Buffers& buffers) {
    buffers.set_all(0xff);  // NaN, which equals nothing
    fill(call.send, call.c.type, call.layout.send_count, board_.rank());
    run(call);
    const std::string error = find_error(call.recv, call.c.type, call.layout.result, board_.size());
    if (!error.empty()) std::fprintf(stderr, "rank %d: %s: %s\n", board_.rank(), name_of(call.c.op), error.c_str());
    return board_.max_over_ranks({error.empty() ? 0.0 : 1.0})[0] == 0;
  }

  // Microseconds of one call on this rank, on average over `calls` of them.
  double time_calls(const Call& call, int calls) {
    board_.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; i++) run(call);
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
    // A ping-pong is two messages.
    return elapsed.count() / calls / (call.c.op == Op::send_recv ? 2 : 1);
  }

  std::vector<double> time_iterations(const Call& call, size_t iterations, int calls) {
    std::vector<double> mine(iterations);
    for (double& us : mine) us = time_calls(call, calls);
    return board_.max_over_ranks(mine);
  }

  // How near the ranks' cores are to each other, which on a virtual machine may change at any time. 0 where ranks share cores, or many calls are timed as
  // one because others use them.
  double time_meeting() {
    constexpr int kBatches = 5, kMeetings = 400;
    if (sysconf(_SC_NPROCESSORS_ONLN) < board_.size() || options_.calls > 1) return 0;
    std::vector<double> batches;
    for (int batch = 0; batch < kBatches; batch++) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kMeetings; i++) board_.barrier();
      batches.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kMeetings);
    }
    batches = board_.max_over_ranks(batches);
    return *std::min_element(batches.begin(), batches.end());
  }

  Summary time(const Call& call) {
    const double met_before = time_meeting();
    const auto warm_up = time_iterations(call, kWarmUps, 1);
    const double iteration_us = *std::min_element(warm_up.begin(), warm_up.end()) * options_.calls;
    const double wanted = options_.budget_ms * 1000 / std::max(iteration_us, 0.1);
    // An iteration of many calls is an average already.
    const size_t least = options_.calls > 1 ? 1 : kMinIterations;
    const size_t iterations = std::clamp(static_cast<size_t>(wanted), least, Scoreboard::kMaxTimes);
    auto times = time_iterations(call, iterations, options_.calls);
    std::sort(times.begin(), times.end());
    const auto percentile = [&](double p) { return times[std::lround(p * static_cast<double>(times.size() - 1))]; };
    return {times.size(), percentile(0.5), percentile(0.1), percentile(0.9), met_before, time_meeting()};
  }

  void report(const Case& c, const Summary& s) {
    char text[240];
    std::snprintf(text, sizeof text, "\"iterations\": %zu, \"median_us\": %.3f, \"p10_us\": %.3f, \"p90_us\": %.3f, \"meeting_us\": [%.3f, %.3f]",
                  s.iterations, s.median_us, s.p10_us, s.p90_us, s.met_before_us, s.met_after_us);
    report(c, text);
  }

  void report(const Case& c, const char* outcome) {
    if (board_.rank() != 0) return;
    std::printf("{\"op\": \"%s\", \"dtype\": \"%s\", \"placement\": \"%s\", \"bytes\": %zu, \"calls\": %d, %s}\n",
                name_of(c.op), name_of(c.type), c.in_place ? "in" : "out", c.bytes, options_.calls, outcome);
    std::fflush(stdout);
  }

  Library& library_;
  Scoreboard& board_;
  const Options& options_;
};

void run_rank(int argc, char** argv, const MakeLibrary& make_library) {
  const Options options = parse_options(argc, argv);
  const int rank = std::stoi(environment({"PMI_RANK", "RANK"}));
  const int size = std::stoi(environment({"PMI_SIZE", "WORLD_SIZE"}));
  Scoreboard board(environment({"BENCH_SCOREBOARD"}), rank, size);
  pin(rank, size);
  const auto library = make_library(board, options);
  if (rank == 0) std::printf("{\"version\": \"%s\"}\n", library->version().c_str());
  Measurement measurement(*library, board, options);
  for (Op op : options.ops) {
    for (Type type : options.types) {
      for (bool in_place : options.in_place) {
        for (size_t bytes : options.bytes) measurement.measure({op, type, in_place, bytes});
      }
    }
  }
}

}  // namespace

void* Library::allocate(size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
void Library::release(void* data) { std::free(data); }

int run_benchmark(int argc, char** argv, const MakeLibrary& make_library) {
  try {
    run_rank(argc, argv, make_library);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

}  // namespace trireme::bench
