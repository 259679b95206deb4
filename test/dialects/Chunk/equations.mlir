// The terms of the chunkwise form; each prints under its letter.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: func @cumsum
// CHECK: %G = chunk.cumsum log %{{.*}} in <-5.0{{0*}}e+00, 0.0{{0*}}e+00> : tensor<16x8xf32>
// CHECK: %G_0 = chunk.cumsum linear %{{.*}} : tensor<16xf32>
func.func @cumsum(%a: tensor<16x8xf32>, %b: tensor<16xf32>) {
  %G = chunk.cumsum log %a in <-5.0, 0.0> : tensor<16x8xf32>
  %H = chunk.cumsum linear %b : tensor<16xf32>
  return
}

// CHECK-LABEL: func @scores
// CHECK: %M = chunk.scores %{{.*}} [#chunk.at<0, decayed>], %{{.*}} [#chunk.at<0, after>, #chunk.at<1, after>] decay(%{{.*}} : tensor<32x8xf32>) steps 2 : tensor<16x8xf32>, tensor<32x8xf32> -> tensor<16x32xf32>
// CHECK: %M_0 = chunk.scores %{{.*}} [#chunk.at<0, before>], %{{.*}} [#chunk.at<0, after>] steps 1 : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
func.func @scores(%x: tensor<16x8xf32>, %y: tensor<32x8xf32>, %G: tensor<32x8xf32>) {
  %M = chunk.scores %x [#chunk.at<0, decayed>], %y [#chunk.at<0, after>, #chunk.at<1, after>]
      decay(%G : tensor<32x8xf32>) steps 2 : tensor<16x8xf32>, tensor<32x8xf32> -> tensor<16x32xf32>
  %N = chunk.scores %x [#chunk.at<0, before>], %x [#chunk.at<0, after>] steps 1
      : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  return
}

// CHECK-LABEL: func @inverse
// CHECK: %T = chunk.inverse %{{.*}} scaled(%{{.*}} : tensor<16xf32>) : tensor<16x16xf32>
// CHECK: %T_0 = chunk.inverse %{{.*}} : tensor<16x16xf32>
func.func @inverse(%M: tensor<16x16xf32>, %c: tensor<16xf32>) {
  %T = chunk.inverse %M scaled(%c : tensor<16xf32>) : tensor<16x16xf32>
  %U = chunk.inverse %M : tensor<16x16xf32>
  return
}

// CHECK-LABEL: func @read
// CHECK: %R = chunk.read %{{.*}} at %{{.*}} [#chunk.at<0, after>] decay(%{{.*}} : tensor<16xf32>) steps 1 : tensor<8x4xf32>, tensor<16x8xf32> -> tensor<16x4xf32>
// CHECK: %R_0 = chunk.read %{{.*}} at %{{.*}} [#chunk.at<0, after>] steps 1 :
func.func @read(%S: tensor<8x4xf32>, %q: tensor<16x8xf32>, %G: tensor<16xf32>) {
  %R = chunk.read %S at %q [#chunk.at<0, after>] decay(%G : tensor<16xf32>) steps 1
      : tensor<8x4xf32>, tensor<16x8xf32> -> tensor<16x4xf32>
  %Q = chunk.read %S at %q [#chunk.at<0, after>] steps 1
      : tensor<8x4xf32>, tensor<16x8xf32> -> tensor<16x4xf32>
  return
}

// CHECK-LABEL: func @scale_and_matmul
// CHECK: %cR = chunk.scale %{{.*}} by %{{.*}} : tensor<16x4xf32>, tensor<16xf32>
// CHECK: %P = chunk.matmul %{{.*}}, %cR : tensor<16x16xf32>, tensor<16x4xf32> -> tensor<16x4xf32>
// CHECK: %P_0 = chunk.matmul %{{.*}}, %cR onto(%P : tensor<16x4xf32>) : tensor<16x16xf32>
func.func @scale_and_matmul(%M: tensor<16x16xf32>, %U: tensor<16x4xf32>, %c: tensor<16xf32>) {
  %X = chunk.scale %U by %c : tensor<16x4xf32>, tensor<16xf32>
  %P = chunk.matmul %M, %X : tensor<16x16xf32>, tensor<16x4xf32> -> tensor<16x4xf32>
  %Q = chunk.matmul %M, %X onto(%P : tensor<16x4xf32>)
      : tensor<16x16xf32>, tensor<16x4xf32> -> tensor<16x4xf32>
  return
}

// CHECK-LABEL: func @carry
// CHECK: %S = chunk.carry %{{.*}} keys(%{{.*}}, %{{.*}} : tensor<16x8xf32>, tensor<32x8xf32>) rows {{\[\[}}#chunk.at<0, after>], [#chunk.at<0, after>, #chunk.at<1, after>]] values(%{{.*}}, %{{.*}} : tensor<16x4xf32>, tensor<32x4xf32>) decay(%{{.*}} : tensor<32x8xf32>) steps 2 : tensor<8x4xf32>
// CHECK: %S_0 = chunk.carry %{{.*}} keys() rows [] values() decay(%{{.*}} : tensor<32x8xf32>) steps 2 : tensor<8x4xf32>
// CHECK: %S_1 = chunk.carry %{{.*}} keys(%{{.*}} : tensor<16x8xf32>) rows {{\[\[}}#chunk.at<0, after>]] values(%{{.*}} : tensor<16x4xf32>) steps 1 : tensor<8x4xf32>
func.func @carry(%S: tensor<8x4xf32>, %k: tensor<16x8xf32>, %U: tensor<16x4xf32>,
                 %e: tensor<32x8xf32>, %W: tensor<32x4xf32>, %G: tensor<32x8xf32>) {
  %S1 = chunk.carry %S keys(%k, %e : tensor<16x8xf32>, tensor<32x8xf32>)
      rows [[#chunk.at<0, after>], [#chunk.at<0, after>, #chunk.at<1, after>]]
      values(%U, %W : tensor<16x4xf32>, tensor<32x4xf32>)
      decay(%G : tensor<32x8xf32>) steps 2 : tensor<8x4xf32>
  %S2 = chunk.carry %S1 keys() rows [] values() decay(%G : tensor<32x8xf32>) steps 2 : tensor<8x4xf32>
  %S3 = chunk.carry %S2 keys(%k : tensor<16x8xf32>) rows [[#chunk.at<0, after>]]
      values(%U : tensor<16x4xf32>) steps 1 : tensor<8x4xf32>
  return
}
