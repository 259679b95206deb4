#!/usr/bin/env python3
# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the text that the small models learn: prepare.py DIR

The King James Version of 1611 is in the public domain. Debian's packages
`bible-kjv` (the program) and `bible-kjv-text` (its compressed database) have
it; `bible -f 'Gen1:1-Rev22:21'` prints a verse a line, "Ge1:1 In the ...".
From that come, a heading to each chapter and a line to each verse,

    train.txt   the chapters that are learned
    valid.txt   every 40th chapter: when to stop
    test.txt    every 20th of the others: what is reported
    tokenizer.json   2048 byte pairs learned from train.txt
    tokens.npz  the three as token ids

Needs numpy and tokenizers. --raw FILE takes the program's output from a file.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

import numpy
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

BOOKS = """Genesis Exodus Leviticus Numbers Deuteronomy Joshua Judges Ruth
1_Samuel 2_Samuel 1_Kings 2_Kings 1_Chronicles 2_Chronicles Ezra Nehemiah Esther
Job Psalms Proverbs Ecclesiastes Song_of_Solomon Isaiah Jeremiah Lamentations
Ezekiel Daniel Hosea Joel Amos Obadiah Jonah Micah Nahum Habakkuk Zephaniah
Haggai Zechariah Malachi Matthew Mark Luke John Acts Romans 1_Corinthians
2_Corinthians Galatians Ephesians Philippians Colossians 1_Thessalonians
2_Thessalonians 1_Timothy 2_Timothy Titus Philemon Hebrews James 1_Peter 2_Peter
1_John 2_John 3_John Jude Revelation""".split()
VOCABULARY = 2048


def chapters(raw: str) -> list[str]:
    """The text of each chapter, in order."""
    verses = re.findall(r"^(\d?\D+)(\d+):(\d+) (.*)$", raw, re.MULTILINE)
    if len(verses) != 31102:
        sys.exit(f"prepare.py: error: found {len(verses)} verses, expected 31102")
    names = dict(zip(dict.fromkeys(book for book, *_ in verses), BOOKS))
    found = collections.defaultdict(list)
    for book, chapter, verse, text in verses:
        found[names[book].replace("_", " "), chapter].append(f"{verse} {text}\n")
    return [f"{book} {chapter}\n\n" + "".join(lines) + "\n"
            for (book, chapter), lines in found.items()]


def learn(text: str) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--raw", type=pathlib.Path, help="output of `bible -f`")
    args = parser.parse_args()
    if args.raw:
        raw = args.raw.read_text()
    else:
        raw = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], check=True,
                             capture_output=True, text=True).stdout
    parts = {"train": [], "valid": [], "test": []}
    for i, text in enumerate(chapters(raw)):
        name = {0: "valid", 10: "test", 30: "test"}.get(i % 40, "train")
        parts[name].append(text)
    args.dir.mkdir(parents=True, exist_ok=True)
    texts = {name: "".join(list_) for name, list_ in parts.items()}
    tokenizer = learn(texts["train"])
    tokenizer.save(str(args.dir / "tokenizer.json"))
    tokens = {}
    for name, text in texts.items():
        (args.dir / f"{name}.txt").write_text(text)
        tokens[name] = numpy.array(tokenizer.encode(text).ids, numpy.uint16)
        print(f"{name}: {len(parts[name])} chapters, {len(text)} bytes, "
              f"{len(tokens[name])} tokens")
    width = [len(tokenizer.decode([i]).encode()) if i >= 256 else 1
             for i in range(tokenizer.get_vocab_size())]
    tokens["bytes"] = numpy.array(width, numpy.uint16)  # Of each token.
    numpy.savez(args.dir / "tokens.npz", **tokens)


if __name__ == "__main__":
    main()
