// SPDX-License-Identifier: Apache-2.0
#include "driver/archive/archive.hpp"

#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <ctime>
#include <memory>
#include <new>
#include <utility>

#include "base/errors.hpp"
#include "base/shown.hpp"
#include "driver/loader.hpp"

struct archive;
struct archive_entry;

namespace gigabar::tar {
namespace {

// Source: archive.h of libarchive 3.
constexpr int kEnd = 1, kOk = 0, kFailed = -25;

constexpr const char* kRead = "read archive";
constexpr const char* kWrite = "write archive";

// All null when the library cannot be used.
struct Functions {
#define GIGABAR_ARCHIVE_SYMBOL(function, result, parameters) result(*function) parameters = nullptr;
#include "driver/archive/symbols.def"
#undef GIGABAR_ARCHIVE_SYMBOL
};

const char* fill(Functions& functions, const OpenedLibrary& opened) {
#define GIGABAR_ARCHIVE_SYMBOL(function, result, parameters) \
  if (!find_function(opened, functions.function, Need::required, #function)) return #function;
#include "driver/archive/symbols.def"
#undef GIGABAR_ARCHIVE_SYMBOL
  return nullptr;
}

const LibraryOf<Functions>& library() {
  static const auto instance = load_functions<Functions>("libarchive.so.13", "GIGABAR_ARCHIVE_LIBRARY",
                                                         "install libarchive (package libarchive13, libarchive13t64 or libarchive)",
                                                         "install libarchive 3.0 or newer");
  return instance;
}

// What the library says of its last failure. Throws where that was a lack of memory.
std::string reason_of(struct archive* handle) {
  if (library().archive_errno(handle) == ENOMEM) throw std::bad_alloc();
  const char* const reason = library().archive_error_string(handle);
  return reason != nullptr ? shown(reason) : std::string("the library does not say why");
}

struct FreeReader {
  void operator()(struct archive* handle) const { library().archive_read_free(handle); }
};
struct FreeWriter {
  void operator()(struct archive* handle) const { library().archive_write_free(handle); }
};
struct FreeEntry {
  void operator()(struct archive_entry* entry) const { library().archive_entry_free(entry); }
};

[[nodiscard]] Error bad_entry(std::string_view path, std::string cause) {
  const std::string object = path.empty() ? std::string() : text("'", shown(path), "'");
  return make_error(Status::bad_file, kRead, object, std::move(cause), "capture the machine again");
}

std::string_view relative(std::string_view path) {
  while (path.starts_with("./")) path.remove_prefix(2);
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

Result<void> take_link(struct archive_entry* header, Entry& entry) {
  entry.kind = Kind::link;
  const char* const target = library().archive_entry_symlink(header);
  if (target == nullptr) return bad_entry(entry.path, "is a link to nowhere");
  entry.text = target;
  return {};
}

// `left_bytes`: what files may still have.
Result<void> take_file(struct archive* reader, struct archive_entry* header, std::size_t& left_bytes, Entry& entry) {
  entry.kind = Kind::file;
  const std::int64_t bytes = library().archive_entry_size(header);
  // A sparse file would need more memory than its archive has bytes. One whose map lies behind its end is not told as sparse.
  if (library().archive_entry_sparse_count(header) > 0) return bad_entry(entry.path, "is a sparse file");
  if (bytes < 0 || static_cast<std::uint64_t>(bytes) > left_bytes)
    return bad_entry(entry.path, "is larger than what the archive has bytes for");
  left_bytes -= static_cast<std::size_t>(bytes);
  entry.text.resize(static_cast<std::size_t>(bytes));
  for (std::size_t filled = 0; filled < entry.text.size();) {
    const ssize_t count = library().archive_read_data(reader, entry.text.data() + filled, entry.text.size() - filled);
    if (count < 0) return bad_entry(entry.path, reason_of(reader));
    if (count == 0) return bad_entry(entry.path, "is truncated");
    filled += static_cast<std::size_t>(count);
  }
  return {};
}

Result<void> take(struct archive* reader, struct archive_entry* header, std::size_t& left_bytes, Entry& entry) {
  if (entry.path.starts_with('/')) return bad_entry(entry.path, "has an absolute path");
  if (library().archive_entry_hardlink(header) != nullptr) return bad_entry(entry.path, "is a hard link");
  switch (library().archive_entry_filetype(header)) {
    case S_IFDIR: entry.kind = Kind::folder; return {};
    case S_IFLNK: return take_link(header, entry);
    case S_IFREG: return take_file(reader, header, left_bytes, entry);
    default: return bad_entry(entry.path, "is neither a file nor a folder nor a symbolic link");
  }
}

struct Sink {
  std::string bytes;
  bool has_no_memory = false;
};

// No exception may pass through the library.
ssize_t append(struct archive* /*handle*/, void* sink, const void* bytes, std::size_t count) noexcept {
  auto& to = *static_cast<Sink*>(sink);
  try {
    to.bytes.append(static_cast<const char*>(bytes), count);
  } catch (...) {
    to.has_no_memory = true;
    return -1;
  }
  return static_cast<ssize_t>(count);
}

bool put(struct archive* writer, const Entry& entry, std::int64_t now_s) {
  const std::unique_ptr<struct archive_entry, FreeEntry> header(library().archive_entry_new());
  if (header == nullptr) throw std::bad_alloc();
  const bool is_file = entry.kind == Kind::file;
  library().archive_entry_set_pathname(header.get(), entry.path.c_str());
  library().archive_entry_set_mtime(header.get(), now_s, 0);
  library().archive_entry_set_perm(header.get(), is_file ? 0644 : 0755);
  library().archive_entry_set_size(header.get(), is_file ? static_cast<std::int64_t>(entry.text.size()) : 0);
  library().archive_entry_set_filetype(header.get(), is_file ? S_IFREG : entry.kind == Kind::folder ? S_IFDIR : S_IFLNK);
  if (entry.kind == Kind::link) library().archive_entry_set_symlink(header.get(), entry.text.c_str());
  const std::string_view content = is_file ? std::string_view(entry.text) : std::string_view();
  return library().archive_write_header(writer, header.get()) == kOk &&
         library().archive_write_data(writer, content.data(), content.size()) == static_cast<ssize_t>(content.size());
}

}  // namespace

const Availability& availability() { return library().availability; }

// Source: POSIX, pax: "ustar" stands at byte 257 of a header, also in GNU's format.
bool is_tar(std::string_view bytes) noexcept { return bytes.size() >= 512 && bytes.substr(257, 5) == "ustar"; }

Result<void> read(std::string_view bytes, const std::function<void(Entry&& entry)>& visit) {
  if (!availability().is_ok()) return make_error(kRead, "", availability());
  const std::unique_ptr<struct archive, FreeReader> reader(library().archive_read_new());
  if (reader == nullptr) throw std::bad_alloc();
  const bool is_open = library().archive_read_support_format_tar(reader.get()) == kOk &&
                       library().archive_read_open_memory(reader.get(), bytes.data(), bytes.size()) == kOk;
  std::size_t left_bytes = bytes.size();
  std::string last_path;
  for (;;) {
    struct archive_entry* header = nullptr;
    const int answer = is_open ? library().archive_read_next_header(reader.get(), &header) : kFailed;
    if (answer == kEnd) return {};
    const char* const path = answer == kOk ? library().archive_entry_pathname(header) : nullptr;
    if (path == nullptr) return bad_entry(last_path, "what comes next cannot be read: " + reason_of(reader.get()));
    Entry entry;
    entry.path = last_path = relative(path);
    if (Result<void> taken = take(reader.get(), header, left_bytes, entry); !taken) return taken;
    if (!entry.path.empty() && entry.path != ".") visit(std::move(entry));
  }
}

Result<std::string> write(std::span<const Entry> entries) {
  if (!availability().is_ok()) return make_error(kWrite, "", availability());
  Sink sink;  // the library's callback writes there, also when the archive is freed
  const std::unique_ptr<struct archive, FreeWriter> writer(library().archive_write_new());
  if (writer == nullptr) throw std::bad_alloc();
  bool is_done = library().archive_write_set_format_gnutar(writer.get()) == kOk &&
                 library().archive_write_open(writer.get(), &sink, nullptr, append, nullptr) == kOk;
  const std::int64_t now_s = std::time(nullptr);
  for (const Entry& entry : entries) is_done = is_done && put(writer.get(), entry, now_s);
  is_done = is_done && library().archive_write_close(writer.get()) == kOk;
  if (sink.has_no_memory) throw std::bad_alloc();
  if (!is_done) return make_error(Status::unavailable, kWrite, "", reason_of(writer.get()));
  return std::move(sink.bytes);
}

}  // namespace gigabar::tar
