// Tiles of shared memory, products within a warp and exports, on both chips; and
// where tiles lie.
// RUN: plum-opt %s --pass-pipeline='builtin.module(tile.kernel(tile-assign-layouts),plum-tile-to-nvvm{sm=90})' | FileCheck %s --check-prefixes=CHECK,SM90
// RUN: plum-opt %s --pass-pipeline='builtin.module(tile.kernel(tile-assign-layouts),plum-tile-to-nvvm{sm=80})' | FileCheck %s --check-prefixes=CHECK,SM80

// CHECK: llvm.mlir.global external @plum_shared()
// CHECK-NOT: tile.

// A kernel that prepares brings the one that counts chunks.
// CHECK-LABEL: llvm.func @plum_rows_index32(
// CHECK-SAME: plum.role = "index"
// CHECK-SAME: plum.threads = 32 : i64

// A chunk's rows arrive by copies of 16 bytes, before the barrier.
// CHECK-LABEL: llvm.func @plum_rows_prepare32(
// CHECK-SAME: plum.blob_bytes = 4096 : i64
// CHECK-SAME: plum.chunk = 32 : i64
// CHECK-SAME: plum.grid = "chunks"
// CHECK-SAME: plum.role = "prepare"
// CHECK-SAME: plum.shared_bytes = 4096 : i64
// CHECK-SAME: plum.threads = 64 : i64
// CHECK: cp.async.cg.shared.global
// CHECK: cp.async.commit_group
// CHECK: cp.async.wait_group 0
// CHECK: bar.sync $0, 64

// Right operands of the cumulation: four loads, transposed, and for every 8 columns
// two products with a triangle of ones, the small terms first.
// CHECK-COUNT-4: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// CHECK-NOT: ldmatrix
// CHECK-COUNT-16: mma.sync.aligned.m16n8k16
// CHECK-NOT: mma.sync

// A matrix goes to a tile by stmatrix, or words on sm_80.
// SM90-COUNT-4: stmatrix.sync.aligned.m8n8.x4.shared.b16
// SM80-NOT: stmatrix
// SM80-COUNT-16: llvm.store {{.*}} : i32, !llvm.ptr<3>
// CHECK: bar.sync $0, 64
// SM90: cp.async.bulk.global.shared::cta.bulk_group {{.*}} 4096;
// SM90: cp.async.bulk.wait_group.read 0
// SM80-NOT: cp.async.bulk
// SM80: llvm.store {{.*}} : vector<4xi32>, !llvm.ptr<1>
tile.kernel @plum_rows_prepare32 "prepare" chunk 32 warps 2 arguments [#tile.arg<"k" : bf16>] blob 4096 {
  %k = tile.alloc : <32, 64, bf16>
  tile.fetch "k" to %k : <32, 64, bf16>
  tile.arrived
  %x = tile.load %k : <32, 64, bf16> -> tensor<32x64xbf16>
  %w = arith.extf %x : tensor<32x64xbf16> to tensor<32x64xf32>
  %c = tile.cumsum %w : tensor<32x64xf32> -> tensor<32x64xf32>
  %h = arith.truncf %c : tensor<32x64xf32> to tensor<32x64xbf16>
  tile.store %h to %k : tensor<32x64xbf16>, <32, 64, bf16>
  tile.barrier
  tile.export %k to 0 : <32, 64, bf16>
}

