// ProcessGroupCCL as a Python class. Everything else about it (collectives, Work) is bound by torch for every backend.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/torch_ext/process_group/process_group_ccl.h"

namespace py = pybind11;
using trireme::torch_ext::ProcessGroupCCL;
using Milliseconds = std::chrono::milliseconds;

// Python's reference to a group. The last one gone, the group ends, which waits for threads that may be dropping a tensor of Python's and need the
// GIL for that: so it is not held meanwhile. torch hands the object on as a c10::intrusive_ptr<Backend>, of which this has the layout.
template <class T>
class OwnedWithoutGil {
 public:
  OwnedWithoutGil() = default;
  OwnedWithoutGil(c10::intrusive_ptr<T> owned) : owned_(std::move(owned)) {}
  explicit OwnedWithoutGil(T* owned) : owned_(c10::intrusive_ptr<T>::unsafe_steal_from_new(owned)) {}
  OwnedWithoutGil(const OwnedWithoutGil&) = default;
  OwnedWithoutGil(OwnedWithoutGil&&) noexcept = default;
  OwnedWithoutGil& operator=(const OwnedWithoutGil&) = default;
  OwnedWithoutGil& operator=(OwnedWithoutGil&&) noexcept = default;
  ~OwnedWithoutGil() {
    if (!owned_ || PyGILState_Check() == 0) return;
    py::gil_scoped_release others_may_run;
    owned_.reset();
  }
  T* get() const { return owned_.get(); }

 private:
  c10::intrusive_ptr<T> owned_;
};
PYBIND11_DECLARE_HOLDER_TYPE(T, OwnedWithoutGil<T>, true);

PYBIND11_MODULE(_bindings, module) {
  module.doc() = "The C++ part of trireme.";
  py::module_::import("torch._C._distributed_c10d");  // the base classes

  py::module_::import("atexit").attr("register")(py::cpp_function([] {
    py::gil_scoped_release others_may_run;
    trireme::torch_ext::let_go_no_more();
  }));

  py::class_<ProcessGroupCCL, c10d::Backend, OwnedWithoutGil<ProcessGroupCCL>> group(
      module, "ProcessGroupCCL", "The c10d backend \"ccl\". init_process_group(\"ccl\") makes one.");
  py::class_<ProcessGroupCCL::Options, c10d::Backend::Options, c10::intrusive_ptr<ProcessGroupCCL::Options>>(group, "Options")
      .def(py::init<Milliseconds>(), py::arg("timeout") = kBackendDefaultTimeout);
  group
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout, std::string group_name,
                       std::vector<uint64_t> global_ranks) {
             auto options = c10::make_intrusive<ProcessGroupCCL::Options>(timeout);
             options->group_name = std::move(group_name);
             options->global_ranks_in_group = std::move(global_ranks);
             py::gil_scoped_release others_may_run;
             return OwnedWithoutGil<ProcessGroupCCL>(c10::make_intrusive<ProcessGroupCCL>(store, rank, size, options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = kBackendDefaultTimeout, py::arg("group_name") = "",
           py::arg("global_ranks") = std::vector<uint64_t>(), "Meets the other ranks in the store; returns when all are there.")
      .def_property_readonly("options", &ProcessGroupCCL::getBackendOptions, "A copy of what it was made with, with the timeout of now.")
      .def("get_error", &ProcessGroupCCL::getError, py::call_guard<py::gil_scoped_release>(), "What the group has ended with, if it has.")
      .def("describe", &ProcessGroupCCL::describe, py::call_guard<py::gil_scoped_release>(), "Ranks, hosts, and how they are connected, in a few words.")
      .def(
          "monitored_barrier",
          [](ProcessGroupCCL& self, Milliseconds timeout, bool wait_all_ranks) {
            c10d::BarrierOptions options;
            options.timeout = timeout;
            self.monitoredBarrier(options, wait_all_ranks);
          },
          py::arg("timeout") = c10d::kUnsetTimeout, py::arg("wait_all_ranks") = false, py::call_guard<py::gil_scoped_release>(),
          "A barrier that raises naming the ranks that did not come in time.");
}
