// A delta rule: the inverse belongs to prepare, the scan multiplies by it and
// puts off what only the output needs.
// RUN: plum-opt %s --phase-chunk=chunks=32 --phase-plan --chunk-to-tile | FileCheck %s
// RUN: plum-opt %s --phase-chunk=chunks=32 --phase-plan --chunk-to-tile='slice=16 stages=4' | FileCheck %s --check-prefix=OPTIONS

// Scores are taken twice: strictly before the token for the erase, up to it for
// the output. beta is in the columns of the inverse and not in v.
// CHECK-LABEL: tile.kernel @plum_delta_prepare32 "prepare"
// CHECK-NOT: tile.cumsum
// CHECK-NOT: tile.cumulate
// CHECK: tile.dot_blocks({{.*}} diagonal
// CHECK-DAG: tile.mask %{{[^ ]*}} : tensor<32x32xf32>
// CHECK-DAG: tile.mask %{{[^ ]*}} inclusive : tensor<32x32xf32>
// CHECK: tile.export_matrix
// CHECK: tile.barrier
// CHECK: tile.inverse {{.*}} scaled %{{[^ ]*}} : tensor<32xf32> to %[[T:[^ ]*]] scratch
// CHECK: tile.barrier
// CHECK: tile.export %[[T]] to {{.*}} : <32, 32, bf16>

// CHECK-LABEL: tile.kernel @plum_delta_scan32 "scan"
// CHECK: %[[FIRST:ring.*]] = tile.ring
// CHECK-SAME: rows = "v", sliced = true
// CHECK: %[[SECOND:ring.*]] = tile.ring
// CHECK-SAME: blob =
// CHECK: tile.chunks init(%S, {{.*}} : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x32xbf16>)
// CHECK: tile.acquire %[[FIRST]]
// CHECK: tile.acquire %[[SECOND]]
// CHECK: tile.previous %[[SECOND]]
// CHECK: tile.dot
// CHECK: tile.release %[[SECOND]] previous
// CHECK: tile.write_rows {{.*}} to "o" previous
// CHECK: tile.release %[[FIRST]] :
// CHECK: tile.yield
// CHECK: tile.tail {
// CHECK: tile.previous %[[SECOND]]
// CHECK: tile.dot
// CHECK: tile.write_rows {{.*}} to "o" previous
// CHECK: tile.store_state

// OPTIONS-LABEL: tile.kernel @plum_delta_scan32 "scan" chunk 32 warps 1
// OPTIONS-SAME: slice 16 of 4 {
// OPTIONS: tile.ring 4
// OPTIONS: tile.ring 4
!S = !assoc.state<32, 64, kv, f32, f32>
assoc.layer @delta args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "b">,
    #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xbf16>, %k: vector<32xbf16>, %v: vector<64xbf16>, %b: f32, %S: !S):
  %q32 = arith.extf %q : vector<32xbf16> to vector<32xf32>
  %k32 = arith.extf %k : vector<32xbf16> to vector<32xf32>
  %v32 = arith.extf %v : vector<64xbf16> to vector<64xf32>
  %minus = arith.negf %b : f32
  %row = vector.broadcast %b : f32 to vector<64xf32>
  %bv = arith.mulf %row, %v32 : vector<64xf32>
  %S1 = assoc.step %S erase along(%k32) by(%minus) at(%k32) of(%S) decayed [false] write keys(%k32) values(%bv) : !S
  %o = assoc.read %S1 at %q32 : !S
  %o16 = arith.truncf %o : vector<64xf32> to vector<64xbf16>
  assoc.yield %o16, %S1 : vector<64xbf16>, !S
}
