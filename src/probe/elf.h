// What a shared library needs, read from its file without loading it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace arb::probe {

// The names of the libraries that a 64-bit little-endian ELF file was linked with (DT_NEEDED), in its order;
// none for any other file, or a broken one.
std::vector<std::string> needed_libraries(const std::filesystem::path& file);

// The bytes of a section; empty where there is none, where it is over 64 MiB, and for what is no ELF file.
std::string elf_section(const std::filesystem::path& path, std::string_view name);

}  // namespace arb::probe
