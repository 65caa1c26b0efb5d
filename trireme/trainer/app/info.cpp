// `trireme info`: this machine, and what a run on it would choose.
#include "trireme/trainer/info/info.h"

#include <iostream>

#include "trireme/trainer/app/commands.h"
#include "trireme/trainer/options/small_options.h"
#include "trireme/trainer/train/bf16_plan.h"

namespace trireme::trainer {

int run_info(const std::vector<std::string>& arguments) {
  const InfoCommand command = parse_info(arguments);
  if (command.given.help) {
    std::cout << info_help();
    return 0;
  }
  Json info = collect_info(command.options.ranks, command.options.hosts);
  // What the CPU and the kernel say is one thing; this has tried it.
  info["bf16"] = found_out([]() -> Json { return bf16_plan().sentence; });
  std::cout << (command.options.json ? info.dump(2) + "\n" : info_text(info));
  return 0;
}

}  // namespace trireme::trainer
