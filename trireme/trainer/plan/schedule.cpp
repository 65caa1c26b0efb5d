#include "trireme/trainer/plan/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

constexpr std::array<std::pair<std::string_view, ScheduleKind>, 7> kNames{{
    {"linear", ScheduleKind::linear},
    {"cosine", ScheduleKind::cosine},
    {"cosine_with_restarts", ScheduleKind::cosine_with_restarts},
    {"polynomial", ScheduleKind::polynomial},
    {"constant", ScheduleKind::constant},
    {"constant_with_warmup", ScheduleKind::constant_with_warmup},
    {"inverse_sqrt", ScheduleKind::inverse_sqrt},
}};

// Where transformers' polynomial ends; its power is 1.
constexpr double kPolynomialEnd = 1e-7;
// The time scale of inverse_sqrt where there is no warmup to take it from.
constexpr int64_t kInverseSqrtSteps = 10000;

}  // namespace

ScheduleKind schedule_kind(std::string_view name) {
  std::string known;
  for (const auto& [each, kind] : kNames) {
    if (name == each) return kind;
    known += str(known.empty() ? "" : ", ", each);
  }
  throw InvalidArgument(str("--lr_scheduler_type ", name, ": it must be one of ", known));
}

double Schedule::at(int64_t steps_done) const {
  if (kind == ScheduleKind::constant) return learning_rate;
  const auto step = static_cast<double>(steps_done), warmup = static_cast<double>(warmup_steps);
  if (steps_done < warmup_steps) return learning_rate * step / warmup;
  const double progress = (step - warmup) / static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  switch (kind) {
    case ScheduleKind::linear: return learning_rate * std::max(0.0, 1 - progress);
    case ScheduleKind::cosine: return learning_rate * std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
    case ScheduleKind::cosine_with_restarts:  // transformers restarts once, at the beginning: one cycle
      return progress >= 1 ? 0 : learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case ScheduleKind::polynomial:
      return progress > 1 ? kPolynomialEnd : (learning_rate - kPolynomialEnd) * (1 - progress) + kPolynomialEnd;
    case ScheduleKind::inverse_sqrt: {
      const auto scale = static_cast<double>(warmup_steps > 0 ? warmup_steps : kInverseSqrtSteps);
      return learning_rate / std::sqrt((step - warmup + scale) / scale);
    }
    case ScheduleKind::constant:
    case ScheduleKind::constant_with_warmup: break;
  }
  return learning_rate;
}

}  // namespace trireme::trainer
