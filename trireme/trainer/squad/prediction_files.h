// The files of answers that run_qa.py leaves behind.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/trainer/squad/postprocess.h"

namespace trireme::trainer {

// Writes <prefix>_predictions.json and <prefix>_nbest_predictions.json, and for version 2.0 <prefix>_null_odds.json, into a
// folder that is there; the prefix is "eval" or "predict". Byte for byte what Python's json.dumps(..., indent=4) makes of
// the same values. IoError names a file that cannot be written.
void write_predictions(const std::filesystem::path& folder, const std::string& prefix,
                       const std::vector<Prediction>& predictions, bool version_2_with_negative);

}  // namespace trireme::trainer
