//===- AssocEnums.td - Words of the assoc dialect ----------*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_ASSOC_ENUMS_TD
#define PLUM_DIALECTS_ASSOC_ENUMS_TD

include "mlir/IR/EnumAttr.td"

def Assoc_Log : I32EnumAttrCase<"Log", 0, "log">;
def Assoc_Linear : I32EnumAttrCase<"Linear", 1, "linear">;
def Assoc_DomainEnum : I32EnumAttr<"Domain", "how a decay is written", [Assoc_Log, Assoc_Linear]> {
  let cppNamespace = "::plum::assoc";
  let genSpecializedAttr = 0;
}
def Assoc_KV : I32EnumAttrCase<"KV", 0, "kv">;
def Assoc_VK : I32EnumAttrCase<"VK", 1, "vk">;
def Assoc_LayoutEnum : I32EnumAttr<"Layout", "order of a state's dims in memory", [Assoc_KV, Assoc_VK]> {
  let cppNamespace = "::plum::assoc";
}

def Assoc_Param : I32EnumAttrCase<"Param", 0, "param">;
def Assoc_Input : I32EnumAttrCase<"Input", 1, "input">;
def Assoc_State : I32EnumAttrCase<"State", 2, "state">;
def Assoc_RoleEnum : I32EnumAttr<"Role", "what an argument of a layer is", [Assoc_Param, Assoc_Input, Assoc_State]> {
  let cppNamespace = "::plum::assoc";
}

#endif // PLUM_DIALECTS_ASSOC_ENUMS_TD
