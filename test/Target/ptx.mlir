// A kernel with the instructions of sm_80, as Ptx.h spells them, as PTX and as
// the LLVM IR that PTX is made of.
// RUN: plum-opt --emit-ptx=sm_80 %s | FileCheck %s --check-prefixes=CHECK,SM80
// RUN: plum-opt --emit-ptx=sm_90a %s | FileCheck %s --check-prefixes=CHECK,SM90
// RUN: plum-opt --emit-llvm=sm_80 %s | FileCheck %s --check-prefix=IR

// SM80: .version 7.8
// SM80: .target sm_80
// SM90: .version 8.0
// SM90: .target sm_90a
// CHECK: .extern .shared .align 1024 .b8 plum_shared[];
// CHECK: .visible .entry ampere(
// CHECK-NEXT: .param .align 16 .b8 ampere_param_0[1872]
// CHECK: .reqntid 128
// CHECK: .minnctapersm 2
// Shared addresses have 32 bits, and arguments are read from where they are.
// CHECK: mov.b32 [[SHARED:%r[0-9]+]], plum_shared;
// CHECK: add.s32 [[ROW:%r[0-9]+]], [[SHARED]],
// CHECK: ld.param.b64 {{%rd[0-9]+}}, [ampere_param_0+80];
// CHECK-NOT: .local
// CHECK: .pragma "nounroll";
// CHECK: cp.async.cg.shared.global {{\[}}[[ROW]]+1024], [{{%rd[0-9]+}}], 16,
// CHECK: cp.async.commit_group;
// CHECK: cp.async.wait_group 0;
// CHECK: bar.sync {{%r[0-9]+}}, 128;
// CHECK: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{.*}}}, {{\[}}[[ROW]]+1024];
// CHECK: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{.*}}}, {{\[}}[[ROW]]+3072];
// CHECK-NOT: mov
// CHECK: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK-NOT: mov
// CHECK: shfl.sync.bfly.b32
// CHECK: ex2.approx.ftz.f32
// CHECK: mul.ftz.f32
// CHECK: st.global.v4.b32 [{{%rd[0-9]+}}+65536],

