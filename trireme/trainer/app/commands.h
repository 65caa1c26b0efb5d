// The subcommands of `trireme`. Each takes its own arguments and returns the exit code; errors come as exceptions.
#pragma once

#include <string>
#include <vector>

namespace trireme::trainer {

int run_qa(const std::vector<std::string>& arguments);
int run_ask(const std::vector<std::string>& arguments);
int run_info(const std::vector<std::string>& arguments);
int run_bench(const std::vector<std::string>& arguments);

}  // namespace trireme::trainer
