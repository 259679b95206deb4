// Two updates a token are two rows of a chunk. Where both do the same it is done
// once, on rows that alternate between the inputs; the decay, which only the first
// has, is chosen by the step. What is read after both has each row of q twice.
// RUN: plum-opt %s --phase-chunk=chunks=16 --phase-plan --chunk-to-tile | FileCheck %s

// CHECK-LABEL: tile.kernel @plum_twice_prepare16 "prepare" chunk 16 steps 2 warps 2
// CHECK-SAME: #tile.arg<"k1" : bf16>, #tile.arg<"k2" : bf16>
// CHECK-NOT: #tile.arg<"k1,k2"
// CHECK: %k1_k2 = tile.alloc : <32, 32, bf16>
// CHECK: tile.fetch "k1,k2" to %k1_k2
// CHECK: tile.fetch "q" to %{{.*}} : <32, 32, bf16>
// CHECK-DAG: tile.column "a" : tensor<32xf32>
// CHECK-DAG: tile.column "b1,b2" : tensor<32xf32>
// CHECK-DAG: %[[STEP:.*]] = tile.step : tensor<32xf32>
// CHECK-DAG: %[[SECOND:.*]] = arith.cmpf oeq, %[[STEP]], %{{.*}} : tensor<32xf32>
// CHECK-DAG: arith.select %[[SECOND]]
// CHECK: tile.valid
// CHECK-NEXT: %[[G:.*]] = tile.alloc : <1, 32, f32>
// CHECK-NEXT: tile.cumulate %{{.*}} to %[[G]] : tensor<32xf32>, <1, 32, f32>
// CHECK: tile.dot_blocks
// CHECK: tile.inverse {{.*}} : tensor<32x32xf32>

// CHECK-LABEL: tile.kernel @plum_twice_scan16 "scan" chunk 16 steps 2 warps 4
// CHECK: #tile.part<type = <32, 32, bf16>, rows = "k1,k2">
// CHECK-SAME: #tile.part<type = <32, 32, bf16>, rows = "q">
// CHECK-SAME: #tile.part<type = <32, 64, bf16>, rows = "v1,v2", sliced = true>
// CHECK: tile.write_rows {{.*}} to "o" previous : tensor<64x32xbf16>, <32, 64, bf16>
!S = !assoc.state<32, 64, kv, f32, f32>
assoc.layer @twice args [#assoc.arg<input "q">, #assoc.arg<input "k1">, #assoc.arg<input "k2">, #assoc.arg<input "v1">,
    #assoc.arg<input "v2">, #assoc.arg<input "a">, #assoc.arg<input "b1">, #assoc.arg<input "b2">, #assoc.arg<state "S">]
    outputs ["o"] {
^bb0(%q: vector<32xbf16>, %k1: vector<32xbf16>, %k2: vector<32xbf16>, %v1: vector<64xbf16>, %v2: vector<64xbf16>,
     %a: f32, %b1: f32, %b2: f32, %S: !S):
  %q32 = arith.extf %q : vector<32xbf16> to vector<32xf32>
  %x1 = arith.extf %k1 : vector<32xbf16> to vector<32xf32>
  %x2 = arith.extf %k2 : vector<32xbf16> to vector<32xf32>
  %y1 = arith.extf %v1 : vector<64xbf16> to vector<64xf32>
  %y2 = arith.extf %v2 : vector<64xbf16> to vector<64xf32>
  %m1 = arith.negf %b1 : f32
  %m2 = arith.negf %b2 : f32
  %r1 = vector.broadcast %b1 : f32 to vector<64xf32>
  %r2 = vector.broadcast %b2 : f32 to vector<64xf32>
  %u1 = arith.mulf %r1, %y1 : vector<64xf32>
  %u2 = arith.mulf %r2, %y2 : vector<64xf32>
  %S1 = assoc.step %S decay log(%a : f32) erase along(%x1) by(%m1) at(%x1) of(%S) decayed [true] write keys(%x1) values(%u1) : !S
  %S2 = assoc.step %S1 erase along(%x2) by(%m2) at(%x2) of(%S1) decayed [false] write keys(%x2) values(%u2) : !S
  %o = assoc.read %S2 at %q32 : !S
  %o16 = arith.truncf %o : vector<64xf32> to vector<64xbf16>
  assoc.yield %o16, %S2 : vector<64xbf16>, !S
}
