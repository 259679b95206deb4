// The kernels of layers that differ in their decay, and without an erase.
// RUN: plum-opt %s --phase-chunk=chunks=32 --phase-plan --chunk-to-tile | FileCheck %s

!S = !assoc.state<32, 64, kv, f32, f32>

// One factor for each token: cumulated over the chunk once, and applied to whole
// score matrices.
// CHECK-LABEL: tile.kernel @plum_scalar_prepare32 "prepare" chunk 32 warps 2
// CHECK-SAME: #tile.arg<"q" : bf16>, #tile.arg<"k" : bf16>, #tile.arg<"v" : bf16>, #tile.arg<"a" : f32>
// CHECK-SAME: #tile.arg<"S" : f32>, #tile.arg<"S.final" : f32>, #tile.arg<"o" : bf16>
// CHECK-NOT: tile.cumsum
// CHECK: tile.column "a" : tensor<32xf32>
// CHECK: tile.valid {{.*}} else 0.0
// CHECK: tile.cumulate
// CHECK-NOT: tile.cumsum
// CHECK: tile.dot_blocks({{.*}} diagonal -> tensor<32x32xf32>
// CHECK: math.exp2 {{.*}} : tensor<32x32xf32>
// CHECK: tile.mask {{.*}} inclusive
// CHECK: tile.export_matrix {{.*}} : tensor<32x32xbf16>
// CHECK-NOT: tile.inverse
// CHECK: }

// The scan has the transposed state of a slice: [64, K]. Nothing waits for a
// solve, so nothing is put off.
// CHECK-LABEL: tile.kernel @plum_scalar_scan32 "scan" chunk 32 warps 4
// CHECK-SAME: slice 64 of 1 diagonal {
// CHECK: tile.ring
// CHECK-SAME: rows = "v", sliced = true
// CHECK: %S = tile.load_state "S" : tensor<64x32xf32>
// CHECK: tile.chunks init(%S
// CHECK: tile.acquire
// CHECK-NOT: tile.previous
// CHECK-DAG: tile.dot {{.*}} -> tensor<64x32xf32>
// CHECK-DAG: tile.write_rows {{.*}} to "o" : tensor<64x32xbf16>
// CHECK: tile.yield
// CHECK-NOT: tile.tail
// CHECK: tile.store_state %{{.*}} to "S" : tensor<64x32xf32>
assoc.layer @scalar args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "a">,
    #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xbf16>, %k: vector<32xbf16>, %v: vector<64xbf16>, %a: f32, %S: !S):
  %q32 = arith.extf %q : vector<32xbf16> to vector<32xf32>
  %k32 = arith.extf %k : vector<32xbf16> to vector<32xf32>
  %v32 = arith.extf %v : vector<64xbf16> to vector<64xf32>
  %S1 = assoc.step %S decay log(%a : f32) write keys(%k32) values(%v32) : !S
  %o = assoc.read %S1 at %q32 : !S
  %o16 = arith.truncf %o : vector<64xf32> to vector<64xbf16>
  assoc.yield %o16, %S1 : vector<64xbf16>, !S
}

// A bounded factor for each channel: one anchor for a block of 16 tokens, so
// that a diagonal block is one product. Between blocks only factors up to 1.
// CHECK-LABEL: tile.kernel @plum_bounded_prepare32
// CHECK: tile.strips 2
// CHECK: tile.block_sum
// CHECK: tile.barrier
// CHECK: tile.export_vector {{.*}} : tensor<32xf32>
// CHECK: tile.strips 2 init(
// CHECK: tile.cumsum %{{[^ ]*}} from 5.600000e+01 :
// CHECK-NOT: tile.cumsum {{.*}} half
// CHECK: tile.load {{.*}} blocks
// CHECK: tile.dot_diag
// CHECK-NOT: tile.dot_diag
// CHECK: tile.yield
// CHECK: tile.mask {{.*}} inclusive : tensor<32x16xf32>
// CHECK: tile.dot_blocks(
// CHECK: tile.place_diag
// CHECK: tile.export_matrix
// CHECK: }

