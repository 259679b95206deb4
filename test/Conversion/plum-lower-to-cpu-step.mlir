// Updates that are not affine run in the step kernel.
// RUN: plum-opt %s --plum-lower-to-cpu='lanes=4 registers=16' | FileCheck %s

// CHECK-LABEL: func.func @plum_squash_step(
// CHECK: scf.for
// CHECK: math.tanh {{.*}} : vector<4xf32>
// CHECK: llvm.store
!S = !assoc.state<8, 4, kv, f32, f32>
assoc.layer @squash args [#assoc.arg<state "S">] outputs [] {
^bb0(%S: !S):
  %S1 = assoc.map %S, (%S : !S) columns() {
  ^bb0(%row: vector<4xf32>):
    %t = math.tanh %row : vector<4xf32>
    assoc.yield %t : vector<4xf32>
  } : !S
  assoc.yield %S1 : !S
}

// A bf16 input is widened where it is loaded, an f16 output rounded where it
// is stored.
// CHECK-LABEL: func.func @plum_storage_step(
// CHECK: llvm.load {{.*}} -> {{.*}}bf16
// CHECK: arith.extf
// CHECK: arith.truncf {{.*}} to {{.*}}f16
// CHECK: llvm.store {{.*}}f16
assoc.layer @storage args [#assoc.arg<input "x">] outputs ["y"] {
^bb0(%x: vector<4xbf16>):
  %wide = arith.extf %x : vector<4xbf16> to vector<4xf32>
  %t = arith.addf %wide, %wide : vector<4xf32>
  %y = arith.truncf %t : vector<4xf32> to vector<4xf16>
  assoc.yield %y : vector<4xf16>
}
