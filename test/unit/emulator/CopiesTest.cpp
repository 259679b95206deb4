//===- CopiesTest.cpp - Asynchronous copies and mbarriers -----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelRun.h"

using namespace plum;
using namespace plum::test;

namespace {

/// Two stages of 512 bytes between a producer warp (the last) and two consumer
/// warps, each of which adds up one int of every step for each thread. What can
/// be left out is what a kernel may forget.
struct Ring {
  bool bulk = false; ///< Bulk copies, else cp.async.
  bool waitFull = true, releaseStage = true, waitEmpty = true;
  bool fenceInit = true, expectBytes = true, syncLanes = true;

  static constexpr int64_t kSteps = 7, kStages = 2, kStage = 256;
  static constexpr int64_t kFull = 0, kEmpty = 32, kData = 128;

  void build(KernelRun &k) const {
    Value first = k->eq(k->tid(), k->i32(0));
    k->ifThen(first, [&] {
      for (int64_t s = 0; s < kStages; ++s) {
        k->barrierInit(k->shared(kFull + 8 * s), bulk ? 1 : 32);
        k->barrierInit(k->shared(kEmpty + 8 * s), 2);
      }
      if (fenceInit)
        k->fenceBarrierInit();
    });
    k->barrier(0, 96);
    k->ifElse(
        k->eq(k->warp(), k->i32(2)), {},
        [&]() -> Values {
          if (bulk)
            k->ifThen(k->eq(k->lane(), k->i32(0)), [&] { produce(k); });
          else
            produce(k);
          return {};
        },
        [&]() -> Values {
          consume(k);
          return {};
        });
  }

  void produce(KernelRun &k) const {
    k->loop(k->i32(0), k->i32(kSteps), 1, [&](Value step) {
      auto [stage, round] = place(k, step);
      Value full = barrier(k, kFull, stage);
      if (waitEmpty)
        k->ifThen(k->ge(round, k->i32(1)), [&] {
          k->wait(barrier(k, kEmpty, stage),
                  k->bitAnd(k->sub(round, k->i32(1)), 1));
        });
      Value to = data(k, stage);
      Value from = k->at(k.in, k->mul(step, kStage));
      if (bulk) {
        k->arriveExpect(full, k->i32(expectBytes ? kStage : 0));
        k->bulkLoad(to, from, kStage, full);
        return;
      }
      // 16 lanes copy, the others fill nothing in; all arrive.
      k->ifThen(k->lt(k->lane(), k->i32(16)), [&] {
        Value mine = k->mul(k->lane(), 16);
        k->copy16(k->at(to, mine), k->at(from, mine), k->i32(16));
      });
      k->copyArrive(full);
    });
  }

  void consume(KernelRun &k) const {
    Value sum = k->loop(
        k->i32(0), k->i32(kSteps), 1, {k->i32(0)},
        [&](Value step, mlir::ValueRange v) -> Values {
          auto [stage, round] = place(k, step);
          if (waitFull)
            k->wait(barrier(k, kFull, stage), k->bitAnd(round, 1));
          Value x = k->load(k.i32, k->at(data(k, stage), k->mul(k->tid(), 4)));
          if (syncLanes)
            k->syncWarp();
          if (releaseStage)
            k->ifThen(k->eq(k->lane(), k->i32(0)),
                      [&] { k->arrive(barrier(k, kEmpty, stage)); });
          return {k->add(v[0], x)};
        })[0];
    k->store(sum, k.mine(k.out, 4));
  }

  Status run(KernelRun &k) const {
    build(k);
    std::vector<int32_t> values(kSteps * kStage / 4);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = int32_t(i * i);
    k.input(values);
    return k.run(96, kData + kStages * kStage, 256);
  }

private:
  static std::pair<Value, Value> place(KernelRun &k, Value step) {
    return {k->remu(step, kStages), k->divu(step, kStages)};
  }
  static Value barrier(KernelRun &k, int64_t base, Value stage) {
    return k->at(k->shared(base), k->mul(stage, 8));
  }
  static Value data(KernelRun &k, Value stage) {
    return k->at(k->shared(kData), k->mul(stage, kStage));
  }
};

bool mentions(const Status &status, const std::string &text) {
  return status.error().str().find(text) != std::string::npos;
}
void expectError(const Status &status, const std::string &text) {
  ASSERT_FALSE(status) << "expected: " << text;
  EXPECT_TRUE(mentions(status, text)) << status.error().str();
}

} // namespace

TEST(Copies, RingBetweenAProducerAndConsumers) {
  for (bool bulk : {false, true})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      KernelRun k;
      k.options.seed = seed;
      ASSERT_TRUE(succeeds(Ring{.bulk = bulk}.run(k)));
      auto out = k.output<int32_t>();
      for (int32_t t = 0; t < 64; ++t) {
        int32_t sum = 0;
        for (int32_t step = 0; step < 7; ++step)
          sum += (64 * step + t) * (64 * step + t);
        EXPECT_EQ(out[size_t(t)], sum);
      }
    }
}

TEST(Copies, ConsumerThatDoesNotWait) {
  for (bool bulk : {false, true})
    for (uint64_t seed = 0; seed < 10; ++seed) {
      KernelRun k;
      k.options.seed = seed;
      Status status = Ring{.bulk = bulk, .waitFull = false}.run(k);
      ASSERT_FALSE(status);
      EXPECT_TRUE(mentions(status, "of which nothing has written") ||
                  mentions(status, "a copy still in flight will write") ||
                  mentions(status, "races with the write of a copy"))
          << status.error().str();
    }
}

