//===- Block.h - Memory, here or where a model runs -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_BLOCK_H
#define PLUM_RUNTIME_MODEL_BLOCK_H

#include <cstddef>
#include <memory>

namespace plum::model {

class Backend;

struct FreeBlock {
  Backend *backend = nullptr; ///< Whose memory it is; null: this program's.
  void operator()(std::byte *block) const;
};

/// Bytes in the memory of a backend, or, without one, of this program.
class Block {
public:
  Block() = default;
  /// An empty one when there is no memory.
  Block(Backend *backend, size_t bytes);

  std::byte *data() const { return own.get(); }
  size_t size() const { return bytes; }

private:
  std::unique_ptr<std::byte, FreeBlock> own;
  size_t bytes = 0;
};

/// Between blocks of one backend, or in this program's memory without one.
void copyBytes(Backend *backend, void *to, const void *from, size_t bytes);

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_BLOCK_H
