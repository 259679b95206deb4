// A layer: its arguments print under their names, outputs come before states.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>
!z = !assoc.state<8, 1, kv, f32, f32>

// CHECK-LABEL: assoc.layer @two_states
// CHECK-SAME: args [#assoc.arg<param "g">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">, #assoc.arg<state "z">]
// CHECK-SAME: outputs ["o", "n"]
// CHECK-NEXT: ^bb0(%g: f32, %k: vector<8xbf16>, %v: vector<4xf32>, %S: !assoc.state<8, 4, kv, f32, f32>, %z: !assoc.state<8, 1, kv, f32, f32>):
// CHECK: assoc.yield %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : vector<4xf32>, f16, !assoc.state<8, 4, kv, f32, f32>, !assoc.state<8, 1, kv, f32, f32>
assoc.layer @two_states args [#assoc.arg<param "g">, #assoc.arg<input "k">,
    #assoc.arg<input "v">, #assoc.arg<state "S">, #assoc.arg<state "z">] outputs ["o", "n"] {
^bb0(%g: f32, %k: vector<8xbf16>, %v: vector<4xf32>, %S: !S, %z: !z):
  %kf = arith.extf %k : vector<8xbf16> to vector<8xf32>
  %S1 = assoc.add %S, %kf, %v : !S
  %z1 = assoc.gate %z by linear %g : !z
  %o = assoc.read %S1 at %kf : !S
  %n = arith.truncf %g : f32 to f16
  assoc.yield %o, %n, %S1, %z1 : vector<4xf32>, f16, !S, !z
}

// A layer need not have a state.
// CHECK-LABEL: assoc.layer @stateless args [#assoc.arg<input "x">] outputs ["y"]
assoc.layer @stateless args [#assoc.arg<input "x">] outputs ["y"] {
^bb0(%x: f32):
  assoc.yield %x : f32
}

// Nor an output.
// CHECK-LABEL: assoc.layer @silent args [#assoc.arg<state "S">] outputs [] attributes {note = "kept"}
assoc.layer @silent args [#assoc.arg<state "S">] outputs [] attributes {note = "kept"} {
^bb0(%S: !S):
  assoc.yield %S : !S
}
