// A scan: the ring's barriers, its producers, and products that run until they
// are needed.
// RUN: plum-opt %s --pass-pipeline='builtin.module(tile.kernel(tile-assign-layouts),plum-tile-to-nvvm{sm=90})' | FileCheck %s --check-prefix=SM90
// RUN: plum-opt %s --pass-pipeline='builtin.module(tile.kernel(tile-assign-layouts),plum-tile-to-nvvm{sm=80})' | FileCheck %s --check-prefix=SM80

// A team of 4 warps is followed by a warpgroup of producers.
// SM90-LABEL: llvm.func @plum_delta_scan64(
// SM90-SAME: plum.grid = "sequences"
// SM90-SAME: plum.role = "scan"
// SM90-SAME: plum.slices = 2 : i64
// SM90-SAME: plum.threads = 256 : i64

// Two stages: full when the blob's bytes (one thread) and the rows (32 lanes) are
// in, empty when all 4 warps have let go.
// SM90-COUNT-2: mbarrier.init.shared.b64 {{.*}}, 33;
// SM90: mbarrier.init.shared.b64 {{.*}}, 4;
// SM90-NOT: mbarrier.init
// SM90: fence.mbarrier_init
// SM90: setmaxnreg.dec

// The blob's parts lie side by side: one copy for both.
// SM90: scf.for
// SM90: mbarrier.try_wait.parity
// SM90: mbarrier.arrive.expect_tx.shared::cta.b64 {{.*}} %c16384_i32
// SM90: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes {{.*}}, 16384,
// SM90-NOT: cp.async.bulk.shared
// SM90: scf.for
// SM90: mbarrier.try_wait.parity
// SM90: cp.async.cg.shared.global
// SM90: cp.async.mbarrier.arrive.noinc

// The team. Three products are issued; the first that is used waits for those
// up to it, while the state's runs on to the release.
// SM90: setmaxnreg.inc
// SM90: scf.for
// SM90: mbarrier.try_wait.parity
// SM90-NOT: fence.proxy
// SM90: wgmma.fence
// SM90-COUNT-4: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
// SM90: wgmma.commit_group
// SM90-NOT: wgmma.wait_group
// SM90-COUNT-4: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// SM90-COUNT-4: wgmma.mma_async
// SM90: wgmma.commit_group
// SM90-NOT: wgmma.wait_group
// SM90-COUNT-4: wgmma.mma_async
// SM90: wgmma.commit_group
// SM90: wgmma.wait_group.sync.aligned 1;
// SM90-COUNT-4: stmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// SM90: wgmma.wait_group.sync.aligned 0;
// SM90: bar.warp.sync
// SM90: mbarrier.arrive.shared.b64
// SM90-NOT: wgmma

// On sm_80 one warp copies everything, and products are done when issued.
// SM80-LABEL: llvm.func @plum_delta_scan64(
// SM80-SAME: plum.threads = 160 : i64
// SM80: mbarrier.init.shared.b64 {{.*}}, 32;
// SM80: mbarrier.init.shared.b64 {{.*}}, 4;
// SM80-NOT: setmaxnreg
// SM80-NOT: cp.async.bulk
// SM80: cp.async.cg.shared.global
// SM80: cp.async.mbarrier.arrive.noinc
// SM80: scf.for
// SM80-COUNT-96: mma.sync.aligned.m16n8k16
// SM80-NOT: mma.sync
// SM80-NOT: wgmma
// SM80-NOT: stmatrix
tile.kernel @plum_delta_scan64 "scan" chunk 64 warps 4 arguments [#tile.arg<"v" : bf16>, #tile.arg<"S" : f32>,
    #tile.arg<"S.final" : f32>, #tile.arg<"o" : bf16>] blob 16384 slice 64 of 2 {
  %panel = tile.alloc : <64, 64, bf16>
  %ring = tile.ring 2 [#tile.part<type = <64, 64, bf16>, blob = 0>, #tile.part<type = <64, 64, bf16>, blob = 8192>,
                       #tile.part<type = <64, 64, bf16>, rows = "v", sliced = true>] : !tile.ring
  %S = tile.load_state "S" : tensor<64x64xf32>
  %end = tile.chunks init(%S : tensor<64x64xf32>) {
  ^bb0(%s: tensor<64x64xf32>):
    %a, %b, %v = tile.acquire %ring
        : !tile.ring -> !tile.shared<64, 64, bf16>, !tile.shared<64, 64, bf16>, !tile.shared<64, 64, bf16>
    %h = arith.truncf %s : tensor<64x64xf32> to tensor<64x64xbf16>
    %D = tile.dot %h, %a : tensor<64x64xbf16>, <64, 64, bf16> -> tensor<64x64xf32>
    %vt = tile.load %v transposed : <64, 64, bf16> -> tensor<64x64xbf16>
    %O = tile.dot %vt, %b onto %D : tensor<64x64xf32> : tensor<64x64xbf16>, <64, 64, bf16> -> tensor<64x64xf32>
    %next = tile.dot %vt, %a onto %s : tensor<64x64xf32> transposed
        : tensor<64x64xbf16>, <64, 64, bf16> -> tensor<64x64xf32>
    %o = arith.truncf %O : tensor<64x64xf32> to tensor<64x64xbf16>
    tile.write_rows %o through %panel to "o" : tensor<64x64xbf16>, <64, 64, bf16>
    tile.release %ring : !tile.ring
    tile.yield %next : tensor<64x64xf32>
  } : tensor<64x64xf32>
  tile.store_state %end to "S" : tensor<64x64xf32>
}

// Rows that threads have copied are a right operand: a fence behind the wait for
// them, which what bulk copies bring does not need.
// SM90-LABEL: llvm.func @plum_rows_scan64(
// SM90: setmaxnreg.inc
// SM90: scf.for
// SM90: mbarrier.try_wait.parity
// SM90: fence.proxy.async.shared::cta
// SM90: wgmma.mma_async
// SM80-LABEL: llvm.func @plum_rows_scan64(
// SM80-NOT: fence.proxy.async
tile.kernel @plum_rows_scan64 "scan" chunk 64 warps 4 arguments [#tile.arg<"k" : bf16>, #tile.arg<"S" : f32>,
    #tile.arg<"S.final" : f32>] blob 8192 slice 64 of 1 {
  %ring = tile.ring 2 [#tile.part<type = <64, 64, bf16>, rows = "k">, #tile.part<type = <64, 64, bf16>, blob = 0>] : !tile.ring
  %S = tile.load_state "S" : tensor<64x64xf32>
  %end = tile.chunks init(%S : tensor<64x64xf32>) {
  ^bb0(%s: tensor<64x64xf32>):
    %k, %b = tile.acquire %ring : !tile.ring -> !tile.shared<64, 64, bf16>, !tile.shared<64, 64, bf16>
    %h = arith.truncf %s : tensor<64x64xf32> to tensor<64x64xbf16>
    %next = tile.dot %h, %k onto %s : tensor<64x64xf32> : tensor<64x64xbf16>, <64, 64, bf16> -> tensor<64x64xf32>
    tile.release %ring : !tile.ring
    tile.yield %next : tensor<64x64xf32>
  } : tensor<64x64xf32>
  tile.store_state %end to "S" : tensor<64x64xf32>
}
