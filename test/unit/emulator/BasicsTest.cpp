//===- BasicsTest.cpp - Arithmetic, control and memory --------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelRun.h"

using namespace plum;
using namespace plum::test;

static std::vector<int32_t> counted(size_t n) {
  std::vector<int32_t> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = int32_t(i);
  return values;
}

TEST(Basics, CopiesVectors) {
  KernelRun k;
  Value i = k->add(k->mul(k->ctaid(), 64), k->tid());
  Value offset = k->mul(i, 16);
  k->store(k->load(k->vec(k.i32, 4), k->at(k.in, offset)),
           k->at(k.out, offset));
  auto values = counted(4 * 3 * 64);
  k.input(values);
  ASSERT_TRUE(succeeds(k.run(64, 0, 16 * 3 * 64, /*grid=*/3)));
  EXPECT_EQ(k.output<int32_t>(), values);
}

TEST(Basics, DivergentBranchesGiveEachLaneItsOwn) {
  KernelRun k;
  Value odd = k->bitAnd(k->tid(), 1);
  Value chosen = k->ifElse(
      k->eq(odd, k->i32(1)), k.i32,
      [&]() -> Values {
        Value small = k->lt(k->tid(), k->i32(16));
        return k->ifElse(
            small, k.i32, [&]() -> Values { return {k->i32(1)}; },
            [&]() -> Values { return {k->mul(k->tid(), 3)}; });
      },
      [&]() -> Values { return {k->add(k->tid(), 1000)}; })[0];
  k->store(chosen, k.mine(k.out, 4));
  ASSERT_TRUE(succeeds(k.run(32, 0, 128)));
  auto out = k.output<int32_t>();
  for (int32_t t = 0; t < 32; ++t)
    EXPECT_EQ(out[size_t(t)], t % 2 == 0 ? t + 1000 : t < 16 ? 1 : 3 * t);
}

TEST(Basics, LoopsWithBoundsThatDiffer) {
  KernelRun k;
  // Swapped every time: moves must happen together.
  Values sums =
      k->loop(k->i32(0), k->tid(), 1, {k->i32(1), k->i32(100), k->i64(7)},
              [&](Value i, mlir::ValueRange v) -> Values {
                return {v[1], k->add(v[0], i), k->add(v[2], 1)};
              });
  k->store(k->vector({sums[0], sums[1]}), k.mine(k.out, 8));
  k->store(sums[2], k->at(k.mine(k.out, 8), 256));
  ASSERT_TRUE(succeeds(k.run(32, 0, 512)));
  auto out = k.output<int32_t>();
  for (int32_t t = 0; t < 32; ++t) {
    int32_t a = 1, b = 100;
    for (int32_t i = 0; i < t; ++i) {
      int32_t next = a + i;
      a = b;
      b = next;
    }
    EXPECT_EQ(out[size_t(2 * t)], a);
    EXPECT_EQ(out[size_t(2 * t + 1)], b);
    EXPECT_EQ(out[size_t(64 + 2 * t)], 7 + t);
  }
}

TEST(Basics, WhileLoopsEndLaneByLane) {
  KernelRun k;
  // How many bits tid has.
  using mlir::OpBuilder, mlir::Location, mlir::ValueRange;
  Value zero = k->i32(0), one = k->i32(1);
  auto op = mlir::scf::WhileOp::create(
      *k, mlir::TypeRange{k.i32, k.i32}, ValueRange{k->tid(), zero},
      [&](OpBuilder &b, Location loc, ValueRange v) {
        Value more = mlir::arith::CmpIOp::create(
            b, loc, mlir::arith::CmpIPredicate::ne, v[0], zero);
        mlir::scf::ConditionOp::create(b, loc, more, v);
      },
      [&](OpBuilder &b, Location loc, ValueRange v) {
        Value half = mlir::arith::ShRUIOp::create(b, loc, v[0], one);
        Value bits = mlir::arith::AddIOp::create(b, loc, v[1], one);
        mlir::scf::YieldOp::create(b, loc, ValueRange{half, bits});
      });
  k->store(op.getResult(1), k.mine(k.out, 4));
  ASSERT_TRUE(succeeds(k.run(64, 0, 256)));
  auto out = k.output<int32_t>();
  for (int32_t t = 0; t < 64; ++t)
    EXPECT_EQ(out[size_t(t)], t == 0 ? 0 : 1 + int32_t(std::log2(t)));
}