// The state decays by a row of the ring.
// CHECK-LABEL: tile.kernel @plum_bounded_scan32
// CHECK: tile.ring {{.*}} #tile.part<type = <1, 32, f32>, blob =
// CHECK: tile.load {{.*}} row 0 : <1, 32, f32> -> tensor<32xf32>
// CHECK: tile.broadcast {{.*}} rows : tensor<32xf32> -> tensor<64x32xf32>
assoc.layer @bounded args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "a">,
    #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xbf16>, %k: vector<32xbf16>, %v: vector<64xbf16>, %a: vector<32xbf16>, %S: !S):
  %q32 = arith.extf %q : vector<32xbf16> to vector<32xf32>
  %k32 = arith.extf %k : vector<32xbf16> to vector<32xf32>
  %v32 = arith.extf %v : vector<64xbf16> to vector<64xf32>
  %a32 = arith.extf %a : vector<32xbf16> to vector<32xf32>
  %S1 = assoc.step %S decay log(%a32 : vector<32xf32>) in <-5.0, 0.0> write keys(%k32) values(%v32) : !S
  %o = assoc.read %S1 at %q32 : !S
  %o16 = arith.truncf %o : vector<64xf32> to vector<64xbf16>
  assoc.yield %o16, %S1 : vector<64xbf16>, !S
}

// Without a bound the diagonal comes apart by halves.
// CHECK-LABEL: tile.kernel @plum_unbounded_prepare32
// CHECK: tile.cumsum {{.*}} half 8
// CHECK: tile.dot_diag {{.*}} half 8
// CHECK: tile.cumsum {{.*}} half 4
// CHECK: tile.dot_diag {{.*}} half 4
// CHECK: tile.cumsum {{.*}} half 2
// CHECK: tile.dot_diag {{.*}} half 2
// CHECK: tile.cumsum {{.*}} half 1
// CHECK: tile.dot_diag {{.*}} half 1
// CHECK: tile.join_halves({{.*}} diagonal
// CHECK: tile.dot_blocks(
// CHECK: tile.place_diag
assoc.layer @unbounded args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">,
    #assoc.arg<input "a">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xbf16>, %k: vector<32xbf16>, %v: vector<64xbf16>, %a: vector<32xbf16>, %S: !S):
  %q32 = arith.extf %q : vector<32xbf16> to vector<32xf32>
  %k32 = arith.extf %k : vector<32xbf16> to vector<32xf32>
  %v32 = arith.extf %v : vector<64xbf16> to vector<64xf32>
  %a32 = arith.extf %a : vector<32xbf16> to vector<32xf32>
  %S1 = assoc.step %S decay log(%a32 : vector<32xf32>) write keys(%k32) values(%v32) : !S
  %o = assoc.read %S1 at %q32 : !S
  %o16 = arith.truncf %o : vector<64xf32> to vector<64xbf16>
  assoc.yield %o16, %S1 : vector<64xbf16>, !S
}

// A vector state beside the matrix: what a chunk adds to it and what its tokens
// see of that are made beforehand, keys past the end of a sequence left out.
// CHECK-LABEL: tile.kernel @plum_counted_prepare32
// CHECK: %[[ONES:.*]] = tile.valid {{.*}} else 0.0
// CHECK: tile.store %[[ONES]] to %[[W:.*]] row 0 tokens
// CHECK: tile.barrier
// CHECK: %[[SUM:.*]] = tile.column_sums %{{.*}} weighted %[[W]] : <32, 32, bf16>, <1, 32, f32> -> tensor<32xf32>
// CHECK: tile.export_vector %[[SUM]] to 8320 : tensor<32xf32>
// CHECK: tile.keep_state "z" 32 to 8448
// CHECK: %[[N:.*]] = tile.reduce %{{.*}} : tensor<32x32xf32> -> tensor<32xf32>
// CHECK: tile.export_vector %[[N]] tokens to 8192

// A segment adds up keys, and does nothing else to a state that enters it.
// CHECK-LABEL: tile.kernel @plum_counted_summary32
// CHECK-SAME: slice 64 of 1 diagonal {
// CHECK-NOT: tile.values
// CHECK: %z = tile.load_state "z" summary : tensor<32xf32>
// CHECK-NOT: tile.row_dots
// CHECK: tile.store_state %{{.*}}#1 to "z" summary : tensor<32xf32>
// CHECK: tile.store_decay %{{.*}}#2 : tensor<32xf32>

