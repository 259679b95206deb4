//===- Asm.cpp - The inline assembly that Ptx.h writes ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One table of texts. Blanks do not count. Holes: `#` a number, `~` the rest of
// an address ("~4" is "[$4]" or "[$4+16]", giving the offset), `^` a list of
// consecutive operands ("{$2, $3}", giving the first and how many), `*`
// anything. A new text in Ptx.cpp is a new line here and a case in a warp.
//
//===----------------------------------------------------------------------===//

#include "Program.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

namespace {
struct Spelling {
  Code code;
  const char *text;
};
} // namespace

static constexpr Spelling kSpellings[] = {
    {Code::Ex2, "ex2.approx.ftz.f32 $0, $1;"},
    {Code::Lg2, "lg2.approx.ftz.f32 $0, $1;"},
    {Code::Rcp, "rcp.approx.ftz.f32 $0, $1;"},
    {Code::Rsqrt, "rsqrt.approx.ftz.f32 $0, $1;"},
    {Code::Sqrt, "sqrt.approx.ftz.f32 $0, $1;"},
    {Code::PackBFloat, "cvt.rn.bf16x2.f32 $0, $1, $2;"},
    {Code::FmaBFloatPair, "fma.rn.bf16x2 $0, $1, $2, $3;"},

    {Code::LoadMatrix,
     "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, ~4;"},
    {Code::LoadMatrixTransposed,
     "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, ~4;"},
    {Code::StoreMatrix,
     "stmatrix.sync.aligned.m8n8.x4.shared.b16 ~0, {$1, $2, $3, $4};"},
    {Code::StoreMatrixTransposed,
     "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 ~0, {$1, $2, $3, $4};"},
    {Code::Mma,
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, "
     "{$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"},
    {Code::SyncWarp, "bar.warp.sync 0xffffffff;"},
    {Code::VoteAny, "{ .reg .pred p; setp.ne.u32 p, $1, 0; vote.sync.any.pred "
                    "p, p, 0xffffffff; selp.u32 $0, 1, 0, p; }"},

    {Code::Barrier, "bar.sync $0, #;"},
    {Code::BarrierArrive, "bar.arrive $0, #;"},
    {Code::BarrierInit, "mbarrier.init.shared.b64 ~0, #;"},
    {Code::FenceBarrierInit, "fence.mbarrier_init.release.cluster;"},
    {Code::Arrive, "{ .reg .b64 s; mbarrier.arrive.shared.b64 s, ~0; }"},
    {Code::ArriveExpect,
     "mbarrier.arrive.expect_tx.shared::cta.b64 _, ~0, $1;"},
    {Code::Wait, "{*mbarrier.try_wait.parity.shared::cta.b64 p, ~0, $1;*}"},
    {Code::Wait, "{*mbarrier.test_wait.parity.shared.b64 p, ~0, $1;*}"},
    {Code::SetMaxRegisters, "setmaxnreg.inc.sync.aligned.u32 #;"},
    {Code::SetMaxRegisters, "setmaxnreg.dec.sync.aligned.u32 #;"},

    {Code::Copy16, "cp.async.cg.shared.global ~0, [$1], 16, $2;"},
    {Code::CopyCommit, "cp.async.commit_group;"},
    {Code::CopyWait, "cp.async.wait_group #;"},
    {Code::CopyArrive, "cp.async.mbarrier.arrive.noinc.shared.b64 ~0;"},
    {Code::BulkLoad,
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes ~0, "
     "[$1], #, ~2;"},
    {Code::BulkStore,
     "cp.async.bulk.global.shared::cta.bulk_group [$0], ~1, #;"},
    {Code::BulkCommit, "cp.async.bulk.commit_group;"},
    {Code::BulkWaitRead, "cp.async.bulk.wait_group.read #;"},
    {Code::BulkWait, "cp.async.bulk.wait_group #;"},
    {Code::FenceAsync, "fence.proxy.async.shared::cta;"},

    {Code::WgmmaFence, "wgmma.fence.sync.aligned;"},
    {Code::WgmmaCommit, "wgmma.commit_group.sync.aligned;"},
    {Code::WgmmaWait, "wgmma.wait_group.sync.aligned #;"},
    {Code::WgmmaWait, "{*wgmma.wait_group.sync.aligned #; setp*}"},
    {Code::Wgmma, "wgmma.mma_async.sync.aligned.m64n#k16.f32.bf16.bf16 ^, ^, "
                  "$#, #, 1, 1, #;"},
    {Code::Wgmma, "wgmma.mma_async.sync.aligned.m64n#k16.f32.bf16.bf16 ^, $#, "
                  "$#, #, 1, 1, 0, #;"},
};

static std::string withoutBlanks(StringRef text) {
  std::string out;
  for (char c : text)
    if (!llvm::isSpace(c))
      out += c;
  return out;
}

static bool takeNumber(StringRef &text, int64_t &value) {
  return !text.consumeInteger(10, value);
}

/// "{$a,$a+1,...}".
static bool takeList(StringRef &text, SmallVectorImpl<int64_t> &numbers) {
  if (!text.consume_front("{"))
    return false;
  int64_t first = -1, count = 0, operand;
  do {
    if (!text.consume_front("$") || !takeNumber(text, operand))
      return false;
    if (first < 0)
      first = operand;
    if (operand != first + count++)
      return false;
  } while (text.consume_front(","));
  numbers.append({first, count});
  return text.consume_front("}");
}

/// "[$operand]" or "[$operand+offset]".
static bool takeAddress(StringRef &text, char operand,
                        SmallVectorImpl<int64_t> &numbers) {
  int64_t offset = 0;
  if (!text.consume_front("[$") || text.empty() || text.front() != operand)
    return false;
  text = text.drop_front();
  if (text.consume_front("+") && !takeNumber(text, offset))
    return false;
  numbers.push_back(offset);
  return text.consume_front("]");
}

static bool match(StringRef pattern, StringRef text,
                  SmallVectorImpl<int64_t> &numbers) {
  while (!pattern.empty()) {
    char c = pattern.front();
    pattern = pattern.drop_front();
    bool taken;
    switch (c) {
    case '*':
      for (size_t i = 0; i <= text.size(); ++i) {
        SmallVector<int64_t, 8> rest(numbers.begin(), numbers.end());
        if (match(pattern, text.drop_front(i), rest)) {
          numbers.assign(rest.begin(), rest.end());
          return true;
        }
      }
      return false;
    case '#': {
      int64_t value = 0;
      taken = takeNumber(text, value);
      numbers.push_back(value);
      break;
    }
    case '^':
      taken = takeList(text, numbers);
      break;
    case '~':
      taken = takeAddress(text, pattern.front(), numbers);
      pattern = pattern.drop_front();
      break;
    default:
      taken = text.consume_front(StringRef(&c, 1));
    }
    if (!taken)
      return false;
  }
  return text.empty();
}

std::optional<AsmInst> emulator::matchAsm(StringRef text) {
  std::string plain = withoutBlanks(text);
  for (const Spelling &spelling : kSpellings) {
    AsmInst inst{spelling.code, {}};
    if (match(withoutBlanks(spelling.text), plain, inst.numbers))
      return inst;
  }
  return std::nullopt;
}
