#include "probe/elf.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "descriptor.h"

namespace arb::probe {
namespace {

constexpr std::size_t most_segments = 256;
constexpr std::size_t most_entries = 4096;
constexpr std::size_t longest_name = 256;

class ElfFile {
 public:
  explicit ElfFile(const std::filesystem::path& path) : file_(open_to_read(path)) {}

  bool read(void* to, std::size_t bytes, std::uint64_t offset) const {
    return file_ &&
           ::pread(file_.get(), to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }
  // The text at `offset` up to its zero byte.
  [[nodiscard]] std::string text(std::uint64_t offset) const {
    char buffer[longest_name];
    const ssize_t got = !file_ ? -1 : ::pread(file_.get(), buffer, sizeof buffer, static_cast<off_t>(offset));
    if (got <= 0) return {};
    return {buffer, ::strnlen(buffer, static_cast<std::size_t>(got))};
  }

 private:
  Descriptor file_;
};

}  // namespace

std::vector<std::string> needed_libraries(const std::filesystem::path& path) {
  std::vector<std::string> names;
  const ElfFile file(path);
  Elf64_Ehdr header{};
  if (!file.read(&header, sizeof header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > most_segments)
    return names;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (segments.empty() || !file.read(segments.data(), segments.size() * sizeof(Elf64_Phdr), header.e_phoff))
    return names;
  const auto file_offset = [&](std::uint64_t address) -> std::optional<std::uint64_t> {
    for (const Elf64_Phdr& segment : segments) {
      if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
          address - segment.p_vaddr < segment.p_filesz)
        return segment.p_offset + (address - segment.p_vaddr);
    }
    return std::nullopt;
  };
  const auto dynamic = std::ranges::find(segments, static_cast<Elf64_Word>(PT_DYNAMIC), &Elf64_Phdr::p_type);
  if (dynamic == segments.end()) return names;
  std::vector<Elf64_Dyn> entries(std::min<std::size_t>(dynamic->p_filesz / sizeof(Elf64_Dyn), most_entries));
  if (entries.empty() || !file.read(entries.data(), entries.size() * sizeof(Elf64_Dyn), dynamic->p_offset))
    return names;
  const auto table = std::ranges::find(entries, static_cast<Elf64_Sxword>(DT_STRTAB), &Elf64_Dyn::d_tag);
  if (table == entries.end()) return names;
  const auto strings = file_offset(table->d_un.d_ptr);
  if (!strings) return names;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_NEEDED) names.push_back(file.text(*strings + entry.d_un.d_val));
  }
  return names;
}

std::string elf_section(const std::filesystem::path& path, std::string_view name) {
  constexpr std::uint64_t most_bytes = 64 << 20;
  const ElfFile file(path);
  Elf64_Ehdr header{};
  if (!file.read(&header, sizeof header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0 || header.e_shstrndx >= header.e_shnum)
    return {};
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!file.read(sections.data(), sections.size() * sizeof(Elf64_Shdr), header.e_shoff)) return {};
  const std::uint64_t names_at = sections[header.e_shstrndx].sh_offset;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_PROGBITS || section.sh_size > most_bytes ||
        file.text(names_at + section.sh_name) != name)
      continue;
    std::string bytes(section.sh_size, '\0');
    return file.read(bytes.data(), bytes.size(), section.sh_offset) ? bytes : std::string();
  }
  return {};
}

}  // namespace arb::probe
