// exp and friends become polynomials: no kernel calls libm.
// RUN: plum-opt %s --plum-expand-maths | FileCheck %s
// RUN: plum-opt %s --plum-expand-maths | FileCheck %s --check-prefix=LEFT

// LEFT-NOT: math.{{exp|expm1|log|log1p|tanh}}

// exp, on a whole vector at once: 2^n p(r), n rounded by the magic number.
// CHECK-LABEL: func.func @exp(
// CHECK-SAME: %[[X:.*]]: vector<8xf32>)
// CHECK-DAG: %[[MAGIC:.*]] = arith.constant dense<0x4B400000> : vector<8xf32>
// CHECK-DAG: %[[SMALL:.*]] = arith.constant dense<-87.33654{{.*}}> : vector<8xf32>
// CHECK-DAG: %[[LARGE:.*]] = arith.constant dense<88.72283{{.*}}> : vector<8xf32>
// CHECK: %[[SHIFTED:.*]] = math.fma %{{.*}}, %{{.*}}, %[[MAGIC]]
// CHECK: arith.subf %[[SHIFTED]], %[[MAGIC]]
// CHECK-COUNT-9: math.fma
// CHECK-NOT: math.fma
// CHECK: arith.bitcast
// CHECK: arith.cmpf olt, %[[X]], %[[SMALL]]
// CHECK: arith.select
// CHECK: arith.cmpf ogt, %[[X]], %[[LARGE]]
// CHECK: arith.select
// CHECK: arith.cmpf uno, %[[X]]
// CHECK: %[[Y:.*]] = arith.select
// CHECK: return %[[Y]]
func.func @exp(%x: vector<8xf32>) -> vector<8xf32> {
  %y = math.exp %x : vector<8xf32>
  return %y : vector<8xf32>
}

// CHECK-LABEL: func.func @scalar(
// CHECK: math.fma {{.*}} : f32
func.func @scalar(%x: f32) -> f32 {
  %y = math.exp %x : f32
  return %y : f32
}

// CHECK-LABEL: func.func @others(
// CHECK: math.fma
func.func @others(%x: vector<4xf32>) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
  %a = math.tanh %x : vector<4xf32>
  %b = math.log %x : vector<4xf32>
  %c = math.log1p %x : vector<4xf32>
  %d = math.expm1 %x : vector<4xf32>
  return %a, %b, %c, %d : vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>
}

// What the machine has an instruction for is kept.
// CHECK-LABEL: func.func @kept(
// CHECK: math.sqrt
// CHECK: math.absf
// CHECK: math.fma
func.func @kept(%x: f32) -> f32 {
  %a = math.sqrt %x : f32
  %b = math.absf %a : f32
  %c = math.fma %a, %b, %x : f32
  return %c : f32
}
