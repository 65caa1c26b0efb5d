// checkpoint-N/: a run can go on from it, here or under HF's Trainer.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/trainer/train/adamw.h"
#include "trireme/trainer/train/training.h"

namespace trireme::trainer {

// Files of a model's directory: config.json, the tokenizer's, and whatever else belongs beside the weights.
struct SideFiles {
  std::vector<std::pair<std::string, std::string>> contents;  // name, text
};

// Writes the weights, config.json and the side files, so that transformers' from_pretrained loads the folder.
void save_model(const std::filesystem::path& folder, const QaModel& model, const AdamW& optimizer, const SideFiles& files);

// Writes output_dir/checkpoint-N, N being the standing's step: under a temporary name, forced to the disk, renamed. Whenever
// it is interrupted, the checkpoints that were there are whole. Then the oldest are removed, and never this one, until
// `limit` are left. With `only_model` it can be loaded, and not be gone on from. IoError names the file that the disk
// refused.
void save_checkpoint(const std::filesystem::path& output_dir, const QaModel& model, const AdamW& optimizer,
                     const SideFiles& files, const Training& training, const std::string& trainer_state,
                     std::optional<int64_t> limit, bool only_model);

// The newest one in a folder that can be gone on from, or nothing.
std::optional<std::filesystem::path> last_checkpoint(const std::filesystem::path& output_dir);

// N of checkpoint-N; what its state says for a folder of another name. InvalidArgument, IoError.
int64_t step_of_checkpoint(const std::filesystem::path& checkpoint);

// A run that begins after `step` makes later checkpoints of its own. Those that an earlier one has left would be taken for
// the newest: they are removed, or moved to a folder of their own if a run could go on from them. What was done, or an empty
// text.
std::string clear_later_checkpoints(const std::filesystem::path& output_dir, int64_t step, bool remove);

// A run that has begun in a folder and is not done. One that is cut short before its first checkpoint leaves other files,
// and may begin again among them. The folder exists.
void mark_unfinished(const std::filesystem::path& output_dir);
void mark_finished(const std::filesystem::path& output_dir);
bool is_unfinished(const std::filesystem::path& output_dir);

// What a run that was killed while it wrote has left in a folder, and nothing else.
void remove_remains(const std::filesystem::path& output_dir);

// Fills model and optimizer. A checkpoint of HF's Trainer has no word on which samples were seen: as many as it counted are
// taken as done. `features` and `seed` are those of the run that goes on. InvalidArgument names the file that does not fit.
Standing load_checkpoint(const std::filesystem::path& checkpoint, QaModel& model, AdamW& optimizer,
                         const std::vector<Feature>& features, int64_t seed);

// Throws IoError where nothing can be written, before hours are spent on what could not be kept.
void check_writable(const std::filesystem::path& folder);

}  // namespace trireme::trainer
