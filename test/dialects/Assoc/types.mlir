// The state's type and the attributes of the dialect.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: func @states
// CHECK-SAME: !assoc.state<128, 64, kv, f32, f32>
// CHECK-SAME: !assoc.state<128, 64, vk, bf16, f32>
// CHECK-SAME: !assoc.state<1, 1, kv, f16, f32>
func.func @states(%a: !assoc.state<128, 64, kv, f32, f32>,
                  %b: !assoc.state<128, 64, vk, bf16, f32>,
                  %c: !assoc.state<1, 1, kv, f16, f32>) {
  return
}

// CHECK-LABEL: func @attributes
// CHECK-SAME: arg = #assoc.arg<input "q">
// CHECK-SAME: bounds = #assoc.bounds<-5.0{{0*}}e+00, 0.0{{0*}}e+00>
// CHECK-SAME: everything = #assoc.bounds<-inf, inf>
// CHECK-SAME: linear = #assoc.domain<linear>
// CHECK-SAME: log = #assoc.domain<log>
// CHECK-SAME: param = #assoc.arg<param "A_log">
// CHECK-SAME: state = #assoc.arg<state "S">
// CHECK-SAME: taken = #assoc.bounds<-inf, 0.0{{0*}}e+00, assumed>
func.func @attributes() attributes {
    arg = #assoc.arg<input "q">, param = #assoc.arg<param "A_log">,
    state = #assoc.arg<state "S">, bounds = #assoc.bounds<-5.0, 0.0>,
    everything = #assoc.bounds<-inf, inf>,
    taken = #assoc.bounds<-inf, 0.0, assumed>,
    log = #assoc.domain<log>, linear = #assoc.domain<linear>} {
  return
}
