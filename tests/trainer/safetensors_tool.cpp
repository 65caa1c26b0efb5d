// Reads and writes weights for tests.
//
//   safetensors_tool list DIRECTORY    one line a tensor: name, type, shape, data in hexadecimal, file
//   safetensors_tool copy FILE COPY    reads one and writes the other, with the tensors in the opposite order
#include <algorithm>
#include <iostream>
#include <string>

#include "trireme/base/error.h"
#include "trireme/trainer/safetensors/safetensors.h"

using namespace trireme::trainer;

static void list(const std::string& directory) {
  const SafetensorsModel model(directory);
  for (const std::string& name : model.names()) {
    const TensorEntry& entry = *model.find(name);
    std::cout << name << '\t' << dtype_name(entry.dtype) << '\t';
    for (const int64_t extent : entry.shape) std::cout << extent << ',';
    std::cout << '\t';
    for (const std::byte byte : entry.data) {
      std::cout << "0123456789abcdef"[static_cast<int>(byte) / 16] << "0123456789abcdef"[static_cast<int>(byte) % 16];
    }
    std::cout << '\t' << model.file_of(name).filename().string() << '\n';
  }
}

static void copy(const std::string& from, const std::string& to) {
  const SafetensorsFile file(from);
  std::vector<TensorEntry> entries = file.entries();
  std::reverse(entries.begin(), entries.end());
  write_safetensors(to, entries, file.metadata());
}

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  try {
    if (words.size() == 2 && words[0] == "list") {
      list(words[1]);
    } else if (words.size() == 3 && words[0] == "copy") {
      copy(words[1], words[2]);
    } else {
      std::cerr << "safetensors_tool list DIRECTORY | copy FILE COPY\n";
      return 2;
    }
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
