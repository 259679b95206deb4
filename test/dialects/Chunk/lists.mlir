// Lists of a chunk, in their own syntax and in the generic one.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: func @append
// CHECK: chunk.append %{{.*}}, %{{.*}} at %{{.*}} of %{{.*}} : !assoc.list<8, f32>, tensor<16x8xf32>
func.func @append(%t: index, %T: index, %L: !assoc.list<8, f32>, %X: tensor<16x8xf32>) -> !assoc.list<8, f32> {
  %L1 = chunk.append %L, %X at %t of %T : !assoc.list<8, f32>, tensor<16x8xf32>
  return %L1 : !assoc.list<8, f32>
}

// CHECK-LABEL: func @attend
// CHECK: chunk.attend own(%{{.*}} : tensor<16x8xf32>) keys(%{{.*}} : !assoc.list<8, f32>) values(%{{.*}} : !assoc.list<4, f32>) at %{{.*}} of %{{.*}} -> tensor<16x4xf32>
// CHECK: chunk.attend(%{{.*}} : tensor<16x8xf32>) keys
func.func @attend(%t: index, %T: index, %Q: tensor<16x8xf32>, %K: !assoc.list<8, f32>, %V: !assoc.list<4, f32>) -> (tensor<16x4xf32>, tensor<16x4xf32>) {
  %O = chunk.attend own(%Q : tensor<16x8xf32>) keys(%K : !assoc.list<8, f32>) values(%V : !assoc.list<4, f32>)
      at %t of %T -> tensor<16x4xf32>
  %P = chunk.attend(%Q : tensor<16x8xf32>) keys(%K : !assoc.list<8, f32>) values(%V : !assoc.list<4, f32>)
      at %t of %T -> tensor<16x4xf32>
  return %O, %P : tensor<16x4xf32>, tensor<16x4xf32>
}
