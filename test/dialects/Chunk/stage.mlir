// Stages: their results print under the names that they have inside.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: func @stages
// CHECK: %G = chunk.stage prepare {
// CHECK-NEXT: %G_{{[0-9]+}} = chunk.cumsum log
// CHECK-NEXT: chunk.yield %G_{{[0-9]+}} : tensor<16x8xf32>
// CHECK-NEXT: } : tensor<16x8xf32>
// CHECK: %S = chunk.stage scan {
// CHECK-NEXT: chunk.carry %{{.*}} keys() rows [] values() decay(%G : tensor<16x8xf32>)
func.func @stages(%a: tensor<16x8xf32>, %S: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %x = chunk.stage prepare {
    %g = chunk.cumsum log %a : tensor<16x8xf32>
    chunk.yield %g : tensor<16x8xf32>
  } : tensor<16x8xf32>
  %y = chunk.stage scan {
    %s = chunk.carry %S keys() rows [] values() decay(%x : tensor<16x8xf32>) steps 1 : tensor<8x4xf32>
    chunk.yield %s : tensor<8x4xf32>
  } : tensor<8x4xf32>
  return %y : tensor<8x4xf32>
}

// CHECK-LABEL: func @nothing
// CHECK: chunk.stage prepare {
// CHECK-NEXT: chunk.yield
// CHECK-NEXT: }
func.func @nothing() {
  chunk.stage prepare {
    chunk.yield
  }
  return
}
