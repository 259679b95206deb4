// Numbers that would be rounded on the way from state to state are two bf16
// terms with terms=2 (--precision robust): hi + lo, and a product of two of them
// is three.
// RUN: plum-opt %s --phase-chunk=chunks=32 --phase-plan --chunk-to-tile=terms=2 | FileCheck %s
// RUN: plum-opt %s --phase-chunk=chunks=32 --phase-plan --phase-tile=terms=2 | FileCheck %s --check-prefix=PHASE
// RUN: plum-opt %s --phase-chunk=chunks=32 --phase-plan --chunk-to-tile | FileCheck %s --check-prefix=ONE
// RUN: not plum-opt %s --phase-chunk=chunks=32 --phase-plan --chunk-to-tile=terms=3 2>&1 | FileCheck %s --check-prefix=THREE

// ONE-NOT: low
// ONE: tile.previous
// THREE: error: expects 1 or 2 terms, got 3
// PHASE: tile.inverse {{.*}} low

// Of scores the columns, of solves everything, of keys what meets a solved block.
// CHECK-LABEL: tile.kernel @plum_delta_prepare32 "prepare"

// CHECK-COUNT-4: tile.dot_diag
// CHECK-NOT: tile.dot_diag
// CHECK: tile.store %{{[^ ]*}} to %[[READK:[^ ]*]] strip
// CHECK-NEXT: tile.store %{{[^ ]*}} to %[[READQ:[^ ]*]] strip
// CHECK-NEXT: tile.store %{{[^ ]*}} to %[[KEYTILE:[^ ]*]] strip
// CHECK-NEXT: tile.store %{{[^ ]*}} to %[[LOWTILE:[^ ]*]] strip
// CHECK-NEXT: tile.store %{{[^ ]*}} to %[[Y:[^ ]*]] strip
// CHECK-NEXT: tile.store %{{[^ ]*}} to %[[YLOW:[^ ]*]] strip
// CHECK: tile.export %[[KEYTILE]]
// CHECK: tile.export %[[LOWTILE]]
// CHECK: tile.dot_blocks({{.*}} %[[Y]] : <32, 32, bf16> low %[[YLOW]] :
// CHECK: tile.export_matrix
// CHECK: tile.export_matrix
// CHECK: tile.inverse {{.*}} to %[[T:[^ ]*]] scratch {{.*}} low %[[TLOW:[^ ]*]] scratch
// CHECK: tile.barrier
// CHECK: tile.export %[[T]]
// CHECK: tile.export %[[TLOW]]

// The scan keeps nothing for the next chunk: the registers are for terms.
// CHECK-LABEL: tile.kernel @plum_delta_scan32 "scan"
// CHECK: tile.chunks init(%S : tensor<64x32xf32>)
// CHECK-NEXT: ^bb0(%[[S:[^ ]*]]: tensor<64x32xf32>):
// CHECK: %[[HI:.*]] = arith.truncf %[[S]]
// CHECK: %[[LO:.*]] = arith.truncf
// CHECK: %[[R:D[^ ]*]] = tile.dot %[[HI]], %[[X:[^ ]*]] :
// CHECK-NEXT: tile.dot %[[LO]], %[[X]] onto %[[R]]
// The solve: hi Hi + hi Lo + lo Hi.
// CHECK: %[[W:.*]] = arith.truncf %{{[^ ]*}} : tensor<64x32xf32>
// CHECK: %[[WLOW:.*]] = arith.truncf
// CHECK: %[[U0:D[^ ]*]] = tile.dot %[[W]], %[[T:[^ ]*]] transposed
// CHECK-NEXT: %[[U1:D[^ ]*]] = tile.dot %[[W]], %[[TLOW:[^ ]*]] onto %[[U0]]
// CHECK-NEXT: %[[U:D[^ ]*]] = tile.dot %[[WLOW]], %[[T]] onto %[[U1]]
// What is only read has one term.
// CHECK-NEXT: %[[O:D[^ ]*]] = tile.dot %[[HI]], %{{[^ ]*}} :
// CHECK-NOT: tile.dot %[[LO]]
// CHECK: %[[UHI:.*]] = arith.truncf %[[U]]
// CHECK: %[[ULOW:.*]] = arith.truncf
// CHECK: tile.dot %[[UHI]], %[[K:[^ ]*]] onto
// CHECK-NEXT: tile.dot %[[UHI]], %[[KLOW:[^ ]*]] onto
// CHECK-NEXT: %[[NEXT:D[^ ]*]] = tile.dot %[[ULOW]], %[[K]] onto
// CHECK-NEXT: tile.dot %[[UHI]], %[[M:[^ ]*]] onto %[[O]]
// CHECK-NEXT: tile.dot %[[UHI]], %{{[^ ]*}} onto
// CHECK-NEXT: tile.dot %[[ULOW]], %[[M]] onto
// CHECK: tile.write_rows {{.*}} to "o" :
// CHECK: tile.yield %[[NEXT]] : tensor<64x32xf32>
// CHECK-NOT: tile.tail
!S = !assoc.state<32, 64, kv, f32, f32>
assoc.layer @delta args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "a">,
    #assoc.arg<input "b">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xbf16>, %k: vector<32xbf16>, %v: vector<64xbf16>, %a: vector<32xbf16>, %b: f32, %S: !S):
  %q32 = arith.extf %q : vector<32xbf16> to vector<32xf32>
  %k32 = arith.extf %k : vector<32xbf16> to vector<32xf32>
  %v32 = arith.extf %v : vector<64xbf16> to vector<64xf32>
  %a32 = arith.extf %a : vector<32xbf16> to vector<32xf32>
  %minus = arith.negf %b : f32
  %row = vector.broadcast %b : f32 to vector<64xf32>
  %bv = arith.mulf %row, %v32 : vector<64xf32>
  %S1 = assoc.step %S decay log(%a32 : vector<32xf32>) in <-5.0, 0.0>
      erase along(%k32) by(%minus) at(%k32) of(%S) decayed [true] write keys(%k32) values(%bv) : !S
  %o = assoc.read %S1 at %q32 : !S
  %o16 = arith.truncf %o : vector<64xf32> to vector<64xbf16>
  assoc.yield %o16, %S1 : vector<64xbf16>, !S
}

// Nothing is erased: nothing to be gained.
// CHECK-LABEL: tile.kernel @plum_added_prepare32
// CHECK-NOT: low
// CHECK-LABEL: tile.kernel @plum_added_scan32
// CHECK: arith.truncf
// CHECK-NOT: arith.subf
// CHECK: tile.yield
assoc.layer @added args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xbf16>, %k: vector<32xbf16>, %v: vector<64xbf16>, %S: !S):
  %q32 = arith.extf %q : vector<32xbf16> to vector<32xf32>
  %k32 = arith.extf %k : vector<32xbf16> to vector<32xf32>
  %v32 = arith.extf %v : vector<64xbf16> to vector<64xf32>
  %S1 = assoc.step %S write keys(%k32) values(%v32) : !S
  %o = assoc.read %S1 at %q32 : !S
  %o16 = arith.truncf %o : vector<64xf32> to vector<64xbf16>
  assoc.yield %o16, %S1 : vector<64xbf16>, !S
}
