// The normal form: each part of a step may be absent.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>

// CHECK-LABEL: func @channel_decay
// CHECK: assoc.step %{{.*}} decay log(%{{.*}} : vector<8xf32>) in <-5.0{{0*}}e+00, 0.0{{0*}}e+00> : !assoc.state
func.func @channel_decay(%S: !S, %a: vector<8xf32>) -> !S {
  %S1 = assoc.step %S decay log(%a : vector<8xf32>) in <-5.0, 0.0> : !S
  return %S1 : !S
}

// CHECK-LABEL: func @scalar_decay
// CHECK: assoc.step %{{.*}} decay linear(%{{.*}} : f32) : !assoc.state
func.func @scalar_decay(%S: !S, %a: f32) -> !S {
  %S1 = assoc.step %S decay linear(%a : f32) : !S
  return %S1 : !S
}

// CHECK-LABEL: func @write
// CHECK-SAME: (%[[S:.*]]: !assoc.state<{{.*}}>, %[[K:.*]]: vector<8xf32>, %[[U:.*]]: vector<4xf32>)
// CHECK: assoc.step %[[S]] write keys(%[[K]], %[[K]]) values(%[[U]], %[[U]]) : !assoc.state
func.func @write(%S: !S, %k: vector<8xf32>, %u: vector<4xf32>) -> !S {
  %S1 = assoc.step %S write keys(%k, %k) values(%u, %u) : !S
  return %S1 : !S
}

// CHECK-LABEL: func @erase
// CHECK-SAME: (%[[S:.*]]: !assoc.state<{{.*}}>, %[[E:.*]]: vector<8xf32>, %[[F:.*]]: vector<8xf32>, %[[C:.*]]: f32)
// CHECK: assoc.step %[[S]] erase along(%[[E]], %[[E]]) by(%[[C]], %[[C]]) at(%[[F]], %[[F]]) of(%[[S]], %[[S]]) decayed [true, false] : !assoc.state
func.func @erase(%S: !S, %e: vector<8xf32>, %f: vector<8xf32>, %c: f32) -> !S {
  %S1 = assoc.step %S erase along(%e, %e) by(%c, %c) at(%f, %f) of(%S, %S) decayed [true, false] : !S
  return %S1 : !S
}

// CHECK-LABEL: func @nothing
// CHECK: assoc.step %{{.*}} : !assoc.state
func.func @nothing(%S: !S) -> !S {
  %S1 = assoc.step %S : !S
  return %S1 : !S
}

// CHECK-LABEL: func @everything
// CHECK: decay log({{.*}}) in <-inf, 0.0{{0*}}e+00, assumed> erase along({{.*}}) by({{.*}}) at({{.*}}) of({{.*}}) decayed [true] write keys({{.*}}) values({{.*}}) {tag = 1 : i64} : !assoc.state
func.func @everything(%S: !S, %a: f32, %k: vector<8xf32>, %u: vector<4xf32>, %c: f32) -> !S {
  %S1 = assoc.step %S decay log(%a : f32) in <-inf, 0.0, assumed>
      erase along(%k) by(%c) at(%k) of(%S) decayed [true]
      write keys(%k) values(%u) {tag = 1 : i64} : !S
  return %S1 : !S
}
