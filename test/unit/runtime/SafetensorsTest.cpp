//===- SafetensorsTest.cpp ------------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyLayer.h"

#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

namespace {

std::string bytesOf(const std::string &header, size_t dataBytes) {
  uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char *>(&length), 8);
  return bytes + header + std::string(dataBytes, '\0');
}

Result<std::vector<FileTensor>> parse(const std::string &bytes) {
  return parseSafetensors(std::as_bytes(std::span(bytes)), "f");
}

std::string errorOf(const std::string &bytes) {
  auto tensors = parse(bytes);
  return tensors ? "" : tensors.error().str();
}

/// The error of a file with one tensor.
std::string errorOf(const std::string &dtype, const std::string &shape,
                    const std::string &offsets, size_t dataBytes) {
  return errorOf(bytesOf("{\"x\":{\"dtype\":\"" + dtype + "\",\"shape\":" +
                             shape + ",\"data_offsets\":" + offsets + "}}",
                         dataBytes));
}

} // namespace

TEST(Safetensors, RoundTrips) {
  TempDir dir;
  std::vector<float> x{1, 2, 3, 4, 5, 6};
  std::vector<int64_t> i{7};
  std::vector<uint16_t> h{0x3f80};
  Status status =
      writeSafetensors(dir / "t", {{"x", DType::F32, {2, 3}, x.data()},
                                   {"none", DType::F16, {0, 5}, nullptr},
                                   {"i", DType::I64, {1}, i.data()},
                                   {"h", DType::BF16, {}, h.data()}});
  ASSERT_TRUE(status) << status.error().str();
  EXPECT_EQ(dir.list(), std::vector<std::string>{"t"});
  Result<SafetensorsFile> file = SafetensorsFile::open(dir / "t");
  ASSERT_TRUE(file) << file.error().str();
  EXPECT_EQ(file->tensors().size(), 4u);
  const FileTensor *tensor = file->find("x");
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(tensor->data.data(), x.data(), 24), 0);
  EXPECT_EQ(file->find("none")->elements(), 0);
  EXPECT_EQ(file->find("h")->elements(), 1);
  EXPECT_EQ(loadDoubles(*file->find("h")), std::vector<double>{1});
  EXPECT_EQ(file->find("nothing"), nullptr);
}

TEST(Safetensors, OtherTypesAreListedButNotLoadable) {
  const std::string bytes =
      bytesOf(R"({"a":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},)"
              R"("b":{"dtype":"F4","shape":[2],"data_offsets":[3,4]},)"
              R"("c":{"dtype":"F64","shape":[1],"data_offsets":[4,12]},)"
              R"("__metadata__":{"format":"pt"}})",
              12);
  auto tensors = parse(bytes); // Views of the bytes.
  ASSERT_TRUE(tensors) << tensors.error().str();
  ASSERT_EQ(tensors->size(), 3u);
  for (const FileTensor &tensor : *tensors)
    EXPECT_FALSE(tensor.dtype);
  EXPECT_FALSE(loadDoubles((*tensors)[0]));
  EXPECT_FALSE(loadDoubles((*tensors)[1]));
  EXPECT_EQ(loadDoubles((*tensors)[2]), std::vector<double>{0});
}

TEST(Safetensors, MalformedFiles) {
  EXPECT_EQ(errorOf("abc"),
            "f: error: has 3 bytes, a safetensors file has at least 8");
  EXPECT_EQ(errorOf(std::string("\xff\0\0\0\0\0\0\0{}", 10)),
            "f: error: header of 255 bytes does not fit into a file of 10 "
            "bytes: truncated or not a safetensors file");
  EXPECT_EQ(errorOf(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)),
            "f: error: header of 18446744073709551615 bytes does not fit into "
            "a file of 10 bytes: truncated or not a safetensors file");
  EXPECT_EQ(errorOf(bytesOf("{", 0)), "f: error: header is not valid JSON");
  EXPECT_EQ(errorOf(bytesOf("[]", 0)), "f: error: header is not a JSON object");
  EXPECT_EQ(errorOf(bytesOf("{\"x\":3}", 0)),
            "f: error: 'x' is number, expected an object");
  EXPECT_EQ(errorOf(bytesOf("{\"x\":{}}", 0)),
            "f: error: 'x.dtype' is missing");
  EXPECT_EQ(errorOf(bytesOf("{\"__metadata__\":{\"a\":1}}", 0)),
            "f: error: '__metadata__.a' is number, expected a string");
  EXPECT_EQ(errorOf(bytesOf("", 0)), "f: error: header is not valid JSON");
}

