#include <iostream>

#include "trireme/trainer/app/commands.h"

namespace trireme::trainer {
int run_info(const std::vector<std::string>& arguments) { return 1; }
}  // namespace trireme::trainer
