//===- FaultsTest.cpp - What is wrong is found, and named -----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelRun.h"

using namespace plum;
using namespace plum::test;

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

TEST(Faults, GlobalLoadPastTheEnd) {
  KernelRun k;
  k->store(k->load(k->vec(k.i32, 4), k->at(k.mine(k.in, 16), 16)),
           k.mine(k.out, 16));
  k.input(std::vector<int32_t>(4 * 64));
  k.expectError("kernel 'k': error: cta 0, thread 63: 16-byte global load at "
                "in+0x400, past the end of 'in' (1024 bytes)\nnote: op: ",
                64, 0);
}

TEST(Faults, GlobalStoreBeforeTheStart) {
  KernelRun k;
  k->store(k->i32(1), k->at(k.mine(k.out, 4), -8));
  k.expectError("thread 0: 4-byte global store at", 32, 0);
}

TEST(Faults, GlobalUndefinedAndConstant) {
  KernelRun k;
  k->store(k->load(k.i32, k.mine(k.out, 4)), k.mine(k.in, 4));
  k.input(std::vector<int32_t>(32));
  k.expectError("4-byte global load at out+0x0, which nothing has written", 32,
                0);

  KernelRun l;
  std::vector<int32_t> values(32);
  l->store(l->i32(1), l.mine(l.in, 4));
  l.arguments.workspace = l.memory.mapConstant("weights", values.data(), 128);
  l.expectError("4-byte global store at weights+0x0, but 'weights' is constant",
                32, 0);
}

TEST(Faults, Misaligned) {
  KernelRun k;
  k->store(k->load(k->vec(k.i32, 2), k->at(k.mine(k.in, 8), 4)),
           k.mine(k.out, 8));
  k.input(std::vector<int32_t>(128));
  k.expectError("8-byte global load at in+0x4, which is not a multiple of 8",
                32, 0);
  KernelRun l;
  l.options.checkUndefined = false;
  l->ldmatrix4(l.mine(l->shared(), 8), false);
  l.expectError("thread 1: row of ldmatrix at shared+0x8, which is not a "
                "multiple of 16",
                32, 1024);
}

TEST(Faults, SharedOutOfRangeAndUndefined) {
  KernelRun k;
  k->store(k->i32(0), k.mine(k->shared(4), 4));
  k.expectError(
      "thread 31: 4-byte shared store at shared+0x80, outside the 128 "
      "bytes of shared memory",
      32, 128);
  KernelRun l;
  l->ifThen(l->lt(l->tid(), l->i32(7)),
            [&] { l->store(l->i32(0), l.mine(l->shared(), 4)); });
  l->store(l->load(l.i32, l.mine(l->shared(), 4)), l.mine(l.out, 4));
  l.expectError("thread 7: 4-byte shared load at shared+0x1c, of which nothing "
                "has written shared+0x1c",
                32, 128);
  l.options.checkUndefined = false;
  EXPECT_TRUE(succeeds(l.run(32, 128, 128)));
}

TEST(Faults, NamesTheIterationAndTheOp) {
  KernelRun k;
  k->loop(k->i32(0), k->i32(10), 3, [&](Value i) {
    k->loop(k->i32(0), k->i32(2), 1, [&](Value j) {
      k->store(j, k->at(k.mine(k.out, 4), k->mul(i, 100)));
    });
  });
  k.expectError("in iteration 6, 0 of the loops around it, outermost first", 32,
                0, 512);
  KernelRun l;
  l->setLoc(mlir::NameLoc::get(l->getStringAttr("the epilogue")));
  l->store(l->i32(0), l->at(l.out, 8));
  l.expectError("\"the epilogue\"", 32, 0, 4);
}

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

TEST(Faults, LanesThatAreMissing) {
  KernelRun k;
  k->ifThen(k->lt(k->tid(), k->i32(16)),
            [&] { k->store(k->shuffleXor(k->tid(), 1), k.out); });
  k.expectError(
      "warp 0: lanes 0xffff alone reach an instruction that all lanes", 32, 0);
  KernelRun l;
  l->ifThen(l->lt(l->tid(), l->i32(40)), [&] { l->barrier(0, 64); });
  l.expectError("cta 0, warp 1: lanes 0xff alone reach", 64, 0);
}

