#include "trireme/trainer/train/torch_file.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/import_read.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <cerrno>
#include <exception>
#include <fstream>
#include <string>

#include "trireme/base/error.h"
#include "trireme/trainer/files/files.h"

namespace trireme::trainer {

void save_torch_file(const std::filesystem::path& path, const c10::IValue& value) {
  NewFile file(path);
  // An exception in its midst would end the process: the archive's destructor writes, too, and complains about what is
  // missing.
  std::exception_ptr failure;
  caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, size_t bytes) {
    try {
      if (!failure) file.write(data, bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    return bytes;
  });
  std::string pickled;
  // Without the tags by which TorchScript remembers the types of lists and dictionaries: torch.load refuses them.
  torch::jit::Pickler pickler([&](const char* data, size_t bytes) { pickled.append(data, bytes); }, nullptr, nullptr,
                              nullptr, nullptr,
                              /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  archive.writeRecord("data.pkl", pickled.data(), pickled.size());
  size_t number = 0;
  for (const at::Tensor& each : pickler.tensorData()) {
    const at::Tensor tensor = each.contiguous();
    archive.writeRecord(trireme::str("data/", number++), tensor.storage().data(), tensor.storage().nbytes());
  }
  const std::string order = "little";
  archive.writeRecord("byteorder", order.data(), order.size());
  archive.writeEndOfFile();
  if (failure) std::rethrow_exception(failure);
  file.commit();
}

c10::IValue load_torch_file(const std::filesystem::path& path) {
  if (!std::ifstream(path)) throw IoError(errno_message(trireme::str("cannot open ", path.string()), errno));
  try {
    caffe2::serialize::PyTorchStreamReader archive(path.string());
    return torch::jit::readArchiveAndTensors("data", "", "", std::nullopt, std::nullopt, std::nullopt, archive);
  } catch (const c10::Error& error) {
    throw InvalidArgument(trireme::str(
        path.string(), " is not what torch.save writes: ", std::string(error.what_without_backtrace()).substr(0, 200)));
  }
}

}  // namespace trireme::trainer
