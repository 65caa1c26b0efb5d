// Trireme needs nothing around it.
#include "job.h"

namespace trireme::bench {

Job::Job() = default;
Job::~Job() = default;

}  // namespace trireme::bench