TEST(Safetensors, RangesAreChecked) {
  EXPECT_EQ(errorOf("F32", "[2]", "[0,8]", 8), "");
  EXPECT_EQ(errorOf("F32", "[2]", "[0,8]", 7),
            "f: error: 'x.data_offsets' ends at byte 8 of 7: the file is "
            "truncated");
  EXPECT_EQ(errorOf("F32", "[3]", "[0,8]", 8),
            "f: error: 'x.data_offsets' spans 8 bytes, expected 12 for F32 "
            "[3]");
  EXPECT_EQ(errorOf("F32", "[2]", "[8,0]", 8),
            "f: error: 'x.data_offsets' is [8,0], expected begin <= end");
  EXPECT_EQ(errorOf("F32", "[2]", "[0]", 8),
            "f: error: 'x.data_offsets' has 1 values, expected begin and end");
  EXPECT_EQ(errorOf("F32", "[2]", "[-8,0]", 8),
            "f: error: 'x.data_offsets[0]' is -8, expected at least 0");
  EXPECT_EQ(errorOf("F32", "[-2]", "[0,8]", 8),
            "f: error: 'x.shape[0]' is -2, expected at least 0");
  EXPECT_EQ(errorOf("F32", "[2.5]", "[0,8]", 8),
            "f: error: 'x.shape[0]' is number, expected an integer");
  EXPECT_EQ(errorOf("F32", "[4611686018427387904,4]", "[0,0]", 0),
            "f: error: 'x' has shape [4611686018427387904,4], whose size "
            "overflows");
  EXPECT_EQ(errorOf("F32", "[0,4611686018427387904,4]", "[0,0]", 0),
            "f: error: 'x' has shape [0,4611686018427387904,4], whose size "
            "overflows");
  EXPECT_EQ(errorOf("F32", "[2]", "[4,12]", 12),
            "f: error: bytes 0 to 4 of the data belong to no tensor");
  EXPECT_EQ(errorOf("F32", "[2]", "[0,8]", 9),
            "f: error: bytes 8 to 9 of the data belong to no tensor");
}

TEST(Safetensors, TwoTensorsCannotShareBytesOrNames) {
  const std::string a =
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string b =
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]})";
  EXPECT_EQ(errorOf(bytesOf("{" + a + "," + b + "}", 12)),
            "f: error: tensors 'a' and 'b' overlap");
  EXPECT_EQ(errorOf(bytesOf("{" + a + "," + a + "}", 8)),
            "f: error: header 'a' appears twice");
  EXPECT_EQ(errorOf(bytesOf(R"({"a":{"dtype":"F32","dtype":"F16","shape":[2],)"
                            R"("data_offsets":[0,8]}})",
                            8)),
            "f: error: header 'dtype' appears twice");
}

TEST(Safetensors, FilesThatCannotBeRead) {
  TempDir dir;
  auto errorOf = [&](const std::string &name) {
    Result<SafetensorsFile> file = SafetensorsFile::open(name);
    return file ? "" : file.error().str();
  };
  EXPECT_EQ(errorOf(dir / "none"),
            dir / "none: error: cannot be read: No such file or directory");
  EXPECT_EQ(errorOf(dir.path), dir.path + ": error: is not a regular file");
  writeFile(dir / "empty", "");
  EXPECT_EQ(errorOf(dir / "empty"),
            dir / "empty: error: has 0 bytes, a safetensors file has at least "
                  "8");
}

TEST(Safetensors, UnwritablePlacesLeaveNothingBehind) {
  TempDir dir;
  float x = 1;
  std::vector<TensorToWrite> tensors{{"x", DType::F32, {1}, &x}};
  auto errorOf = [&](const std::string &name) {
    Status status = writeSafetensors(name, tensors);
    return status ? "" : status.error().str();
  };
  EXPECT_EQ(errorOf(dir / "no/file"),
            dir / "no/file: error: cannot be written: No such file or "
                  "directory");
  EXPECT_EQ(errorOf(dir.path),
            dir.path + ": error: cannot be written: Is a directory");
  EXPECT_TRUE(dir.list().empty());
}

TEST(Safetensors, AFileThatCannotBeFinishedIsRemoved) {
  TempDir dir;
  std::vector<float> x(4096);
  struct rlimit before, limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = 4096;
  auto *handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  Status status =
      writeSafetensors(dir / "t", {{"x", DType::F32, {4096}, x.data()}});
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().str(),
            dir / "t: error: cannot be written: File too large");
  EXPECT_TRUE(dir.list().empty());
}

// As /dev/null is, but tests leave the machine's devices alone.
TEST(Safetensors, APipeIsWrittenToAndNotReplaced) {
  TempDir dir;
  std::string path = dir / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  float x = 1;
  Status status = writeSafetensors(path, {{"x", DType::F32, {1}, &x}});
  EXPECT_TRUE(status) << status.error().str();
  char bytes[512];
  EXPECT_GT(read(reader, bytes, sizeof bytes), 12);
  close(reader);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
  EXPECT_EQ(dir.list(), std::vector<std::string>{"pipe"});
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().str(), path + ": error: is not a regular file");
}

TEST(Safetensors, ReplacesAFileOnlyWhenCommitted) {
  TempDir dir;
  writeFile(dir / "t", "old");
  {
    Result<AtomicFile> file = AtomicFile::create(dir / "t");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write("new", 3));
  }
  EXPECT_EQ(readFile(dir / "t"), "old");
  EXPECT_EQ(dir.list(), std::vector<std::string>{"t"});
  ASSERT_EQ(symlink("t", (dir / "link").c_str()), 0);
  {
    Result<AtomicFile> file = AtomicFile::create(dir / "link");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write("new", 3));
    ASSERT_TRUE(file->commit());
  }
  EXPECT_EQ(readFile(dir / "t"), "new");
  EXPECT_EQ(dir.list(), (std::vector<std::string>{"link", "t"}));
}
