#include "nccl_api/configuration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

namespace arb::nccl {

Configuration configuration_here(const CatalogRow& row) {
  Configuration here;
  for (const NcclVariable& variable : row.nccl_variables) {
    const std::string name(variable.name);
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) {
      here.problem = fmt::format("this worker is not one of {}: {} is not set", row.contender, name);
    } else if (value != variable.value) {
      here.users.push_back(fmt::format("{}={}", name, value));
    }
  }
  return here;
}

bool fell_back(const std::optional<Choice>& choice, Window window) {
  if (window == Window::none) return false;
  return choice ? !is_symmetric(*choice) : window == Window::unregistered;
}

std::string what_ran(const std::optional<Choice>& choice, Window window, const Configuration& configuration) {
  std::vector<std::string> parts;
  if (choice) parts.push_back(describe(*choice));
  if (fell_back(choice, window)) {
    parts.emplace_back(window == Window::unregistered ? "(fell back: NCCL registered no window)"
                                                      : "(fell back: not a symmetric kernel)");
  }
  if (!configuration.users.empty())
    parts.push_back(fmt::format("(the user's {})", fmt::join(configuration.users, " ")));
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace arb::nccl
