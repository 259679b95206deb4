// A state of 256 columns takes most registers: the outputs' reads come before
// those of the chain, whose wait is one for both, and nothing is put off.
// RUN: plum-opt %s --phase-chunk=chunks=32 --phase-plan --chunk-to-tile | FileCheck %s

// CHECK-LABEL: tile.kernel @plum_delta_scan32 "scan"
// CHECK: tile.chunks init(%S : tensor<64x256xf32>)
// CHECK: %[[S:.*]] = arith.truncf
// CHECK: %k, %q, %v = tile.acquire
// CHECK-NOT: tile.previous
// CHECK: %[[O:D[^ ]*]] = tile.dot %[[S]], %q : tensor<64x256xbf16>
// CHECK-NEXT: tile.dot %[[S]], %k : tensor<64x256xbf16>
// CHECK: tile.dot {{.*}} transposed : tensor<64x32xbf16>, <32, 32, bf16>
// CHECK: %[[NEXT:D[^ ]*]] = tile.dot {{.*}}, %k onto %S
// CHECK: tile.dot {{.*}} onto %[[O]]
// CHECK: tile.write_rows {{.*}} to "o" :
// CHECK: tile.yield %[[NEXT]] : tensor<64x256xf32>
// CHECK-NOT: tile.tail
!S = !assoc.state<256, 64, kv, f32, f32>
assoc.layer @delta args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "b">,
    #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<256xbf16>, %k: vector<256xbf16>, %v: vector<64xbf16>, %b: f32, %S: !S):
  %q32 = arith.extf %q : vector<256xbf16> to vector<256xf32>
  %k32 = arith.extf %k : vector<256xbf16> to vector<256xf32>
  %v32 = arith.extf %v : vector<64xbf16> to vector<64xf32>
  %minus = arith.negf %b : f32
  %row = vector.broadcast %b : f32 to vector<64xf32>
  %bv = arith.mulf %row, %v32 : vector<64xf32>
  %S1 = assoc.step %S erase along(%k32) by(%minus) at(%k32) of(%S) decayed [false] write keys(%k32) values(%bv) : !S
  %o = assoc.read %S1 at %q32 : !S
  %o16 = arith.truncf %o : vector<64xf32> to vector<64xbf16>
  assoc.yield %o16, %S1 : vector<64xbf16>, !S
}
