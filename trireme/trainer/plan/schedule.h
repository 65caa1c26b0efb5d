// The learning rate, as transformers' schedules give it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::trainer {

enum class ScheduleKind { linear, cosine, cosine_with_restarts, polynomial, constant, constant_with_warmup, inverse_sqrt };

// By the name that --lr_scheduler_type takes. InvalidArgument lists them.
ScheduleKind schedule_kind(std::string_view name);

struct Schedule {
  ScheduleKind kind = ScheduleKind::linear;
  double learning_rate = 5e-5;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;

  // Of the step after `steps_done` others.
  double at(int64_t steps_done) const;
};

}  // namespace trireme::trainer