TEST(Copies, ProducerThatDoesNotWaitOverwrites) {
  for (bool bulk : {false, true})
    for (uint64_t seed = 0; seed < 5; ++seed) {
      KernelRun k;
      k.options.seed = seed;
      Status status = Ring{.bulk = bulk, .waitEmpty = false}.run(k);
      ASSERT_FALSE(status);
      EXPECT_TRUE(mentions(status, "races with") ||
                  mentions(status, "a copy still in flight will write") ||
                  mentions(status, "arrivals of phase 0 have all been made"))
          << status.error().str();
    }
}

TEST(Copies, LaneThatReleasesWhatOthersStillRead) {
  for (bool bulk : {false, true}) {
    KernelRun k;
    expectError(Ring{.bulk = bulk, .syncLanes = false}.run(k),
                "races with a read of warp");
    KernelRun l;
    l.options.checkLanes = false;
    EXPECT_TRUE(succeeds(Ring{.bulk = bulk, .syncLanes = false}.run(l)));
  }
}

TEST(Copies, StageThatIsNeverReleasedDeadlocks) {
  KernelRun k;
  Status status = Ring{.bulk = true, .releaseStage = false}.run(k);
  expectError(status, "cta 0: deadlock, no warp can go on");
  expectError(status,
              "warp 2 waits (lanes 0x1) for parity 0 of the mbarrier at "
              "shared+0x20: in phase 0, 2 of 2 arrivals and 0 bytes are "
              "missing");
}

TEST(Copies, BytesThatNobodyExpects) {
  // The phase ends before the bytes are there: they are read in flight.
  KernelRun k;
  expectError(Ring{.bulk = true, .expectBytes = false}.run(k),
              "a copy still in flight will write");
}

TEST(Copies, BarrierThatTheCopyMayNotSee) {
  KernelRun k;
  expectError(Ring{.bulk = true, .fenceInit = false}.run(k),
              "no fence.mbarrier_init since");
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// Two groups of 512 bytes, 32 threads; reads both after waiting for one or
/// all.
static void groups(KernelRun &k, int64_t left, int64_t sourceBytes) {
  for (int64_t group = 0; group < 2; ++group) {
    k->copy16(k.mine(k->shared(512 * group), 16),
              k->at(k.mine(k.in, 16), 512 * group), k->i32(sourceBytes));
    k->copyCommit();
  }
  k->copyWait(left);
  for (int64_t group = 0; group < 2; ++group)
    k->store(k->load(k->vec(k.i32, 4), k.mine(k->shared(512 * group), 16)),
             k->at(k.mine(k.out, 16), 512 * group));
  std::vector<int32_t> values(256, 5);
  k.input(values);
}

TEST(Copies, GroupsArriveInOrder) {
  KernelRun k(80), l(80);
  groups(k, 0, 12);
  ASSERT_TRUE(succeeds(k.run(32, 1024, 1024)));
  auto out = k.output<int32_t>();
  for (size_t i = 0; i < 256; ++i)
    EXPECT_EQ(out[i], i % 4 == 3 ? 0 : 5);
  groups(l, 1, 16);
  l.expectError("thread 0: 16-byte shared load at shared+0x200, which a "
                "copy still in flight will write",
                32, 1024);
}

TEST(Copies, OutsideOfTheSource) {
  KernelRun k(80);
  k->copy16(k.mine(k->shared(), 16), k->at(k.mine(k.in, 16), 16), k->i32(16));
  k.input(std::vector<int32_t>(128));
  k.expectError("thread 31: 16-byte cp.async at in+0x200, past the end of "
                "'in' (512 bytes)",
                32, 512);
}

//===----------------------------------------------------------------------===//
// Bulk stores
//===----------------------------------------------------------------------===//

namespace {
struct BulkStore {
  bool fence = true, waitBefore = true, waitAtEnd = true;

  /// Stores tid, then 2 tid, from the same 128 bytes.
  void build(KernelRun &k) const {
    for (int64_t i = 0; i < 2; ++i) {
      Value first = k->eq(k->tid(), k->i32(0));
      if (i && waitBefore) {
        k->ifThen(first, [&] { k->bulkWaitRead(0); });
        k->barrier(1, 32);
      }
      k->store(k->mul(k->tid(), i + 1), k.mine(k->shared(), 4));
      if (fence)
        k->fenceAsync();
      k->barrier(1, 32);
      k->ifThen(first, [&] {
        k->bulkStore(k->at(k.out, 128 * i), k->shared(), 128);
        k->bulkCommit();
        if (i && waitAtEnd)
          k->bulkWait(0);
      });
    }
  }
};
} // namespace

TEST(Copies, BulkStores) {
  KernelRun k;
  BulkStore{}.build(k);
  ASSERT_TRUE(succeeds(k.run(32, 128, 256)));
  auto out = k.output<int32_t>();
  for (int32_t t = 0; t < 64; ++t)
    EXPECT_EQ(out[size_t(t)], t % 32 * (t / 32 + 1));

  KernelRun noFence, noWait, noEnd;
  BulkStore{.fence = false}.build(noFence);
  noFence.expectError(
      "bulk store of 128 bytes at shared+0x0, of which warp 0 "
      "has stored to shared+0x0 with no fence.proxy.async since",
      32, 128);
  BulkStore{.waitBefore = false}.build(noWait);
  noWait.expectError("4-byte shared store at shared+0x0, which a bulk store or "
                     "wgmma still in flight will read",
                     32, 128);
  BulkStore{.waitAtEnd = false}.build(noEnd);
  noEnd.expectError("the thread ends before its bulk store has read shared "
                    "memory",
                    32, 128);
}
