//===- Chat.cpp - Conversations as tokens ---------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/text/Chat.h"

namespace plum::text {

namespace {

/// Ids, built part by part; the first special that is missing is the error.
class Writer {
public:
  explicit Writer(const Tokenizer &tokenizer) : tokenizer(tokenizer) {}

  Writer &special(const std::string &name) {
    if (auto id = tokenizer.special(name))
      ids.push_back(*id);
    else if (!failure)
      failure = Error{"",
                      "the tokenizer has no special token '" + name +
                          "', which the chat markup needs",
                      {}};
    return *this;
  }
  Writer &text(std::string_view part) {
    std::vector<int32_t> more = tokenizer.encode(part);
    ids.insert(ids.end(), more.begin(), more.end());
    return *this;
  }
  Result<std::vector<int32_t>> take() {
    if (failure)
      return *failure;
    return std::move(ids);
  }

private:
  const Tokenizer &tokenizer;
  std::vector<int32_t> ids;
  std::optional<Error> failure;
};

/// <|open|>NAME attributes<|sep|> ... <|close|>NAME<|sep|>
void kimiK3(Writer &out, const std::vector<Message> &messages, bool thinking) {
  auto open = [&](const std::string &tag) {
    out.special("<|open|>").text(tag).special("<|sep|>");
  };
  auto close = [&](const std::string &tag) {
    out.special("<|close|>").text(tag).special("<|sep|>");
  };
  for (const Message &message : messages) {
    open("message role=\"" + message.role + "\"");
    if (message.role == "assistant")
      open("response");
    out.text(message.text);
    if (message.role == "assistant")
      close("response");
    close("message");
    out.special("<|end_of_msg|>");
  }
  open("message role=\"assistant\"");
  open(thinking ? "think" : "response");
}

/// <|im_ROLE|>ROLE<|im_middle|> ... <|im_end|>
void kimiLinear(Writer &out, const std::vector<Message> &messages) {
  auto open = [&](const std::string &role) {
    out.special("<|im_" + role + "|>").text(role).special("<|im_middle|>");
  };
  for (const Message &message : messages) {
    open(message.role);
    out.text(message.text).special("<|im_end|>");
  }
  open("assistant");
}

/// <|im_start|>ROLE \n ... <|im_end|> \n
void chatMl(Writer &out, const std::vector<Message> &messages) {
  for (const Message &message : messages)
    out.special("<|im_start|>")
        .text(message.role + "\n")
        .text(message.text)
        .special("<|im_end|>")
        .text("\n");
  out.special("<|im_start|>").text("assistant\n");
}

} // namespace

Result<std::vector<int32_t>> encodeChat(const Tokenizer &tokenizer,
                                        const std::string &modelType,
                                        const std::vector<Message> &messages,
                                        bool thinking) {
  for (const Message &message : messages)
    if (message.role != "system" && message.role != "user" &&
        message.role != "assistant")
      return Error{"",
                   "role '" + message.role +
                       "' is not one of system, user, assistant",
                   {}};
  Writer out(tokenizer);
  if (modelType == "kimi_k3")
    kimiK3(out, messages, thinking);
  else if (modelType == "kimi_linear")
    kimiLinear(out, messages);
  else if (modelType == "qwen3_next")
    chatMl(out, messages);
  else
    return Error{"",
                 "models of type '" + modelType + "' have no chat markup",
                 {"'--prompt' takes text as it is"}};
  return out.take();
}

} // namespace plum::text
