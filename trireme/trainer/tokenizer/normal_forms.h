// NFD, NFC, NFKD and NFKC of Unicode 9 (the version of the crate that Hugging Face's library uses), with alignments.
#pragma once

#include "trireme/trainer/tokenizer/aligned_text.h"

namespace trireme::trainer {

enum class NormalForm { nfd, nfc, nfkd, nfkc };

void to_normal_form(AlignedText& text, NormalForm form);

}  // namespace trireme::trainer
