// Softmax attention: a kernel for each thing that is done, for chunks and for
// single tokens.
// RUN: plum-opt %s --plum-attend-to-gpu='chunks=32' | FileCheck %s
// RUN: plum-opt %s --plum-attend-to-gpu='chunks=32 sm=80' | FileCheck %s --check-prefix=AMPERE
// RUN: plum-opt %s --plum-attend-to-gpu='chunks=64' | FileCheck %s --check-prefix=WIDE
// RUN: plum-opt %s --plum-attend-to-gpu | FileCheck %s --check-prefix=STEP

// Layers whose states do not grow are left alone.
// CHECK-NOT: assoc.layer @attention
// CHECK: assoc.layer @fixed
// CHECK: llvm.func @plum_attention_index32({{.*}}plum.grid = "one"{{.*}}plum.role = "index"
// CHECK: llvm.func @plum_attention_carry32({{.*}}plum.grid = "sequences"{{.*}}plum.role = "carry"{{.*}}plum.slices = 8

// The row of k, by eight lanes; as f32 or bf16, whichever the list is.
// CHECK: llvm.func @plum_attention_append32({{.*}}plum.grid = "chunks"{{.*}}plum.role = "append"{{.*}}plum.threads = 128
// CHECK: llvm.load {{.*}} : !llvm.ptr<1> -> vector<4xi32>
// CHECK: llvm.store {{.*}} : vector<4xf32>, !llvm.ptr<1>
// CHECK: llvm.store {{.*}} : vector<4xi32>, !llvm.ptr<1>

// Two warps of 16 tokens; the tile of the first turn, then queries, then turns.
// CHECK: llvm.func @plum_attention_attend32({{.*}}plum.chunk = 32{{.*}}plum.form = "chunk"{{.*}}plum.grid = "chunks"{{.*}}plum.role = "attend"{{.*}}plum.slices = 1{{.*}}plum.threads = 64
// CHECK: cp.async.cg.shared.global
// CHECK: cp.async.commit_group
// CHECK: cvt.rn.bf16x2.f32
// CHECK: "bar.sync $0, 64;"
// A query is the left operand from here on.
// CHECK-COUNT-2: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK: scf.for
// CHECK: cp.async.wait_group 0
// CHECK-NEXT: arith.constant
// CHECK-NEXT: "bar.sync $0, 64;"
// CHECK: cp.async.cg.shared.global
// CHECK: cp.async.commit_group
// Scores of 64 keys by 32 channels, their maxima, weights by 16 columns.
// CHECK-COUNT-16: mma.sync
// CHECK: nvvm.shfl.sync bfly
// CHECK: ex2.approx.ftz.f32
// CHECK-COUNT-8: mma.sync
// CHECK-NOT: mma.sync
// CHECK: scf.yield
// CHECK: rcp.approx.ftz.f32
// CHECK: llvm.store {{.*}} : vector<4xi32>, !llvm.ptr<1>

// CHECK: llvm.func @plum_attention_carry(
// CHECK-SAME: plum.form = "step"
// CHECK: llvm.func @plum_attention_append({{.*}}plum.grid = "tokens"
// 16 splits of [16] sums, a maximum and a total.
// CHECK: llvm.func @plum_attention_attend({{.*}}plum.blob_bytes = 1152{{.*}}plum.grid = "tokens"{{.*}}plum.slices = 16
// CHECK: llvm.func @plum_attention_merge({{.*}}plum.grid = "tokens"{{.*}}plum.role = "merge"{{.*}}plum.threads = 32

// AMPERE: llvm.func @plum_attention_attend32(
// AMPERE-NOT: stmatrix
// AMPERE-NOT: mbarrier

