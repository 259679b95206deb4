// Layouts, arguments, tiles, rings and the parts of a stage.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: func private @attributes
// CHECK-SAME: tensor<64x16xf32, #tile.layout<acc>>, tensor<64x16xf32, #tile.layout<opb>>
// CHECK-SAME: tensor<16xf32, #tile.layout<acc_row>>, tensor<64xf32, #tile.layout<acc_col>>
// CHECK-SAME: tensor<16xf32, #tile.layout<opb_row>>, tensor<64xf32, #tile.layout<opb_col>>
// CHECK-SAME: tensor<64xf32, #tile.layout<linear>>
// CHECK-SAME: !tile.shared<64, 128, bf16>, !tile.shared<1, 20, f32>, !tile.ring
// CHECK-SAME: arg = #tile.arg<"S.final" : f32>
// CHECK-SAME: blob = #tile.part<type = <16, 128, bf16>, blob = 4096, sliced = true>
// CHECK-SAME: rows = #tile.part<type = <16, 64, bf16>, rows = "k">
func.func private @attributes(
    tensor<64x16xf32, #tile.layout<acc>>, tensor<64x16xf32, #tile.layout<opb>>,
    tensor<16xf32, #tile.layout<acc_row>>, tensor<64xf32, #tile.layout<acc_col>>,
    tensor<16xf32, #tile.layout<opb_row>>, tensor<64xf32, #tile.layout<opb_col>>,
    tensor<64xf32, #tile.layout<linear>>,
    !tile.shared<64, 128, bf16>, !tile.shared<1, 20, f32>, !tile.ring) attributes {
    arg = #tile.arg<"S.final" : f32>,
    blob = #tile.part<type = <16, 128, bf16>, blob = 4096, sliced = true>,
    rows = #tile.part<type = <16, 64, bf16>, rows = "k">}