TEST(Basics, ArithmeticOfAllKinds) {
  KernelRun k;
  using P = mlir::arith::CmpIPredicate;
  Value t = k->tid(), x = k->sub(t, k->i32(7));
  Values results = {
      k->minimum(x, k->i32(3)),
      k->maximum(x, k->i32(3)),
      k->divu(x, 5),
      k->remu(x, 5),
      k->shr(x, 3),
      k->shl(x, 40),
      k->select(k->cmp(P::slt, x, k->i32(0)), k->i32(-1), k->i32(1)),
      k->select(k->cmp(P::ult, x, k->i32(5)), k->i32(-1), k->i32(1)),
      k->toI32(k->shr(k->mul(k->toI64(x), int64_t(1) << 33), 32)),
      k->bitsOf(k->fma(k->f32(3), k->f32(1.5), k->f32(-4.25))),
      k->pack(k->f32(1.00390625), k->f32(-1.01171875)), // Ties.
      k->mulPair(k->pack(k->f32(3), k->f32(-5)),
                 k->pack(k->f32(0.5), k->f32(7)))};
  for (auto [i, value] : llvm::enumerate(results))
    k->store(value, k->at(k.mine(k.out, 64), 4 * int64_t(i)));
  ASSERT_TRUE(succeeds(k.run(32, 0, 32 * 64)));
  auto out = k.output<int32_t>();
  for (int32_t lane = 0; lane < 32; ++lane) {
    int32_t x = lane - 7;
    const int32_t *row = &out[size_t(16 * lane)];
    EXPECT_EQ(row[0], std::min(x, 3));
    EXPECT_EQ(row[1], std::max(x, 3));
    EXPECT_EQ(uint32_t(row[2]), uint32_t(x) / 5);
    EXPECT_EQ(uint32_t(row[3]), uint32_t(x) % 5);
    EXPECT_EQ(uint32_t(row[4]), uint32_t(x) >> 3);
    EXPECT_EQ(row[5], 0);
    EXPECT_EQ(row[6], x < 0 ? -1 : 1);
    EXPECT_EQ(row[7], uint32_t(x) < 5 ? -1 : 1);
    EXPECT_EQ(row[8], 2 * x);
    EXPECT_EQ(row[9], 0x3e800000);
    EXPECT_EQ(uint32_t(row[10]), 0xbf823f80);
    EXPECT_EQ(uint32_t(row[11]),
              uint32_t(bfloat(-35)) << 16 | uint32_t(bfloat(1.5)));
  }
}

TEST(Basics, HalvesAndApproximations) {
  KernelRun k;
  Value x = k->load(k.f32, k.mine(k.in, 4));
  k->storeHalf(x, k.mine(k.out, 2), /*bf16=*/true);
  k->storeHalf(x, k->at(k.mine(k.out, 2), 64), /*bf16=*/false);
  k->store(k->loadHalf(k->at(k.mine(k.out, 2), 64), false),
           k->at(k.mine(k.out, 4), 128));
  for (auto [i, f] :
       llvm::enumerate(Values{k->ex2(x), k->lg2(x), k->rcp(x), k->rsqrt(x),
                              k->sqrt(x), k->tanh(x)}))
    k->store(f, k->at(k.mine(k.out, 4), 256 + 128 * int64_t(i)));
  std::vector<float> values(32);
  for (size_t i = 0; i < 32; ++i)
    values[i] = 0.01f * float(i * i) + 1e-3f;
  values[0] = 3e-6f; // Subnormal in f16.
  values[1] = -130;  // 2^x is flushed.
  k.input(values);
  ASSERT_TRUE(succeeds(k.run(32, 0, 1024)));
  auto out = k.output<float>();
  auto halves = k.output<uint16_t>();
  for (size_t i = 0; i < 32; ++i) {
    float x = values[i];
    EXPECT_EQ(halves[i], bfloat(x));
    EXPECT_NEAR(out[32 + i], x, std::max(std::fabs(x) * 0x1p-11f, 0x1p-25f));
    EXPECT_EQ(out[64 + i], x == -130 ? 0 : std::exp2(x));
    EXPECT_EQ(out[128 + i], 1 / x);
    if (x > 0) {
      EXPECT_NEAR(out[96 + i], std::log2(x), 1e-6);
      EXPECT_NEAR(out[160 + i] * std::sqrt(x), 1, 1e-6);
      EXPECT_NEAR(out[192 + i], std::sqrt(x), 1e-6);
    }
    EXPECT_NEAR(out[224 + i], std::tanh(x), 3e-7);
  }
}

TEST(Basics, SharesMemoryAcrossABarrier) {
  KernelRun k;
  k->store(k->mul(k->tid(), 3), k.mine(k->shared(16), 4));
  k->barrier(0, 128);
  Value mirrored = k->sub(k->i32(127), k->tid());
  k->store(k->load(k.i32, k->at(k->shared(16), k->mul(mirrored, 4))),
           k.mine(k.out, 4));
  for (uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    k.options.seed = seed;
    ASSERT_TRUE(succeeds(k.run(128, 16 + 512, 512)));
    auto out = k.output<int32_t>();
    for (int32_t t = 0; t < 128; ++t)
      EXPECT_EQ(out[size_t(t)], 3 * (127 - t));
  }
}

