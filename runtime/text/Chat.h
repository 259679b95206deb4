//===- Chat.h - Conversations as tokens -------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each model family marks up who says what in its own way. Markup comes as ids
// of special tokens, text is encoded by itself, part by part, with specials as
// plain text: nobody can end their message and begin another's.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TEXT_CHAT_H
#define PLUM_RUNTIME_TEXT_CHAT_H

#include "runtime/text/Tokenizer.h"

namespace plum::text {

struct Message {
  std::string role; ///< system, user or assistant.
  std::string text;
};

/// The conversation and the beginning of the assistant's next message.
/// `modelType` is that of config.json; `thinking` is for models that have it.
Result<std::vector<int32_t>> encodeChat(const Tokenizer &tokenizer,
                                        const std::string &modelType,
                                        const std::vector<Message> &messages,
                                        bool thinking);

} // namespace plum::text

#endif // PLUM_RUNTIME_TEXT_CHAT_H
