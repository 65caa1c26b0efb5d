// How far a download is, on standard error: a line that is redrawn on a terminal, elsewhere one now and then.
#pragma once

#include <functional>

#include "trireme/trainer/hub/hub.h"

namespace trireme::trainer {

// For HubSettings::progress. Small files, which come at once, are passed over.
std::function<void(const HubProgress&)> download_lines();

}  // namespace trireme::trainer
