#include "trireme/trainer/train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>

#include "trireme/base/error.h"
#include "trireme/trainer/files/files.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/model/weights.h"
#include "trireme/trainer/train/torch_file.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOurState = "trireme_state.json";
constexpr const char* kPartial = ".partial-";  // checkpoints in the making, and those being removed, begin so
constexpr const char* kOrBeginAnew = ", or begin anew: with --overwrite_output_dir, or in another --output_dir";
constexpr const char* kUnfinished = ".unfinished";

// transformers' schedulers are torch's LambdaLR: this is its state.
c10::IValue scheduler_state(const Training& training) {
  c10::impl::GenericDict state(c10::AnyType::get(), c10::AnyType::get());
  const int64_t step = training.standing().schedule_step;
  c10::List<c10::IValue> base(c10::AnyType::get()), last(c10::AnyType::get()), lambdas(c10::AnyType::get());
  for (int group = 0; group < 2; ++group) {
    base.push_back(training.base_learning_rate());
    last.push_back(training.learning_rate());
    lambdas.push_back(c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()));
  }
  state.insert("base_lrs", base);
  state.insert("last_epoch", step);
  state.insert("_step_count", step + 1);
  state.insert("_is_initial", false);
  state.insert("_get_lr_called_within_step", false);
  state.insert("_last_lr", last);
  state.insert("lr_lambdas", lambdas);
  return state;
}

std::string our_state(const Training& training) {
  const Standing& standing = training.standing();
  Json json;
  json["format"] = 1;
  json["global_step"] = standing.global_step;
  json["epoch"] = standing.epoch;
  json["samples_done"] = standing.samples_done;
  json["schedule_step"] = standing.schedule_step;
  json["samples_a_step"] = standing.samples_a_step;
  json["loss_sum"] = standing.loss_sum;
  json["loss_since_report"] = standing.loss_since_report;
  json["steps_since_report"] = standing.steps_since_report;
  json["tokens_seen"] = standing.tokens_seen;
  json["samples"] = training.samples();
  json["data_hash"] = training.data_fingerprint();
  json["seed"] = training.seed();
  return json.dump(2) + "\n";
}

std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  constexpr std::string_view kPrefix = "checkpoint-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

bool is_complete(const fs::path& checkpoint) {
  return fs::is_regular_file(checkpoint / "trainer_state.json") &&
         (fs::is_regular_file(checkpoint / "model.safetensors") ||
          fs::is_regular_file(checkpoint / "model.safetensors.index.json"));
}

