// Maths on registers, before layouts are assigned and after.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: func @vectors
// CHECK: tile.broadcast %{{.*}} rows : tensor<32xf32> -> tensor<16x32xf32>
// CHECK: tile.broadcast %{{.*}} : tensor<16xf32> -> tensor<16x32xf32>
// CHECK: tile.broadcast %{{.*}} : f32 -> tensor<16x32xf32>
// CHECK: tile.broadcast %{{.*}} : f32 -> tensor<16xf32>
// CHECK: %sum = tile.reduce %{{.*}} : tensor<16x32xf32> -> tensor<16xf32>
func.func @vectors(%row: tensor<32xf32>, %col: tensor<16xf32>, %n: f32) {
  %a = tile.broadcast %row rows : tensor<32xf32> -> tensor<16x32xf32>
  %b = tile.broadcast %col : tensor<16xf32> -> tensor<16x32xf32>
  %c = tile.broadcast %n : f32 -> tensor<16x32xf32>
  %d = tile.broadcast %n : f32 -> tensor<16xf32>
  %e = tile.reduce %a : tensor<16x32xf32> -> tensor<16xf32>
  return
}

// CHECK-LABEL: func @across_warps
// CHECK: %sum = tile.reduce_rows %{{.*}} through %{{.*}} : tensor<64x32xf32>, <4, 32, f32> -> tensor<32xf32>
// CHECK: tile.reduce_rows %{{.*}} : tensor<64x32xf32, #tile.layout<acc>>, <4, 32, f32> -> tensor<32xf32, #tile.layout<acc_row>>
func.func @across_warps(%x: tensor<64x32xf32>, %y: tensor<64x32xf32, #tile.layout<acc>>, %parts: !tile.shared<4, 32, f32>) {
  %a = tile.reduce_rows %x through %parts : tensor<64x32xf32>, <4, 32, f32> -> tensor<32xf32>
  %b = tile.reduce_rows %y through %parts : tensor<64x32xf32, #tile.layout<acc>>, <4, 32, f32> -> tensor<32xf32, #tile.layout<acc_row>>
  return
}

// CHECK-LABEL: func @laid_out_vectors
// CHECK: tile.broadcast %{{.*}} rows : tensor<32xf32, #tile.layout<opb_row>> -> tensor<16x32xf32, #tile.layout<opb>>
// CHECK: tile.broadcast %{{.*}} : tensor<16xf32, #tile.layout<acc_col>> -> tensor<16x32xf32, #tile.layout<acc>>
// CHECK: %c = tile.cumsum %{{.*}} : tensor<16x32xf32, #tile.layout<opb>> -> tensor<16x32xf32, #tile.layout<acc>>
// CHECK: %sum = tile.reduce %c : tensor<16x32xf32, #tile.layout<acc>> -> tensor<16xf32, #tile.layout<acc_col>>
func.func @laid_out_vectors(%row: tensor<32xf32, #tile.layout<opb_row>>, %col: tensor<16xf32, #tile.layout<acc_col>>) {
  %a = tile.broadcast %row rows : tensor<32xf32, #tile.layout<opb_row>> -> tensor<16x32xf32, #tile.layout<opb>>
  %b = tile.broadcast %col : tensor<16xf32, #tile.layout<acc_col>> -> tensor<16x32xf32, #tile.layout<acc>>
  %c = tile.cumsum %a : tensor<16x32xf32, #tile.layout<opb>> -> tensor<16x32xf32, #tile.layout<acc>>
  %d = tile.reduce %c : tensor<16x32xf32, #tile.layout<acc>> -> tensor<16xf32, #tile.layout<acc_col>>
  return
}

