// Values in the file format of torch.save.
#pragma once

#include <ATen/core/ivalue.h>

#include <filesystem>

namespace trireme::trainer {

// Of dictionaries, lists, tuples, tensors, strings and numbers: torch.load reads it with weights_only=True. The file appears
// whole or not at all; tensors go straight from their memory to it. IoError.
void save_torch_file(const std::filesystem::path& path, const c10::IValue& value);

// What torch.save or save_torch_file wrote: tensors come straight from the file into memory of their own. InvalidArgument if
// it is something else; IoError.
c10::IValue load_torch_file(const std::filesystem::path& path);

}  // namespace trireme::trainer