// Tokens read it while the products are under way.
// CHECK-LABEL: tile.kernel @plum_counted_scan32
// CHECK: %z = tile.load_state "z" kept 8448 : tensor<32xf32>
// CHECK: tile.chunks
// CHECK: tile.store %z{{.*}} to %[[Z:.*]] row 0 : tensor<32xf32>, <1, 32, f32>
// CHECK-NEXT: tile.barrier
// CHECK: tile.dot {{.*}} onto %S
// CHECK: tile.row_dots %{{.*}}, %[[Z]] to %[[DOTS:.*]] :
// CHECK-NEXT: tile.barrier
// CHECK: tile.load %[[DOTS]] row 0 : <1, 32, f32> -> tensor<32xf32>
// CHECK: arith.addf {{.*}} : tensor<32xf32>
// CHECK: tile.broadcast {{.*}} rows : tensor<32xf32> -> tensor<64x32xf32>
// CHECK: arith.divf {{.*}} : tensor<64x32xf32>
// CHECK: tile.store_state %{{.*}}#1 to "z" : tensor<32xf32>
!z = !assoc.state<32, 1, kv, f32, f32>
assoc.layer @counted args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">,
    #assoc.arg<state "z">] outputs ["o"] {
^bb0(%q: vector<32xbf16>, %k: vector<32xbf16>, %v: vector<64xbf16>, %S: !S, %z: !z):
  %q32 = arith.extf %q : vector<32xbf16> to vector<32xf32>
  %k32 = arith.extf %k : vector<32xbf16> to vector<32xf32>
  %v32 = arith.extf %v : vector<64xbf16> to vector<64xf32>
  %e = math.absf %k32 : vector<32xf32>
  %one = arith.constant dense<1.0> : vector<1xf32>
  %S1 = assoc.step %S write keys(%e) values(%v32) : !S
  %z1 = assoc.step %z write keys(%e) values(%one) : !z
  %o = assoc.read %S1 at %q32 : !S
  %n = assoc.read %z1 at %q32 : !z
  %n0 = vector.extract %n[0] : f32 from vector<1xf32>
  %n64 = vector.broadcast %n0 : f32 to vector<64xf32>
  %y = arith.divf %o, %n64 : vector<64xf32>
  %y16 = arith.truncf %y : vector<64xf32> to vector<64xbf16>
  assoc.yield %y16, %S1, %z1 : vector<64xbf16>, !S, !z
}

// An output that a map's rows give is written by prepare; the scan knows nothing
// of it, nor of the inputs that only it reads.
// CHECK-LABEL: tile.kernel @plum_beside_prepare32
// CHECK: tile.store %{{.*}} to %[[ROWS:.*]] strip %strip
// CHECK: tile.barrier
// CHECK: tile.export_rows %[[ROWS]] to "beside" : <32, 64, bf16>
// CHECK-LABEL: tile.kernel @plum_beside_scan32
// CHECK-NOT: rows = "g"
// CHECK: tile.write_rows {{.*}} to "o"
// CHECK-NOT: tile.write_rows
// CHECK: tile.store_state
assoc.layer @beside args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "g">,
    #assoc.arg<state "S">] outputs ["o", "beside"] {
^bb0(%q: vector<32xbf16>, %k: vector<32xbf16>, %v: vector<64xbf16>, %g: vector<64xbf16>, %S: !S):
  %q32 = arith.extf %q : vector<32xbf16> to vector<32xf32>
  %k32 = arith.extf %k : vector<32xbf16> to vector<32xf32>
  %v32 = arith.extf %v : vector<64xbf16> to vector<64xf32>
  %g32 = arith.extf %g : vector<64xbf16> to vector<64xf32>
  %S1 = assoc.step %S write keys(%k32) values(%v32) : !S
  %o = assoc.read %S1 at %q32 : !S
  %o16 = arith.truncf %o : vector<64xf32> to vector<64xbf16>
  %b = arith.mulf %v32, %g32 : vector<64xf32>
  %b16 = arith.truncf %b : vector<64xf32> to vector<64xbf16>
  assoc.yield %o16, %b16, %S1 : vector<64xbf16>, vector<64xbf16>, !S
}
