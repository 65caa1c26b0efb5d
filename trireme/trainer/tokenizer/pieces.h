// A text in pieces: what the pre-tokenizers cut, until the model turns each piece into tokens.
#pragma once

#include "trireme/trainer/tokenizer/aligned_text.h"

namespace trireme::trainer {

struct Piece {
  uint32_t begin = 0, end = 0;  // bytes of the pieces' text
  uint32_t origin = 0;          // where it begins in the original
  int32_t id = -1;              // of the added token that it is; -1, it is text
};

// Neighbours in `list` are neighbours in the text, but for what was thrown away between them. No piece is empty.
struct Pieces {
  AlignedText text;
  std::vector<Piece> list;

  std::string_view of(const Piece& piece) const {
    return std::string_view(text.text).substr(piece.begin, piece.end - piece.begin);
  }
};

// Cuts every piece that is text: cut(its text, emit) calls emit(begin, end) for each part that stays, in order.
template <class Cut>
void cut_pieces(Pieces& pieces, const Cut& cut) {
  std::vector<Piece> parts;
  parts.reserve(pieces.list.size() * 2);
  for (const Piece& piece : pieces.list) {
    if (piece.id >= 0) {
      parts.push_back(piece);
      continue;
    }
    cut(pieces.of(piece), [&](size_t begin, size_t end) {
      if (begin == end) return;
      const auto first = piece.begin + static_cast<uint32_t>(begin);
      parts.push_back({first, piece.begin + static_cast<uint32_t>(end), pieces.text.spans[first].begin, -1});
    });
  }
  pieces.list = std::move(parts);
}

// Rewrites every piece that is text: change(AlignedText& of the piece, its origin).
template <class ChangePiece>
void change_pieces(Pieces& pieces, const ChangePiece& change) {
  Pieces changed;
  changed.text.text.reserve(pieces.text.text.size() * 2);
  changed.text.spans.reserve(pieces.text.text.size() * 2);
  changed.list.reserve(pieces.list.size());
  AlignedText scratch;
  for (const Piece& piece : pieces.list) {
    scratch.text.clear();
    scratch.spans.clear();
    append_range(scratch, pieces.text, piece.begin, piece.end);
    if (piece.id < 0) change(scratch, piece.origin);
    if (scratch.text.empty()) continue;
    const auto begin = static_cast<uint32_t>(changed.text.text.size());
    append_range(changed.text, scratch, 0, scratch.text.size());
    changed.list.push_back({begin, static_cast<uint32_t>(changed.text.text.size()), piece.origin, piece.id});
  }
  pieces = std::move(changed);
}

}  // namespace trireme::trainer