// A warpgroup multiplies by wgmma, another copies. Rows of f32 are stored, and
// made known to wgmma; others arrive by themselves.
// WIDE: llvm.func @plum_attention_attend64({{.*}}nvvm.maxnreg = 128{{.*}}plum.threads = 256
// WIDE-COUNT-12: mbarrier.init.shared.b64
// WIDE: "bar.sync $0, 256;"
// WIDE: setmaxnreg.dec.sync.aligned.u32 48
// WIDE: scf.for
// WIDE: mbarrier.try_wait
// WIDE: llvm.store {{.*}} : vector<4xi32>, !llvm.ptr<3>
// WIDE-COUNT-16: cp.async.cg.shared.global
// WIDE: cp.async.wait_group 0
// WIDE: fence.proxy.async.shared::cta
// WIDE: mbarrier.arrive.shared.b64
// WIDE: cp.async.mbarrier.arrive.noinc

// Scores of the first tile: 2 steps of 16 channels, queries in shared memory.
// WIDE: setmaxnreg.inc.sync.aligned.u32 208
// WIDE: fence.proxy.async.shared::cta
// WIDE-NEXT: arith.constant
// WIDE-NEXT: "bar.sync $0, 128;"
// WIDE-COUNT-2: wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {{.*}}}, $64, $65, {{[01]}}, 1, 1, 0, 0;
// WIDE-NOT: wgmma.mma_async
// WIDE: wgmma.wait_group.sync.aligned 0
// WIDE: ex2.approx.ftz.f32

// Then those of each next one beside the sums of the one before, 8 steps of 16
// keys. Exponentials are made before these are waited for: ptxas must not put
// them off. First tiles that every row sees, then those that are masked.
// What was copied is made known to wgmma.
// WIDE: scf.for
// WIDE-COUNT-2: mbarrier.try_wait
// WIDE: fence.proxy.async.shared::cta
// WIDE-COUNT-2: wgmma.mma_async.sync.aligned.m64n128k16
// WIDE-COUNT-8: wgmma.mma_async.sync.aligned.m64n16k16
// WIDE-NOT: wgmma.mma_async
// WIDE: "wgmma.wait_group.sync.aligned 1;"
// WIDE-NOT: 0xFF800000
// WIDE-COUNT-66: ex2.approx.ftz.f32
// WIDE: PLUM_WAIT_${:uid}: wgmma.wait_group.sync.aligned 0; setp.lt.f32
// WIDE: vote.sync.any
// WIDE: scf.for
// WIDE: "wgmma.wait_group.sync.aligned 1;"
// WIDE: 0xFF800000
// WIDE: scf.yield
// WIDE-COUNT-8: wgmma.mma_async.sync.aligned.m64n16k16
// WIDE-NOT: mma.sync
// WIDE: rcp.approx.ftz.f32
// WIDE: llvm.func @plum_attention_carry(

// STEP-NOT: plum.form = "chunk"
// STEP: llvm.func @plum_attention_attend(
assoc.layer @attention args [#assoc.arg<param "scale">, #assoc.arg<input "q">, #assoc.arg<input "k">,
    #assoc.arg<input "v">, #assoc.arg<state "keys">, #assoc.arg<state "values">] outputs ["o"] {
^bb0(%scale: f32, %q: vector<32xbf16>, %k: vector<32xbf16>, %v: vector<16xbf16>,
     %keys: !assoc.list<32, f32>, %values: !assoc.list<16, f32>):
  %0 = arith.extf %q : vector<32xbf16> to vector<32xf32>
  %1 = arith.extf %k : vector<32xbf16> to vector<32xf32>
  %2 = arith.extf %v : vector<16xbf16> to vector<16xf32>
  %K = assoc.append %keys, %1 : !assoc.list<32, f32>
  %V = assoc.append %values, %2 : !assoc.list<16, f32>
  %3 = vector.broadcast %scale : f32 to vector<32xf32>
  %4 = arith.mulf %3, %0 : vector<32xf32>
  %5 = assoc.attend(%4) keys(%K : !assoc.list<32, f32>) values(%V : !assoc.list<16, f32>) : vector<32xf32>
  %o = arith.truncf %5 : vector<16xf32> to vector<16xbf16>
  assoc.yield %o, %K, %V : vector<16xbf16>, !assoc.list<32, f32>, !assoc.list<16, f32>
}

// Left alone.
assoc.layer @fixed args [#assoc.arg<input "x">] outputs ["y"] {
^bb0(%x: vector<16xf32>):
  assoc.yield %x : vector<16xf32>
}