// CHECK-LABEL: func @blocks
// CHECK: tile.cumsum %{{.*}} : tensor<32x32xf32>
// CHECK: tile.cumsum %{{.*}} half 8 exclusive : tensor<32x32xf32>
// CHECK: tile.cumsum %{{.*}} from 5.600000e+01 : tensor<32x32xf32>
// CHECK: tile.block_sum %{{.*}} to %{{.*}} : tensor<32x32xf32>, <2, 32, f32>
// CHECK: tile.cumulate %{{.*}} to %{{.*}} : tensor<32xf32>, <1, 32, f32>
// CHECK: %D = tile.dot_diag %{{.*}}, %{{.*}} onto %{{.*}} : tensor<32x32xbf16>, tensor<32x32xbf16> -> tensor<32x16xf32>
// CHECK: %sum = tile.diagonal %D : tensor<32x16xf32> -> tensor<32xf32>
// CHECK: %[[H:D.*]] = tile.dot_diag %{{.*}}, %{{.*}} onto %{{.*}} half 2 : tensor<32x32xbf16>, tensor<32x32xbf16> -> tensor<32x8xf32>
// CHECK: tile.join_halves(%[[H]], %[[H]], %[[H]], %[[H]] : tensor<32x8xf32>, {{.*}}) -> tensor<32x16xf32>
// CHECK: tile.join_halves({{.*}}) diagonal %{{.*}} : tensor<32xf32> -> tensor<32x16xf32>
// CHECK: %M = tile.mask %D : tensor<32x16xf32> -> tensor<32x16xf32>
// CHECK: tile.mask %{{.*}} inclusive : tensor<32x32xf32> -> tensor<32x32xf32>
// CHECK: tile.place_diag %M into %{{.*}} : tensor<32x16xf32>, tensor<32x32xf32> -> tensor<32x32xf32>
// CHECK: tile.strips 2
// CHECK: tile.strip %{{.*}} at %strip : tensor<32x32xf32> -> tensor<32x16xf32>
// CHECK: tile.block_sum %{{.*}} to %{{.*}} strip %strip : tensor<32x16xf32>, <2, 32, f32>
func.func @blocks(%x: tensor<32x32xf32>, %h: tensor<32x32xbf16>, %c: tensor<32x16xf32>, %c8: tensor<32x8xf32>,
                  %v: tensor<32xf32>, %F: !tile.shared<2, 32, f32>, %G: !tile.shared<1, 32, f32>) {
  %0 = tile.cumsum %x : tensor<32x32xf32> -> tensor<32x32xf32>
  %1 = tile.cumsum %x half 8 exclusive : tensor<32x32xf32> -> tensor<32x32xf32>
  %11 = tile.cumsum %x from 56.0 : tensor<32x32xf32> -> tensor<32x32xf32>
  tile.block_sum %x to %F : tensor<32x32xf32>, <2, 32, f32>
  tile.cumulate %v to %G : tensor<32xf32>, <1, 32, f32>
  %4 = tile.dot_diag %h, %h onto %c : tensor<32x32xbf16>, tensor<32x32xbf16> -> tensor<32x16xf32>
  %10 = tile.diagonal %4 : tensor<32x16xf32> -> tensor<32xf32>
  %2 = tile.dot_diag %h, %h onto %c8 half 2 : tensor<32x32xbf16>, tensor<32x32xbf16> -> tensor<32x8xf32>
  %3 = tile.join_halves(%2, %2, %2, %2 : tensor<32x8xf32>, tensor<32x8xf32>, tensor<32x8xf32>, tensor<32x8xf32>)
      -> tensor<32x16xf32>
  %9 = tile.join_halves(%2, %2, %2, %2 : tensor<32x8xf32>, tensor<32x8xf32>, tensor<32x8xf32>, tensor<32x8xf32>)
      diagonal %v : tensor<32xf32> -> tensor<32x16xf32>
  %5 = tile.mask %4 : tensor<32x16xf32> -> tensor<32x16xf32>
  %6 = tile.mask %x inclusive : tensor<32x32xf32> -> tensor<32x32xf32>
  %7 = tile.place_diag %5 into %6 : tensor<32x16xf32>, tensor<32x32xf32> -> tensor<32x32xf32>
  tile.strips 2 {
  ^bb0(%s: index):
    %8 = tile.strip %x at %s : tensor<32x32xf32> -> tensor<32x16xf32>
    tile.block_sum %8 to %F strip %s : tensor<32x16xf32>, <2, 32, f32>
    tile.yield
  }
  return
}