// The second warp writes and goes on; the first waits and reads.
TEST(Basics, ArrivesAtABarrierWithoutWaiting) {
  for (bool arrives : {true, false}) {
    KernelRun k;
    k->ifElse(
        k->eq(k->warp(), k->i32(1)), {},
        [&]() -> Values {
          k->store(k->mul(k->tid(), 3), k.mine(k->shared(), 4));
          if (arrives)
            k->barrierArrive(k->i32(2), 64);
          return {};
        },
        [&]() -> Values {
          if (arrives)
            k->barrier(2, 64);
          k->store(k->load(k.i32, k->at(k.mine(k->shared(), 4), 128)),
                   k.mine(k.out, 4));
          return {};
        });
    if (!arrives) {
      k.expectError("4-byte shared load at shared+0x80", 64, 256, 128);
      continue;
    }
    for (uint64_t seed : {0, 1, 2, 3, 4, 5}) {
      k.options.seed = seed;
      ASSERT_TRUE(succeeds(k.run(64, 256, 128)));
      auto out = k.output<int32_t>();
      for (int32_t t = 0; t < 32; ++t)
        EXPECT_EQ(out[size_t(t)], 3 * (32 + t));
    }
  }
}

TEST(Basics, ShufflesReduceAndScan) {
  KernelRun k;
  Value x = k->load(k.f32, k.mine(k.in, 4)), sum = x, scan = x;
  for (int64_t d : {16, 8, 4, 2, 1})
    sum = k->fadd(sum, k->shuffleXor(sum, d));
  for (int64_t d : {1, 2, 4, 8, 16}) {
    Value before = k->shuffleUp(scan, d);
    scan = k->select(k->ge(k->lane(), k->i32(d)), k->fadd(scan, before), scan);
  }
  Value other = k->shuffleIndex(x, k->bitXor(k->lane(), k->i32(5)));
  Value any = k->anyLane(k->eq(k->tid(), k->i32(40)));
  k->store(k->vector({sum, scan, other, k->select(any, k->f32(1), k->f32(0))}),
           k.mine(k.out, 16));
  std::vector<float> values(64);
  for (size_t i = 0; i < 64; ++i)
    values[i] = float(i % 11) - 3;
  k.input(values);
  ASSERT_TRUE(succeeds(k.run(64, 0, 1024)));
  auto out = k.output<float>();
  for (size_t w = 0; w < 2; ++w) {
    float total = 0;
    for (size_t l = 0; l < 32; ++l)
      total += values[32 * w + l];
    float running = 0;
    for (size_t l = 0; l < 32; ++l) {
      running += values[32 * w + l];
      const float *row = &out[4 * (32 * w + l)];
      EXPECT_EQ(row[0], total);
      EXPECT_EQ(row[1], running);
      EXPECT_EQ(row[2], values[32 * w + (l ^ 5)]);
      EXPECT_EQ(row[3], w == 1 ? 1 : 0);
    }
  }
}

TEST(Basics, ArgumentsAndWideValues) {
  KernelRun k;
  k->setMaxRegisters(false, 24);
  k->setMaxRegisters(true, 240);
  // Field 32 + 4 (tid % 2): sequences, tokens.
  Value field = k->add(k->mul(k->bitAnd(k->tid(), 1), 4), 32);
  Value wide = k->mul(k->toI64(k->argument(field, k.i32)), int64_t(1) << 35);
  k->store(wide, k.mine(k.out, 8));
  k->store(k->load(k->getI64Type(), k.mine(k.out, 8)),
           k->at(k.mine(k.out, 8), 256));
  k.arguments.sequences = 3;
  k.arguments.tokens = 5;
  ASSERT_TRUE(succeeds(k.run(32, 0, 512)));
  auto out = k.output<int64_t>();
  for (size_t t = 0; t < 64; ++t)
    EXPECT_EQ(out[t], int64_t(t % 2 ? 5 : 3) << 35);
}

TEST(Basics, RefusesWhatItDoesNotKnow) {
  KernelRun k;
  mlir::LLVM::InlineAsmOp::create(
      *k, mlir::TypeRange(), mlir::ValueRange(), "brkpt;", "", true, false,
      mlir::LLVM::tailcallkind::TailCallKind::None,
      mlir::LLVM::AsmDialectAttr::get(&k.context,
                                      mlir::LLVM::AsmDialect::AD_ATT),
      mlir::ArrayAttr());
  k.expectError("the inline assembly \"brkpt;\" is not one of Ptx.h's", 32, 0);
}
