//===- Frontend.cpp - From spec text to a checked layer -------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The phases in order, and the choice of one layer among a file's.
//
//===----------------------------------------------------------------------===//

#include "plum/Frontend/Frontend.h"

#include "Parser.h"
#include "Sema.h"

#include "plum/Frontend/Affine.h"

#include <algorithm>
#include <fmt/format.h>

namespace plum::frontend {

namespace {
constexpr size_t maxSourceBytes = 1 << 20;

/// "'a', 'b' and 'c'".
std::string listNames(const std::vector<syntax::Layer> &layers) {
  std::string list;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i > 0)
      list += i + 1 == layers.size() ? " and " : ", ";
    list += fmt::format("'{}'", layers[i].name.text);
  }
  return list;
}

bool checkUnique(Diagnostics &diags, const std::vector<syntax::Layer> &layers) {
  std::map<std::string_view, Range> first;
  bool unique = true;
  for (const syntax::Layer &layer : layers) {
    auto [entry, isNew] = first.try_emplace(layer.name.text, layer.name.range);
    if (isNew)
      continue;
    unique = false;
    diags.error(layer.name.range,
                fmt::format("redefinition of layer '{}'", layer.name.text));
    diags.note(entry->second,
               fmt::format("'{}' is first defined here", layer.name.text));
  }
  return unique;
}

/// The layer that the options ask for; null after an error.
const syntax::Layer *choose(Diagnostics &diags, const SpecOptions &options,
                            const std::vector<syntax::Layer> &layers) {
  if (layers.empty()) {
    diags.error({0, 0}, "the file has no layer");
    return nullptr;
  }
  if (!checkUnique(diags, layers))
    return nullptr;
  if (options.layer.empty()) {
    if (layers.size() == 1)
      return &layers.front();
    diags.error(layers.front().name.range,
                fmt::format("the file has {} layers, {}; choose one with "
                            "'--layer NAME'",
                            layers.size(), listNames(layers)));
    return nullptr;
  }
  auto found = std::find_if(layers.begin(), layers.end(), [&](auto &layer) {
    return layer.name.text == options.layer;
  });
  if (found != layers.end())
    return &*found;
  diags.error(layers.front().name.range,
              fmt::format("the file has no layer '{}', only {}", options.layer,
                          listNames(layers)));
  return nullptr;
}
} // namespace

std::unique_ptr<Layer> parseSpec(Diagnostics &diags,
                                 const SpecOptions &options) {
  if (diags.source().text().size() > maxSourceBytes) {
    diags.error({0, 0},
                fmt::format("the file has {} bytes, expected at most {}",
                            diags.source().text().size(), maxSourceBytes));
    return nullptr;
  }
  syntax::File file = parse(diags);
  if (diags.hasErrors())
    return nullptr;
  const syntax::Layer *source = choose(diags, options, file.layers);
  if (!source)
    return nullptr;
  std::unique_ptr<Layer> layer = Sema(diags, options).check(*source);
  if (!layer || !analyseAffine(*layer, diags, options.stepOnly))
    return nullptr;
  return layer;
}

} // namespace plum::frontend