// Rows that are fetched next to each other are copied in one branch: two tiles of
// four copies a thread, or piece by piece where rows are missing. What is read of
// other tensors is asked for before.
// CHECK-LABEL: llvm.func @plum_together_prepare32(
// CHECK-NOT: cp.async
// CHECK-COUNT-2: llvm.load {{.*}} : !llvm.ptr<1> -> f32
// CHECK: scf.if
// CHECK-NOT: else
// CHECK-COUNT-8: cp.async.cg.shared.global
// CHECK-NOT: cp.async
// CHECK: } else {
// CHECK-COUNT-2: cp.async.cg.shared.global
// CHECK-NOT: cp.async.cg
// CHECK: cp.async.wait_group 0
tile.kernel @plum_together_prepare32 "prepare" chunk 32 warps 2 arguments [#tile.arg<"k" : bf16>, #tile.arg<"q" : bf16>, #tile.arg<"g" : f32>] blob 8192 {
  %k = tile.alloc : <32, 64, bf16>
  %q = tile.alloc : <32, 64, bf16>
  tile.fetch "k" to %k : <32, 64, bf16>
  tile.fetch "q" to %q : <32, 64, bf16>
  %g = tile.column "g" : tensor<32xf32>
  tile.arrived
  %x = tile.load %k : <32, 64, bf16> -> tensor<32x64xbf16>
  %w = arith.extf %x : tensor<32x64xbf16> to tensor<32x64xf32>
  %b = tile.broadcast %g : tensor<32xf32> -> tensor<32x64xf32>
  %y = arith.mulf %w, %b : tensor<32x64xf32>
  %h = arith.truncf %y : tensor<32x64xf32> to tensor<32x64xbf16>
  tile.export_matrix %h to 0 : tensor<32x64xbf16>
  tile.export %q to 4096 : <32, 64, bf16>
}

// A left operand is loaded as it lies, and is the right operand of its own
// warp's product: 4 steps of 16, 2 blocks of 8 columns.
// CHECK-LABEL: llvm.func @plum_diagonal_prepare32(
// CHECK-COUNT-4: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-NOT: ldmatrix
// CHECK-COUNT-8: mma.sync.aligned.m16n8k16
// CHECK-NOT: mma.sync
// CHECK: llvm.store {{.*}} : i32, !llvm.ptr<1>
tile.kernel @plum_diagonal_prepare32 "prepare" chunk 32 warps 2 arguments [] blob 4096 {
  %k = tile.alloc : <32, 64, bf16>
  %x = tile.load %k : <32, 64, bf16> -> tensor<32x64xbf16>
  %zero = arith.constant dense<0.0> : tensor<32x16xf32>
  %D = tile.dot_diag %x, %x onto %zero : tensor<32x64xbf16>, tensor<32x64xbf16> -> tensor<32x16xf32>
  %h = arith.truncf %D : tensor<32x16xf32> to tensor<32x16xbf16>
  tile.export_matrix %h to 0 : tensor<32x16xbf16>
}

// A barrier between the last use of one tile and the first of the next: they
// share their 4096 bytes.
// CHECK-LABEL: llvm.func @plum_shares_prepare32(
// CHECK-SAME: plum.shared_bytes = 4096 : i64
tile.kernel @plum_shares_prepare32 "prepare" chunk 32 warps 2 arguments [] blob 4096 {
  %a = tile.alloc : <32, 64, bf16>
  %b = tile.alloc : <32, 64, bf16>
  %x = tile.load %a : <32, 64, bf16> -> tensor<32x64xbf16>
  tile.barrier
  tile.store %x to %b : tensor<32x64xbf16>, <32, 64, bf16>
}

// Without one, another warp may still read the first.
// CHECK-LABEL: llvm.func @plum_apart_prepare32(
// CHECK-SAME: plum.shared_bytes = 8192 : i64
tile.kernel @plum_apart_prepare32 "prepare" chunk 32 warps 2 arguments [] blob 4096 {
  %a = tile.alloc : <32, 64, bf16>
  %b = tile.alloc : <32, 64, bf16>
  %x = tile.load %a : <32, 64, bf16> -> tensor<32x64xbf16>
  tile.store %x to %b : tensor<32x64xbf16>, <32, 64, bf16>
  tile.barrier
}

// An exported tile is read by its copy to the end.
// CHECK-LABEL: llvm.func @plum_exports_prepare32(
// CHECK-SAME: plum.shared_bytes = 8192 : i64
tile.kernel @plum_exports_prepare32 "prepare" chunk 32 warps 2 arguments [] blob 4096 {
  %a = tile.alloc : <32, 64, bf16>
  %b = tile.alloc : <32, 64, bf16>
  %x = tile.load %a : <32, 64, bf16> -> tensor<32x64xbf16>
  tile.export %a to 0 : <32, 64, bf16>
  tile.barrier
  tile.store %x to %b : tensor<32x64xbf16>, <32, 64, bf16>
}
