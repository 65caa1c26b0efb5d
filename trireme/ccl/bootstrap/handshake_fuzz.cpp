// Whatever a stranger sends, either side of the handshake ends in a refusal or an exception, never in "proved".
#include <cstdlib>

#include "trireme/ccl/bootstrap/handshake.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

static void drive_server(std::string_view input) {
  ServerHandshake server(JobId{1}, Secret{2}, 4, Nonce{3});
  while (server.wants() > 0 && input.size() >= server.wants()) {
    const size_t step = server.wants();
    server.step(input.substr(0, step));
    input.remove_prefix(step);
  }
  if (server.state() == ServerHandshake::State::proved) std::abort();
}

static void drive_client(std::string_view input) {
  ClientHandshake client(Secret{2}, Claim{JobId{1}, 4, 1, 0}, Nonce{4});
  wire::Reader in(input);
  client.answer(in.raw(kChallengeBytes));
  const NoteHeader header = decode_note_header(in.raw(kNoteHeaderBytes));
  client.check_server({header.accepted, std::string(in.raw(header.text_bytes))});
  std::abort();
}

}  // namespace trireme::ccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string_view input(reinterpret_cast<const char*>(data), bytes);
  for (auto* drive : {trireme::ccl::drive_server, trireme::ccl::drive_client}) {
    try {
      drive(input);
    } catch (const trireme::IoError&) {
    }
  }
  return 0;
}