TEST(Faults, BarrierThatAWarpNeverReaches) {
  KernelRun k;
  k->ifThen(k->eq(k->warp(), k->i32(1)), [&] { k->barrier(3, 64); });
  k.expectError(
      "deadlock, no warp can go on\nnote: warp 1 waits at bar.sync 3: "
      "32 of 64 threads are there",
      96, 0);
  KernelRun l;
  l->barrier(l->add(l->warp(), 1), 64);
  l.expectError("warp 1 waits at bar.sync 2", 64, 0);
  KernelRun m;
  m->ifElse(
      m->eq(m->warp(), m->i32(0)), {},
      [&]() -> Values {
        m->barrier(1, 64);
        return {};
      },
      [&]() -> Values {
        m->barrier(1, 96);
        return {};
      });
  m.expectError("barrier 1 of 96 threads, where others wait for 64", 96, 0);
}

TEST(Faults, MbarrierMisuse) {
  KernelRun k;
  k->ifThen(k->eq(k->tid(), k->i32(0)),
            [&] { k->barrierInit(k->shared(8), 1); });
  k->wait(k->shared(8), k->i32(0));
  k.expectError("races with the init of warp 0", 64, 64);
  KernelRun l;
  l->wait(l->shared(8), l->i32(0));
  l.expectError("no mbarrier was initialised at shared+0x8", 32, 64);
  KernelRun m;
  m->ifThen(m->eq(m->tid(), m->i32(0)),
            [&] { m->barrierInit(m->shared(8), 1); });
  m->syncWarp();
  m->store(m->i32(0), m.mine(m->shared(), 4));
  m.expectError(
      "thread 2: 4-byte shared store at shared+0x8, where an mbarrier "
      "lives",
      32, 128);
  KernelRun n; // A full barrier gets no phase of its own until bytes arrive.
  n->ifThen(n->eq(n->tid(), n->i32(0)), [&] {
    n->barrierInit(n->shared(8), 1);
    n->arriveExpect(n->shared(8), n->i32(16));
    n->arrive(n->shared(8));
  });
  n.expectError("whose 1 arrivals of phase 0 have all been made", 32, 64);
}

//===----------------------------------------------------------------------===//
// Races
//===----------------------------------------------------------------------===//

/// Warps exchange what they have stored `rounds` times.
static void exchange(KernelRun &k, bool before, bool after) {
  k->loop(k->i32(0), k->i32(3), 1, [&](Value i) {
    k->store(k->add(k->tid(), i), k.mine(k->shared(), 4));
    if (before)
      k->barrier(0, 64);
    Value other = k->bitXor(k->tid(), k->i32(32));
    k->store(k->load(k.i32, k->at(k->shared(), k->mul(other, 4))),
             k.mine(k.out, 4));
    if (after)
      k->barrier(0, 64);
  });
}

TEST(Faults, Races) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    KernelRun both, noneBefore, noneAfter;
    both.options.seed = noneBefore.options.seed = noneAfter.options.seed = seed;
    exchange(both, true, true);
    EXPECT_TRUE(succeeds(both.run(64, 256, 256)));
    noneAfter.options.seed = seed;
    exchange(noneAfter, true, false);
    noneAfter.expectError("races with", 64, 256);
    noneBefore.options.checkUndefined = false;
    exchange(noneBefore, false, true);
    noneBefore.expectError("races with", 64, 256);
  }
}

TEST(Faults, LanesOfAWarp) {
  auto exchange = [](KernelRun &k, bool sync) {
    k->store(k->tid(), k.mine(k->shared(), 4));
    if (sync)
      k->syncWarp();
    Value other = k->bitXor(k->tid(), k->i32(1));
    k->store(k->load(k.i32, k->at(k->shared(), k->mul(other, 4))),
             k.mine(k.out, 4));
  };
  KernelRun good, bad, ignored, same, different, global;
  exchange(good, true);
  EXPECT_TRUE(succeeds(good.run(64, 256, 256)));
  exchange(bad, false);
  bad.expectError(
      "thread 0: 4-byte shared load at shared+0x4, of which lane 1 of "
      "this warp has written shared+0x4 with no syncWarp since",
      64, 256);
  exchange(ignored, false);
  ignored.options.checkLanes = false;
  EXPECT_TRUE(succeeds(ignored.run(64, 256, 256)));

  same->store(same->i32(3), same->shared());
  same->store(same->i32(3), same.out);
  EXPECT_TRUE(succeeds(same.run(32, 4, 4)));
  different->store(different->tid(), different->shared());
  different.expectError(
      "thread 1: 4-byte shared store at shared+0x0, where lane "
      "0 stores another value in the same instruction",
      32, 4);
  global->store(global->tid(), global.out);
  global.expectError(
      "4-byte global store at out+0x0, where another lane stores "
      "another value in the same instruction",
      32, 4);
}

