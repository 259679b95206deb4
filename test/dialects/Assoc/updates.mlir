// Every update and read of a state, in its own syntax and in the generic one.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>

// CHECK-LABEL: func @gate
// CHECK: assoc.gate %{{.*}} by log %{{.*}} : !assoc.state<8, 4, kv, f32, f32>
func.func @gate(%S: !S, %a: f32) -> !S {
  %S1 = assoc.gate %S by log %a : !S
  return %S1 : !S
}

// CHECK-LABEL: func @gate_linear
// CHECK: assoc.gate %{{.*}} by linear %{{.*}} : !assoc.state
func.func @gate_linear(%S: !S, %a: f32) -> !S {
  %S1 = assoc.gate %S by linear %a : !S
  return %S1 : !S
}

// CHECK-LABEL: func @decay
// CHECK: assoc.decay %{{.*}} by log %{{.*}} : !assoc.state
func.func @decay(%S: !S, %a: vector<8xf32>) -> !S {
  %S1 = assoc.decay %S by log %a : !S
  return %S1 : !S
}

// CHECK-LABEL: func @add
// CHECK: assoc.add %{{.*}}, %{{.*}}, %{{.*}} : !assoc.state
func.func @add(%S: !S, %k: vector<8xf32>, %v: vector<4xf32>) -> !S {
  %S1 = assoc.add %S, %k, %v : !S
  return %S1 : !S
}

// CHECK-LABEL: func @delta
// CHECK: assoc.delta %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : !assoc.state
func.func @delta(%S: !S, %k: vector<8xf32>, %v: vector<4xf32>, %b: f32) -> !S {
  %S1 = assoc.delta %S, %k, %v, %b : !S
  return %S1 : !S
}

// CHECK-LABEL: func @erase
// CHECK-SAME: (%[[S:.*]]: !assoc.state
// CHECK: %[[S1:.*]] = assoc.add
// CHECK: assoc.erase %[[S1]] along %{{.*}} by %{{.*}} at %{{.*}} of %[[S]] : !assoc.state
func.func @erase(%S: !S, %e: vector<8xf32>, %f: vector<8xf32>, %c: f32,
                 %v: vector<4xf32>) -> !S {
  %S1 = assoc.add %S, %e, %v : !S
  %S2 = assoc.erase %S1 along %e by %c at %f of %S : !S
  return %S2 : !S
}

// CHECK-LABEL: func @read
// CHECK: assoc.read %{{.*}} at %{{.*}} : !assoc.state
func.func @read(%S: !S, %q: vector<8xf32>) -> vector<4xf32> {
  %o = assoc.read %S at %q : !S
  return %o : vector<4xf32>
}

// CHECK-LABEL: func @whole
// CHECK: assoc.whole %{{.*}} : !assoc.state<8, 1, kv, f32, f32>
func.func @whole(%h: !assoc.state<8, 1, kv, f32, f32>) -> vector<8xf32> {
  %o = assoc.whole %h : !assoc.state<8, 1, kv, f32, f32>
  return %o : vector<8xf32>
}
