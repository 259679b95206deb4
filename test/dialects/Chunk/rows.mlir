// Per-token maths: rows of whole sequences and of this chunk, and outputs.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: func @map
// CHECK: %A, %B = chunk.map 16 at %{{.*}} of %{{.*}}(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x8xbf16>, tensor<?xf32>, tensor<16x8xf32>)
// CHECK-SAME: per_token [2, 1] fill [0.{{.*}}, 1.{{.*}}] names ["A", "B"] {
// CHECK-NEXT: ^bb0(%{{.*}}: vector<8xbf16>, %{{.*}}: f32, %{{.*}}: vector<8xf32>):
// CHECK: chunk.yield %{{.*}}, %{{.*}}, %{{.*}} : vector<8xf32>, vector<8xf32>, f32
// CHECK-NEXT: } : tensor<32x8xf32>, tensor<16xf32>
func.func @map(%t: index, %T: index, %x: tensor<?x8xbf16>, %b: tensor<?xf32>,
               %y: tensor<16x8xf32>) -> (tensor<32x8xf32>, tensor<16xf32>) {
  %A, %B = chunk.map 16 at %t of %T (%x, %b, %y : tensor<?x8xbf16>, tensor<?xf32>, tensor<16x8xf32>)
      per_token [2, 1] fill [0.0, 1.0] names ["A", "B"] {
  ^bb0(%row: vector<8xbf16>, %s: f32, %other: vector<8xf32>):
    %wide = arith.extf %row : vector<8xbf16> to vector<8xf32>
    chunk.yield %wide, %other, %s : vector<8xf32>, vector<8xf32>, f32
  } : tensor<32x8xf32>, tensor<16xf32>
  return %A, %B : tensor<32x8xf32>, tensor<16xf32>
}

// CHECK-LABEL: func @map_without_inputs
// CHECK: chunk.map 1 at %{{.*}} of %{{.*}}() per_token [1] fill [{{.*}}] {
func.func @map_without_inputs(%t: index, %T: index, %g: f32) -> tensor<1xf32> {
  %a = chunk.map 1 at %t of %T () per_token [1] fill [0.0] {
    chunk.yield %g : f32
  } : tensor<1xf32>
  return %a : tensor<1xf32>
}

// CHECK-LABEL: func @output
// CHECK: chunk.output 16 at %{{.*}} of %{{.*}}(%{{.*}} : tensor<16x8xf32>) into(%{{.*}}, %{{.*}} : tensor<?x8xf16>, tensor<?xf32>) {
// CHECK: chunk.yield %{{.*}}, %{{.*}} : vector<8xf16>, f32
// CHECK-NEXT: } : tensor<?x8xf16>, tensor<?xf32>
func.func @output(%t: index, %T: index, %x: tensor<16x8xf32>, %o: tensor<?x8xf16>,
                  %n: tensor<?xf32>) -> (tensor<?x8xf16>, tensor<?xf32>) {
  %y:2 = chunk.output 16 at %t of %T (%x : tensor<16x8xf32>) into (%o, %n : tensor<?x8xf16>, tensor<?xf32>) {
  ^bb0(%row: vector<8xf32>):
    %half = arith.truncf %row : vector<8xf32> to vector<8xf16>
    %sum = vector.reduction <add>, %row : vector<8xf32> into f32
    chunk.yield %half, %sum : vector<8xf16>, f32
  } : tensor<?x8xf16>, tensor<?xf32>
  return %y#0, %y#1 : tensor<?x8xf16>, tensor<?xf32>
}

// CHECK-LABEL: func @map_without_results
// CHECK: chunk.map 16 at %{{.*}} of %{{.*}}() per_token [] fill [] {
// CHECK-NEXT: chunk.yield
// CHECK-NEXT: }
func.func @map_without_results(%t: index, %T: index) {
  chunk.map 16 at %t of %T () per_token [] fill [] {
    chunk.yield
  }
  return
}
