//===- States.h - What sequences carry from token to token ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A network declares its states once, in a StateLayout: fixed ones (a memory
// [H, K, V], the last inputs of a convolution) and growing ones (a row of keys
// and values for each token). A StatePool holds them for a number of slots, one
// sequence each. All fixed states of a slot lie in one block, so that a fork, a
// checkpoint or a roll-back is one copy.
//
// A pool is in the memory of the backend that its model runs on, or in this
// program's. Growing states are f32, or what the backend says; files hold f32.
//
// A recurrent state has no positions: to drop tokens, a state from before them
// must have been kept. A forward pass with checkpoints keeps a block of states
// from before each of its sequences and after each of its tokens, and rollBack
// returns to any of these, bit for bit. Where they lie among each other:
//
//   here          after all tokens of all sequences, then before them: the
//                 kernels of a CPU write the former as one row of snapshots
//   on a backend  of each sequence, before it and after each of its tokens: a
//                 step reads block i and writes block i + 1, so both are the
//                 same slot of two views, one block apart. The pass leaves
//                 the pool's own states alone; `end` moves them on
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_STATES_H
#define PLUM_RUNTIME_MODEL_STATES_H

#include "plum/Support/Result.h"
#include "runtime/model/Block.h"
#include "runtime/model/Work.h"

#include <string>

namespace plum::model {

class StateLayout {
public:
  struct Fixed {
    std::string name;
    std::vector<int64_t> shape;
    int64_t offset, size; ///< In floats, inside of a slot's block.
  };
  struct Growing {
    std::string name;
    int64_t width;
  };

  /// Both return the index that StatePool takes.
  int64_t addFixed(std::string name, std::vector<int64_t> shape);
  int64_t addGrowing(std::string name, int64_t width);

  std::vector<Fixed> fixed;
  std::vector<Growing> growing;
  int64_t block = 0; ///< Floats of a slot's fixed states, padding included.
};

class StatePool {
public:
  /// `identity` tells models apart in state files.
  static Result<StatePool> create(const StateLayout &layout, int64_t slots,
                                  uint64_t identity,
                                  Backend *backend = nullptr);

  int64_t slots() const { return int64_t(sequences.size()); }
  /// Tokens that a slot has seen, in order.
  const std::vector<int32_t> &tokens(int64_t slot) const {
    return sequences[size_t(slot)].tokens;
  }
  int64_t bytes(int64_t slot) const;

  void reset(int64_t slot);
  void fork(int64_t from, int64_t to);
  /// Drops the last `count` tokens, which must be of the pool's last forward
  /// pass and that one with checkpoints.
  Status rollBack(int64_t slot, int64_t count);
  Status save(int64_t slot, const std::string &path) const;
  /// With an error the slot is as before.
  Status restore(int64_t slot, const std::string &path);

  // For layers.

  /// State `index` of a slot, and the distance to the next slot's.
  float *fixed(int64_t slot, int64_t index) {
    return block(slot) + layout->fixed[size_t(index)].offset;
  }
  int64_t stride() const { return layout->block; }
  /// The blocks of all slots.
  float *slotBlocks() const { return block(0); }
  /// Blocks of checkpoints, the first and how many; and which of them is from
  /// after the `token`-th token of a span, or, for -1, from before it.
  float *checkpointBlocks() const { return floats(kept.memory); }
  int64_t checkpointCount() const { return kept.count; }
  int64_t checkpointAt(size_t span, int64_t token) const {
    return token < 0 ? kept.before[span] : kept.first[span] + token;
  }
  /// State `index` there.
  float *checkpoint(size_t span, int64_t token, int64_t index) const {
    return checkpointBlocks() + checkpointAt(span, token) * layout->block +
           layout->fixed[size_t(index)].offset;
  }
  /// Rows of a growing state.
  View growing(int64_t slot, int64_t index);
  /// Makes room for `count` rows after those that there are, and counts them;
  /// returns where the first row of all is. Null when there is no memory.
  void *extend(int64_t slot, int64_t index, int64_t count);
  const StateLayout &shape() const { return *layout; }

  // For Model::forward.

  /// With an error there is no memory for checkpoints.
  Status begin(std::span<const Span> spans, bool checkpoints);
  void end(std::span<const Span> spans, std::span<const int32_t> ids);

private:
  /// Rows of a growing state, in memory that grows by half when it is full.
  struct Growth {
    Block memory;
    int64_t rows = 0;
  };
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<Growth> growing;
  };
  struct Checkpoints {
    std::vector<Span> spans; ///< Of the pass; none: it had no checkpoints.
    std::vector<int64_t> first, before; ///< Of each span, in blocks.
    int64_t count = 0;                  ///< Blocks.
    Block memory; ///< Stays for the next pass: recorded ones have its address.
  };
  static float *floats(const Block &memory) {
    return reinterpret_cast<float *>(memory.data());
  }
  float *block(int64_t slot) const {
    return floats(blocks) + slot * layout->block;
  }
  /// Something else is in the slot now.
  void dropCheckpoints(int64_t slot);
  size_t elementBytes() const; ///< Of growing states.
  /// Growing rows of a slot as f32, and the other way.
  std::vector<float> readGrowing(int64_t slot, size_t index) const;
  bool writeGrowing(Growth &growth, std::span<const float> values) const;

  const StateLayout *layout = nullptr;
  Backend *backend = nullptr;
  uint64_t identity = 0;
  Block blocks;
  std::vector<Sequence> sequences;
  Checkpoints kept;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_STATES_H