// Oldest first.
std::vector<std::pair<int64_t, fs::path>> checkpoints_in(const fs::path& output_dir) {
  std::vector<std::pair<int64_t, fs::path>> found;
  if (!fs::is_directory(output_dir)) return found;
  for (const fs::directory_entry& entry : fs::directory_iterator(output_dir))
    if (const auto step = step_of(entry.path()); step && entry.is_directory() && is_complete(entry.path()))
      found.emplace_back(*step, entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// Json has no word for a loss that is no number, and writes null. Weights that gave such a loss give no other.
[[noreturn]] void refuse_diverged(const JsonPlace& state, const fs::path& output_dir) {
  std::string remedy = "; no checkpoint before it is there: begin anew, with --overwrite_output_dir";
  for (const auto& [step, each] : checkpoints_in(output_dir)) {
    if (step >= state["global_step"].integer()) break;
    if (!fs::exists(each / "optimizer.pt") || !fs::exists(each / kOurState)) continue;
    const Json earlier = read_json(each / kOurState);
    if (earlier.contains("loss_sum") && earlier["loss_sum"].is_number())
      remedy = str(": go on from before that, with --resume_from_checkpoint ", each.string(), " or an earlier one");
  }
  state["loss_sum"].refuse(str("the run had diverged, its loss was no number", remedy,
                               ", and with a lower --learning_rate or a longer --warmup_steps"));
}

Standing read_our_state(const fs::path& path, const std::vector<Feature>& features, int64_t seed) {
  const auto samples = static_cast<int64_t>(features.size());
  const Json json = read_json(path);
  const JsonPlace state(json, path.string());
  if (state["format"].integer() != 1) state["format"].refuse("this version of trireme reads format 1");
  if (state["samples"].integer() != samples)
    state["samples"].refuse(str("the run had ", state["samples"].integer(), " features to train on, now there are ", samples,
                                "; resume with the same training data and lengths", kOrBeginAnew));
  // Earlier versions kept another hash as "data_fingerprint": it says nothing now.
  if (state.has("data_hash") && state["data_hash"].value() != fingerprint(features))
    state["data_hash"].refuse(
        str("the run trained on other data of the same size; resume with the same training data, tokenizer and lengths",
            kOrBeginAnew));
  if (state["seed"].integer() != seed)
    state["seed"].refuse(str("the run had seed ", state["seed"].integer(), ", not ", seed,
                             "; samples would be lost and repeated. Give that seed", kOrBeginAnew));
  Standing standing;
  standing.global_step = state["global_step"].integer();
  standing.epoch = state["epoch"].integer();
  standing.samples_done = state["samples_done"].integer();
  standing.schedule_step = state["schedule_step"].integer();
  standing.samples_a_step = state["samples_a_step"].integer();
  if (state["loss_sum"].value().is_null()) refuse_diverged(state, path.parent_path().parent_path());
  standing.loss_sum = state["loss_sum"].number();
  standing.loss_since_report = state["loss_since_report"].number();
  standing.steps_since_report = state["steps_since_report"].integer();
  standing.tokens_seen = state["tokens_seen"].integer();
  if (standing.samples_done < 0 || standing.samples_done >= samples || standing.global_step < 0 || standing.epoch < 0)
    state.refuse("its numbers cannot be those of a run");
  return standing;
}

// HF's Trainer counts steps and a fraction of epochs.
Standing read_hf_state(const fs::path& path, int64_t samples) {
  const Json json = read_python_json(path);
  const JsonPlace state(json, path.string());
  Standing standing;
  standing.global_step = standing.schedule_step = state["global_step"].integer();
  standing.tokens_seen = state.integer_or("num_input_tokens_seen", 0);
  const double epochs = state["epoch"].number();
  if (standing.global_step < 0 || !(epochs >= 0)) state.refuse("its numbers cannot be those of a run");
  standing.epoch = static_cast<int64_t>(std::floor(epochs + 1e-9));
  const double part = std::max(0.0, epochs - static_cast<double>(standing.epoch));
  standing.samples_done = static_cast<int64_t>(std::llround(part * static_cast<double>(samples)));
  if (standing.samples_done >= samples) {  // but for rounding, the epoch was over
    ++standing.epoch;
    standing.samples_done = 0;
  }
  return standing;
}

// By name, so that nothing else is ever taken for it: checkpoints in the making or being removed, check_writable()'s probe,
// and what a NewFile leaves.
bool is_remains(const fs::path& entry) {
  static const std::regex ours(R"(\.partial-((old-)?checkpoint|probe)-\d+|\.trireme-\d+-.+\.partial)");
  return std::regex_match(entry.filename().string(), ours);
}

// Under another name first: what is half removed must not look like a checkpoint.
void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path doomed = checkpoint.parent_path() / str(kPartial, "old-", checkpoint.filename().string());
  fs::remove_all(doomed);
  fs::rename(checkpoint, doomed);
  fs::remove_all(doomed);
}

}  // namespace

void save_model(const fs::path& folder, const QaModel& model, const AdamW& optimizer, const SideFiles& files) {
  make_directory(folder);
  std::vector<at::Tensor> weights;
  for (size_t i = 0; i < model.parameters().size(); ++i) weights.push_back(optimizer.weight(i));
  save_weights(folder / "model.safetensors", model, weights);
  write_file_atomically(folder / "config.json", config_for_question_answering(model.config()));
  for (const auto& [name, text] : files.contents) write_file_atomically(folder / name, text);
}

void save_checkpoint(const fs::path& output_dir, const QaModel& model, const AdamW& optimizer, const SideFiles& files,
                     const Training& training, const std::string& trainer_state, std::optional<int64_t> limit,
                     bool only_model) {
  const std::string name = str("checkpoint-", training.standing().global_step);
  const fs::path partial = output_dir / (kPartial + name), final = output_dir / name;
  fs::remove_all(partial);
  try {
    save_model(partial, model, optimizer, files);
    if (!only_model) {
      save_torch_file(partial / "optimizer.pt",
                      optimizer.state_dict(training.learning_rate(), training.base_learning_rate()));
      save_torch_file(partial / "scheduler.pt", scheduler_state(training));
    }
    write_file_atomically(partial / kOurState, our_state(training));
    write_file_atomically(partial / "trainer_state.json", trainer_state);
    sync_folder(partial);
  } catch (...) {
    std::error_code ignored;  // what went wrong first is what counts
    fs::remove_all(partial, ignored);
    throw;
  }
  if (fs::exists(final)) remove_checkpoint(final);
  fs::rename(partial, final);
  sync_folder(output_dir);
  if (!limit) return;
  const auto all = checkpoints_in(output_dir);
  for (size_t i = 0; i + static_cast<size_t>(std::max<int64_t>(1, *limit)) < all.size(); ++i)
    if (all[i].second != final) remove_checkpoint(all[i].second);
}