// What more than one thread takes part in is convergent, and only that.
// IR: call void asm sideeffect "cp.async.cg{{.*}} #[[SYNC:[0-9]+]]
// IR: call void asm sideeffect "bar.sync{{.*}} #[[SYNC]]
// IR: asm sideeffect "ldmatrix{{.*}} #[[SYNC]]
// IR: asm "mma.sync{{.*}} #[[PRODUCT:[0-9]+]]
// IR: asm "ex2{{.*}} #[[PURE:[0-9]+]]
// IR: br label %{{[0-9]+}}, !llvm.loop ![[LOOP:[0-9]+]]
// IR-DAG: attributes #[[SYNC]] = { convergent nounwind }
// IR-DAG: attributes #[[PRODUCT]] = { convergent nounwind memory(none) }
// IR-DAG: attributes #[[PURE]] = { nounwind memory(none) }
// IR: ![[LOOP]] = distinct !{![[LOOP]], ![[DISABLE:[0-9]+]]}
// IR: ![[DISABLE]] = !{!"llvm.loop.unroll.disable"}
llvm.mlir.global external @plum_shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
llvm.func @ampere(%arg0: !llvm.ptr {llvm.align = 16 : i64, llvm.byval = !llvm.array<1872 x i8>, nvvm.grid_constant}) attributes {nvvm.kernel, nvvm.minctasm = 2 : i32, nvvm.reqntid = array<i32: 128>, passthrough = [["denormal-fp-math-f32", "preserve-sign,preserve-sign"]], plum.shared_bytes = 8192 : i64} {
  %0 = nvvm.read.ptx.sreg.tid.x : i32
  %1 = llvm.mlir.addressof @plum_shared : !llvm.ptr<3>
  %c16_i32 = arith.constant 16 : i32
  %2 = arith.muli %0, %c16_i32 : i32
  %3 = llvm.getelementptr %1[%2] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
  %4 = llvm.getelementptr %arg0[80] : (!llvm.ptr) -> !llvm.ptr, i8
  %5 = llvm.load %4 invariant {alignment = 8 : i64} : !llvm.ptr -> i64
  %6 = llvm.inttoptr %5 : i64 to !llvm.ptr<1>
  %7 = llvm.getelementptr %arg0[44] : (!llvm.ptr) -> !llvm.ptr, i8
  %8 = llvm.load %7 invariant {alignment = 4 : i64} : !llvm.ptr -> i32
  %cst = arith.constant 0.000000e+00 : f32
  %c0_i32 = arith.constant 0 : i32
  %c1_i32 = arith.constant 1 : i32
  %9:4 = scf.for %arg1 = %c0_i32 to %8 step %c1_i32 iter_args(%arg2 = %cst, %arg3 = %cst, %arg4 = %cst, %arg5 = %cst) -> (f32, f32, f32, f32)  : i32 {
    %18 = llvm.getelementptr %3[1024] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
    %c4096_i32 = arith.constant 4096 : i32
    %19 = arith.muli %arg1, %c4096_i32 : i32
    %20 = llvm.getelementptr %6[%19] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %c16_i32_3 = arith.constant 16 : i32
    %21 = llvm.ptrtoint %3 : !llvm.ptr<3> to i32
    %22 = llvm.ptrtoint %20 : !llvm.ptr<1> to i64
    llvm.inline_asm has_side_effects asm_dialect = att "cp.async.cg.shared.global [$0+1024], [$1], 16, $2;", "r,l,r,~{memory}" %21, %22, %c16_i32_3 : (i32, i64, i32) -> ()
    llvm.inline_asm has_side_effects asm_dialect = att "cp.async.commit_group;", "~{memory}"  : () -> ()
    llvm.inline_asm has_side_effects asm_dialect = att "cp.async.wait_group 0;", "~{memory}"  : () -> ()
    %c1_i32_4 = arith.constant 1 : i32
    llvm.inline_asm has_side_effects asm_dialect = att "bar.sync $0, 128;", "r,~{memory}" %c1_i32_4 : (i32) -> ()
    %23 = llvm.getelementptr %3[1024] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
    %24 = llvm.ptrtoint %3 : !llvm.ptr<3> to i32
    %25 = llvm.inline_asm has_side_effects asm_dialect = att "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4+1024];", "=r,=r,=r,=r,r,~{memory}" %24 : (i32) -> !llvm.struct<(i32, i32, i32, i32)>
    %26 = llvm.extractvalue %25[0] : !llvm.struct<(i32, i32, i32, i32)> 
    %27 = llvm.extractvalue %25[1] : !llvm.struct<(i32, i32, i32, i32)> 
    %28 = llvm.extractvalue %25[2] : !llvm.struct<(i32, i32, i32, i32)> 
    %29 = llvm.extractvalue %25[3] : !llvm.struct<(i32, i32, i32, i32)> 
    %30 = llvm.getelementptr %3[3072] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
    %31 = llvm.ptrtoint %3 : !llvm.ptr<3> to i32
    %32 = llvm.inline_asm has_side_effects asm_dialect = att "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$4+3072];", "=r,=r,=r,=r,r,~{memory}" %31 : (i32) -> !llvm.struct<(i32, i32, i32, i32)>
    %33 = llvm.extractvalue %32[0] : !llvm.struct<(i32, i32, i32, i32)> 
    %34 = llvm.extractvalue %32[1] : !llvm.struct<(i32, i32, i32, i32)> 
    %35 = llvm.extractvalue %32[2] : !llvm.struct<(i32, i32, i32, i32)> 
    %36 = llvm.extractvalue %32[3] : !llvm.struct<(i32, i32, i32, i32)> 
    %37 = llvm.inline_asm asm_dialect = att "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};", "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f" %26, %27, %28, %29, %33, %34, %arg2, %arg3, %arg4, %arg5 : (i32, i32, i32, i32, i32, i32, f32, f32, f32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    %38 = llvm.extractvalue %37[0] : !llvm.struct<(f32, f32, f32, f32)> 
    %39 = llvm.extractvalue %37[1] : !llvm.struct<(f32, f32, f32, f32)> 
    %40 = llvm.extractvalue %37[2] : !llvm.struct<(f32, f32, f32, f32)> 
    %41 = llvm.extractvalue %37[3] : !llvm.struct<(f32, f32, f32, f32)> 
    %c1_i32_5 = arith.constant 1 : i32
    %c-1_i32 = arith.constant -1 : i32
    %c31_i32 = arith.constant 31 : i32
    %42 = nvvm.shfl.sync  bfly %c-1_i32, %38, %c1_i32_5, %c31_i32 : f32 -> f32
    %43 = llvm.inline_asm asm_dialect = att "ex2.approx.ftz.f32 $0, $1;", "=f,f" %42 : (f32) -> f32
    %44 = arith.mulf %38, %43 : f32
    %45 = arith.mulf %39, %43 : f32
    %46 = arith.mulf %40, %43 : f32
    %47 = arith.mulf %41, %43 : f32
    scf.yield %44, %45, %46, %47 : f32, f32, f32, f32
  }
  %10 = llvm.mlir.undef : vector<4xf32>
  %c0_i32_0 = arith.constant 0 : i32
  %11 = llvm.insertelement %9#0, %10[%c0_i32_0 : i32] : vector<4xf32>
  %c1_i32_1 = arith.constant 1 : i32
  %12 = llvm.insertelement %9#1, %11[%c1_i32_1 : i32] : vector<4xf32>
  %c2_i32 = arith.constant 2 : i32
  %13 = llvm.insertelement %9#2, %12[%c2_i32 : i32] : vector<4xf32>
  %c3_i32 = arith.constant 3 : i32
  %14 = llvm.insertelement %9#3, %13[%c3_i32 : i32] : vector<4xf32>
  %c16_i32_2 = arith.constant 16 : i32
  %15 = arith.muli %0, %c16_i32_2 : i32
  %16 = llvm.getelementptr %6[%15] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
  %17 = llvm.getelementptr %16[65536] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
  llvm.store %14, %17 {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
  llvm.return
}
