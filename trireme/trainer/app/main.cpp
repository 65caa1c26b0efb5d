// `trireme`: trains and asks models for question answering on CPUs.
#include <c10/util/Exception.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/pmi.h"
#include "trireme/cpu/isa.h"
#include "trireme/trainer/app/commands.h"
#include "trireme/trainer/options/main_options.h"

namespace trireme::trainer {
namespace {

int run(const MainOptions& options) {
  switch (options.subcommand) {
    case Subcommand::qa: return run_qa(options.rest);
    case Subcommand::ask: return run_ask(options.rest);
    case Subcommand::info: return run_info(options.rest);
    case Subcommand::bench: return run_bench(options.rest);
    case Subcommand::help: std::cout << main_help(); return 0;
    case Subcommand::version: std::cout << version_text() << "\n"; return 0;
  }
  return 0;
}

// TRIREME_DETERMINISTIC=1: MKL's products get bits that do not depend on the number of threads. MKL looks at its variable
// when it first computes; a value that the user set stays.
void fix_bits() {
  if (!env::flag("TRIREME_DETERMINISTIC")) return;
  const cpu::Isa level = cpu::detected_isa();
  ::setenv("MKL_CBWR",
           level == cpu::Isa::avx512 ? "AVX512,STRICT"
           : level == cpu::Isa::avx2 ? "AVX2,STRICT"
                                     : "COMPATIBLE",
           0);
}

std::string rank_prefix() {
  const auto place = ccl::launcher_rank();
  return place && place->size > 1 ? str("rank ", place->rank, ": ") : "";
}

int failed(const std::string& why) {
  std::cerr << "trireme: " << rank_prefix() << why << std::endl;
  // With the end of this process mpirun kills the others. The one that failed first may be about to say why: let it.
  if (ccl::forgo_pmi_finalize()) std::this_thread::sleep_for(std::chrono::seconds(1));
  return 1;
}

}  // namespace
}  // namespace trireme::trainer

int main(int count, char** values) {
  using namespace trireme;
  try {
    env::warn_about_unknown();
    trainer::fix_bits();
    return trainer::run(trainer::parse_main({values + 1, values + count}));
  } catch (const InvalidArgument& error) {
    std::cerr << "trireme: " << trainer::rank_prefix() << error.what() << std::endl;
    return 2;
  } catch (const c10::Error& error) {
    return trainer::failed(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return trainer::failed(error.what());
  }
}