TEST(Faults, GlobalRaces) {
  // Each CTA writes one int; then reads its own, or its neighbour's.
  auto cta = [](KernelRun &k, bool neighbour, bool barrier) {
    Value mine = k->at(k.out, k->mul(k->ctaid(), 4));
    k->ifThen(k->eq(k->tid(), k->i32(0)), [&] { k->store(k->ctaid(), mine); });
    if (barrier)
      k->barrier(0, 64);
    Value from = neighbour
                     ? k->at(k.out, k->mul(k->sub(k->i32(1), k->ctaid()), 4))
                     : mine;
    k->ifThen(k->eq(k->tid(), k->i32(32)),
              [&] { k->store(k->load(k.i32, from), k->at(from, 8)); });
  };
  KernelRun good, early, other, twice;
  cta(good, false, true);
  EXPECT_TRUE(succeeds(good.run(64, 0, 16, 2)));
  cta(early, false, false);
  early.expectError(
      "cta 0, thread 32: 4-byte global load at out+0x0, which races "
      "with the write of warp 0: no barrier is in between",
      64, 0);
  cta(other, true, true);
  Status status = other.run(64, 0, 16, 2);
  ASSERT_FALSE(status); // CTA 0 is first and finds nothing at all.
  twice->store(twice->add(twice->ctaid(), 1), twice.out);
  status = twice.run(32, 0, 4, 2);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().str().find(
                "cta 1, thread 0: 4-byte global store at out+0x0, which races "
                "with the write of cta 0 of the same launch"),
            std::string::npos)
      << status.error().str();
}

TEST(Faults, RaceNamesBothOps) {
  KernelRun k;
  k->ifThen(k->eq(k->warp(), k->i32(0)),
            [&] { k->store(k->lane(), k.mine(k->shared(), 4)); });
  k->ifThen(k->eq(k->warp(), k->i32(1)),
            [&] { k->store(k->load(k.i32, k->shared(4)), k.mine(k.out, 4)); });
  k.expectError(
      "cta 0, thread 32: 4-byte shared load at shared+0x4, races with "
      "the write of warp 0 at shared+0x4: no barrier orders it before "
      "this read (a lane that arrives alone",
      64, 128);
  k.expectError("note: the other op: llvm.store", 64, 128);
}

//===----------------------------------------------------------------------===//
// wgmma
//===----------------------------------------------------------------------===//

namespace {
struct Product {
  bool proxyFence = true, fence = true, wait = true, all = true;
  bool overwrite = false;

  /// A [64][16] B [n = 8][k = 16] of ones.
  void build(KernelRun &k) const {
    Value two = k->i32(0x3f803f80);
    k->store(k->vector({two, two, two, two}), k.mine(k->shared(), 16));
    if (proxyFence)
      k->fenceAsync();
    k->barrier(0, 128);
    Value a = k->bitOr(k->bitAnd(k->tid(), 0), two);
    if (fence)
      a = k->wgmmaFence(a)[0];
    Value start = k->shr(k->address(k->shared()), 4);
    Value low = mlir::arith::ExtUIOp::create(*k, k->getI64Type(), start);
    Value descriptor =
        k->bitOr(low, k->i64(int64_t(1) << 62 | int64_t(64) << 32 | 1 << 16));
    Values zeros(4, k->f32(0));
    auto body = [&] {
      Values d = k->wgmma(8, zeros, {a, a, a, a}, descriptor, false, false);
      k->wgmmaCommit();
      if (overwrite)
        k->store(two, k.mine(k->shared(), 4));
      d = k->wgmmaWait(wait ? 0 : 1, d);
      k->store(k->vector(d), k.mine(k.out, 16));
    };
    if (all)
      body();
    else
      k->ifThen(k->lt(k->warp(), k->i32(3)), body);
  }
};
} // namespace