// CHECK-LABEL: func @products
// CHECK: %D = tile.dot %{{.*}}, %{{.*}} : tensor<64x32xbf16>, <16, 32, bf16> -> tensor<64x16xf32>
// CHECK: %D_0 = tile.dot %{{.*}}, %{{.*}} onto %D : tensor<64x16xf32> transposed : tensor<64x32xbf16>, <32, 16, bf16> -> tensor<64x16xf32>
// CHECK: %[[M:M.*]], %{{.*}} = tile.dot_blocks(%{{.*}}, %{{.*}} : tensor<64x32xbf16>, tensor<64x32xbf16>), %{{.*}} : <64, 32, bf16> scaled %{{.*}} : !tile.shared<3, 32, f32> -> tensor<64x64xf32>, tensor<64x64xf32>
// CHECK: tile.dot_blocks(%{{.*}} : tensor<64x32xbf16>), %{{.*}} : <64, 32, bf16> diagonal -> tensor<64x64xf32>
// CHECK: tile.dot_blocks(%{{.*}} : tensor<64x32xbf16>), %{{.*}} : <64, 32, bf16> low %{{.*}} : !tile.shared<64, 32, bf16> scaled %{{.*}} : !tile.shared<3, 32, f32> -> tensor<64x64xf32>
// CHECK: tile.inverse %[[M]] to %{{.*}} scratch %{{.*}}, %{{.*}} : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
// CHECK: tile.inverse %[[M]] scaled %{{.*}} : tensor<64xf32> to %{{.*}} scratch %{{.*}}, %{{.*}} :
// CHECK: tile.inverse %[[M]] to %{{.*}} scratch %{{.*}}, %{{.*}} low %{{.*}} scratch %{{.*}} : !tile.shared<64, 64, bf16>, !tile.shared<64, 64, bf16> : tensor<64x64xf32>,
func.func @products(%a: tensor<64x32xbf16>, %b: !tile.shared<16, 32, bf16>, %bt: !tile.shared<32, 16, bf16>,
                    %y: !tile.shared<64, 32, bf16>, %f: !tile.shared<3, 32, f32>, %s: tensor<64xf32>,
                    %to: !tile.shared<64, 64, bf16>, %n: !tile.shared<64, 64, bf16>, %d: !tile.shared<64, 20, f32>,
                    %yl: !tile.shared<64, 32, bf16>, %tl: !tile.shared<64, 64, bf16>,
                    %nl: !tile.shared<64, 64, bf16>) {
  %0 = tile.dot %a, %b : tensor<64x32xbf16>, <16, 32, bf16> -> tensor<64x16xf32>
  %1 = tile.dot %a, %bt onto %0 : tensor<64x16xf32> transposed
      : tensor<64x32xbf16>, <32, 16, bf16> -> tensor<64x16xf32>
  %2, %3 = tile.dot_blocks(%a, %a : tensor<64x32xbf16>, tensor<64x32xbf16>), %y : <64, 32, bf16>
      scaled %f : !tile.shared<3, 32, f32> -> tensor<64x64xf32>, tensor<64x64xf32>
  %4 = tile.dot_blocks(%a : tensor<64x32xbf16>), %y : <64, 32, bf16> diagonal -> tensor<64x64xf32>
  %5 = tile.dot_blocks(%a : tensor<64x32xbf16>), %y : <64, 32, bf16> low %yl : !tile.shared<64, 32, bf16>
      scaled %f : !tile.shared<3, 32, f32> -> tensor<64x64xf32>
  tile.inverse %2 to %to scratch %n, %d : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
  tile.inverse %2 scaled %s : tensor<64xf32> to %to scratch %n, %d
      : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
  tile.inverse %2 to %to scratch %n, %d low %tl scratch %nl : !tile.shared<64, 64, bf16>, !tile.shared<64, 64, bf16>
      : tensor<64x64xf32>, <64, 64, bf16>, <64, 64, bf16>, <64, 20, f32>
  return
}

// CHECK-LABEL: tile.kernel @teams "prepare" chunk 16 warps 1 teams 2
// CHECK: tile.strips 2
// CHECK: tile.load %{{.*}} strip %strip : <16, 64, bf16> -> tensor<16x16xbf16>
// CHECK: tile.sum_teams(%{{.*}} : tensor<16xf32>) through %{{.*}} : <2, 16, f32> -> tensor<16xf32>
// CHECK: tile.sum_teams(%{{.*}}, %{{.*}} : tensor<16x16xf32>, tensor<16x16xf32>) through %{{.*}} : <32, 16, f32> -> tensor<16x16xf32>, tensor<16x16xf32>
// CHECK: tile.team 1
tile.kernel @teams "prepare" chunk 16 warps 1 teams 2 arguments [] blob 0 {
  %k = tile.alloc : <16, 64, bf16>
  tile.strips 2 {
  ^bb0(%strip: index):
    %0 = tile.load %k strip %strip : <16, 64, bf16> -> tensor<16x16xbf16>
    tile.yield
  }
  %a = tile.alloc : <2, 16, f32>
  %b = tile.alloc : <32, 16, f32>
  %x = arith.constant dense<0.0> : tensor<16xf32>
  %m = arith.constant dense<0.0> : tensor<16x16xf32>
  %y = tile.sum_teams(%x : tensor<16xf32>) through %a : <2, 16, f32> -> tensor<16xf32>
  %n, %o = tile.sum_teams(%m, %m : tensor<16x16xf32>, tensor<16x16xf32>) through %b : <32, 16, f32>
      -> tensor<16x16xf32>, tensor<16x16xf32>
  tile.team 1 {
    %p = arith.addf %o, %o : tensor<16x16xf32>
  }
}

// CHECK-LABEL: tile.kernel @tokens
// CHECK: tile.valid %{{.*}} else 1.000000e+00 : tensor<16x16xf32> -> tensor<16x16xf32>
// CHECK: tile.valid %{{.*}} else 0.000000e+00 : tensor<16xf32> -> tensor<16xf32>
tile.kernel @tokens "prepare" chunk 16 warps 1 arguments [] blob 0 {
  %x = arith.constant dense<0.0> : tensor<16x16xf32>
  %y = arith.constant dense<0.0> : tensor<16xf32>
  %0 = tile.valid %x else 1.0 : tensor<16x16xf32> -> tensor<16x16xf32>
  %1 = tile.valid %y else 0.0 : tensor<16xf32> -> tensor<16xf32>
}
