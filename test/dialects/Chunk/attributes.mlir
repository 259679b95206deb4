// Where a row stands, and the words of stages.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: func private @attributes
// CHECK-SAME: a = #chunk.at<0, before>
// CHECK-SAME: b = #chunk.at<1, decayed>
// CHECK-SAME: c = #chunk.at<7, after>
func.func private @attributes() attributes {
    a = #chunk.at<0, before>, b = #chunk.at<1, decayed>, c = #chunk.at<7, after>}