std::optional<fs::path> last_checkpoint(const fs::path& output_dir) {
  auto all = checkpoints_in(output_dir);
  std::erase_if(all, [](const auto& each) { return !fs::exists(each.second / "optimizer.pt"); });
  return all.empty() ? std::nullopt : std::optional(all.back().second);
}

int64_t step_of_checkpoint(const fs::path& checkpoint) {
  if (const auto step = step_of(checkpoint)) return *step;
  const Json state = read_python_json(checkpoint / "trainer_state.json");
  return JsonPlace(state, (checkpoint / "trainer_state.json").string())["global_step"].integer();
}

std::string clear_later_checkpoints(const fs::path& output_dir, int64_t step, bool remove) {
  auto later = checkpoints_in(output_dir);
  std::erase_if(
      later, [&](const auto& each) { return each.first <= step || (!remove && !fs::exists(each.second / "optimizer.pt")); });
  if (later.empty()) return "";
  const std::string which =
      later.size() == 1 ? later[0].second.filename().string() : str(later.size(), " checkpoints after step ", step);
  if (remove) {
    for (const auto& [number, checkpoint] : later) remove_checkpoint(checkpoint);
    return str(output_dir.string(), ": ", which, " of an earlier run removed");
  }
  fs::path aside = output_dir / "earlier-1";
  for (int n = 2; fs::exists(aside); ++n) aside = output_dir / str("earlier-", n);
  make_directory(aside);
  for (const auto& [number, checkpoint] : later) fs::rename(checkpoint, aside / checkpoint.filename());
  return str(output_dir.string(), ": ", which, " of an earlier run moved to ", aside.string());
}

void mark_unfinished(const fs::path& output_dir) {
  write_file_atomically(output_dir / kUnfinished, "trireme qa trains into this folder; the file goes when it is done\n");
}

void mark_finished(const fs::path& output_dir) { fs::remove(output_dir / kUnfinished); }

bool is_unfinished(const fs::path& output_dir) {
  if (fs::exists(output_dir / kUnfinished)) return true;
  // Killed before it could say so.
  return std::all_of(fs::directory_iterator(output_dir), fs::directory_iterator(),
                     [](const fs::directory_entry& entry) { return is_remains(entry.path()); });
}

void remove_remains(const fs::path& output_dir) {
  std::vector<fs::path> remains;
  for (const fs::directory_entry& entry : fs::directory_iterator(output_dir))
    if (is_remains(entry.path())) remains.push_back(entry.path());
  for (const fs::path& each : remains) fs::remove_all(each);
}

Standing load_checkpoint(const fs::path& checkpoint, QaModel& model, AdamW& optimizer, const std::vector<Feature>& features,
                         int64_t seed) {
  const Standing standing = fs::exists(checkpoint / kOurState)
                                ? read_our_state(checkpoint / kOurState, features, seed)
                                : read_hf_state(checkpoint / "trainer_state.json", static_cast<int64_t>(features.size()));
  const fs::path moments = checkpoint / "optimizer.pt";
  if (!fs::exists(moments))
    throw InvalidArgument(
        str(checkpoint.string(), " has no optimizer.pt: it can be used as --model_name_or_path, not be resumed from"));
  const c10::IValue state = load_torch_file(moments);
  const LoadedWeights loaded = load_weights(model, checkpoint, 0);
  if (!loaded.new_ones.empty())
    throw InvalidArgument(str(checkpoint.string(), ": its weights have no ", loaded.new_ones[0]));
  optimizer.load_state_dict(state, moments.string());
  return standing;
}

void check_writable(const fs::path& folder) {
  make_directory(folder);
  const fs::path probe = folder / str(kPartial, "probe-", ::getpid());
  write_file_atomically(probe, "x");
  fs::remove(probe);
}

}  // namespace trireme::trainer