TEST(Faults, Wgmma) {
  KernelRun good, noProxy, noFence, noWait, noWarp, early;
  Product{}.build(good);
  ASSERT_TRUE(succeeds(good.run(128, 2048, 2048)));
  for (float x : good.output<float>())
    EXPECT_EQ(x, 16);
  Product{.proxyFence = false}.build(noProxy);
  noProxy.expectError("wgmma's read of B at shared+0x0, of which warp 0 has "
                      "stored to shared+0x0 with no fence.proxy.async since",
                      128, 2048);
  Product{.fence = false}.build(noFence);
  noFence.expectError("wgmma reads registers that were written with no "
                      "wgmma.fence since",
                      128, 2048);
  Product{.wait = false}.build(noWait);
  noWait.expectError("no wgmma.wait_group has waited for its group", 128, 2048);
  Product{.all = false}.build(noWarp);
  noWarp.expectError("warp 0 waits for the rest of its warpgroup at wgmma", 128,
                     2048);
  Product{.overwrite = true}.build(early);
  early.expectError("a bulk store or wgmma still in flight will read", 128,
                    2048);
}

/// Two products of one group each; `sum`: the second adds to the first.
static void twoGroups(KernelRun &k, bool sum, bool useFirst, int64_t left) {
  Value ones = k->i32(0x3f803f80);
  k->store(k->vector({ones, ones, ones, ones}), k.mine(k->shared(), 16));
  k->fenceAsync();
  k->barrier(0, 128);
  Value a = k->wgmmaFence(ones)[0];
  Values zeros(4, k->f32(0));
  Value at = k->i64(int64_t(1) << 62 | int64_t(64) << 32 | 64); // 1024 >> 4.
  Values first = k->wgmma(8, zeros, {a, a, a, a}, at, false, false);
  k->wgmmaCommit();
  Values second =
      k->wgmma(8, sum ? first : zeros, {a, a, a, a}, at, false, false);
  k->wgmmaCommit();
  Value x = k->f32(0);
  if (useFirst)
    x = k->wgmmaWait(1, first)[0];
  Value y = k->wgmmaWait(left, second)[0];
  k->store(k->fadd(x, y), k.mine(k.out, 4));
}

TEST(Faults, WgmmaGroups) {
  KernelRun separate, chain, early, both;
  twoGroups(separate, false, true, 0);
  ASSERT_TRUE(succeeds(separate.run(128, 2048, 512)));
  EXPECT_EQ(separate.output<float>(), std::vector<float>(128, 32));
  twoGroups(chain, true, false, 0);
  ASSERT_TRUE(succeeds(chain.run(128, 2048, 512)));
  EXPECT_EQ(chain.output<float>(), std::vector<float>(128, 32));
  twoGroups(early, false, true, 1);
  early.expectError("no wgmma.wait_group has waited for its group", 128, 2048);
  twoGroups(both, true, true, 0);
  both.expectError("wgmma adds to an accumulator in flight that is needed "
                   "elsewhere too",
                   128, 2048);
}

TEST(Faults, AccumulatorBesideItsWait) {
  KernelRun k;
  Values zeros(4, k->f32(0)), a(4, k->i32(0));
  Values d = k->wgmma(8, zeros, a, k->i64(1), false, false);
  k->wgmmaCommit();
  k->wgmmaWait(0, d);
  k->store(d[0], k.out);
  k.expectError("has not passed through a wgmmaWait", 128, 2048);
}

TEST(Faults, LoopWithoutEnd) {
  KernelRun k;
  k->loop(k->i32(0), k->i32(1 << 30), 1, [&](Value i) { k->store(i, k.out); });
  k.options.maxInstructions = 10000;
  k.expectError("no end after 10000 instructions", 32, 0);
}

TEST(Faults, LaunchThatDoesNotFit) {
  KernelRun k;
  k->barrier(0, 64);
  k->finish({64, 0, 1024, 1});
  auto text = [&](emulator::LaunchConfig config) {
    Status status =
        emulator::launch(*k.module, "k", config, k.arguments, k.memory);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(text({1, 64, 1024}), "");
  EXPECT_EQ(text({}), "");
  EXPECT_EQ(text({1, 32, 1024}), "launched with 32 threads, it requires 64");
  EXPECT_EQ(text({1, 64, 512}), "launched with 512 bytes of shared memory, it "
                                "requires 1024 and there are 232448");
}
