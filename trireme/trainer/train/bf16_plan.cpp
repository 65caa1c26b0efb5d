#include "trireme/trainer/train/bf16_plan.h"

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iomanip>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/cpu/features.h"
#include "trireme/trainer/train/seconds.h"

namespace trireme::trainer {
namespace {

constexpr int kTrialMs = 60'000;
std::string instructions() {
  const cpu::Features features = cpu::read_features();
  if (features.amx_bf16 && features.avx512_bf16) return "AMX-BF16 and AVX512-BF16";
  return features.amx_bf16 ? "AMX-BF16" : features.avx512_bf16 ? "AVX512-BF16" : "";
}

double seconds_of_product(at::ScalarType type) {
  const at::Tensor x = at::ones({512, 512}, type);
  double best = 1e9;
  for (int i = 0; i < 8; ++i) {
    const double start = now();
    const at::Tensor y = at::mm(x, x);
    best = std::min(best, now() - start);
    if (y[0][0].item<float>() != 512) ::_exit(3);
  }
  return best;
}

[[noreturn]] void try_products(int result) {
  at::set_num_threads(1);
  const double ratio = seconds_of_product(at::kFloat) / seconds_of_product(at::kBFloat16);
  ::_exit(::write(result, &ratio, sizeof ratio) == sizeof ratio ? 0 : 4);
}

// How many times as fast as fp32's a bf16 product must be: less is noise, and what bf16 rounds off should buy something. As
// trireme.bf16_plan has it.
constexpr double kMargin = 1.2;

struct Trial {
  std::string failure;  // empty: it went well
  double ratio = 0;     // how many times as fast as fp32's a bf16 product is
};

// A child that hangs is ended, and counts as one that failed.
bool answered(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, kTrialMs) > 0;
}

Trial trial() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {errno_message("it could not be tried", errno)};
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return {errno_message("it could not be tried", errno)};
  if (child == 0) try_products(to.get());
  to = UniqueFd();
  if (!answered(from.get())) ::kill(child, SIGKILL);
  Trial result;
  const bool complete = ::read(from.get(), &result.ratio, sizeof result.ratio) == sizeof result.ratio;
  int status = 0;
  ::waitpid(child, &status, 0);
  if (complete && status == 0) return result;
  const std::string how = WIFSIGNALED(status) ? trireme::str("SIG", ::sigabbrev_np(WTERMSIG(status)))
                                              : trireme::str("exit code ", WEXITSTATUS(status));
  return {trireme::str("torch's bf16 matrix product ends a process with ", how,
                       "; ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 avoids AMX")};
}

Bf16Plan native(const std::string& why) { return {true, "bf16: matrix products in bf16: " + why}; }
Bf16Plan in_fp32(const std::string& why) { return {false, "bf16: computes in fp32: " + why}; }

}  // namespace

Bf16Plan bf16_plan() {
  const std::string choice = env::text("TRIREME_BF16"), limit = env::text("TRIREME_MAX_ISA");
  const std::string has = instructions();
  if (choice == "native")
    return native(
        trireme::str("TRIREME_BF16=native", has.empty() ? "; this CPU has no instructions for it, which is slow" : ""));
  if (choice == "emulate") return in_fp32("TRIREME_BF16=emulate");
  if (has.empty()) return in_fp32("this CPU has neither AMX-BF16 nor AVX512-BF16, and fp32 is faster");
  if (limit != "avx512") return in_fp32(trireme::str("this CPU has ", has, ", but TRIREME_MAX_ISA=", limit));
  const Trial tried = trial();
  if (!tried.failure.empty()) return in_fp32(trireme::str("this CPU says that it has ", has, ", but ", tried.failure));
  const std::string ratio = trireme::str(std::fixed, std::setprecision(1), tried.ratio);
  const std::string says =
      trireme::str("this CPU has ", has, "; torch's bf16 matrix product is ", ratio, " times as fast as fp32's");
  return tried.ratio < kMargin ? in_fp32(trireme::str(says, ", and ", kMargin, " is the least")) : native(says);
}

}  // namespace trireme::trainer
