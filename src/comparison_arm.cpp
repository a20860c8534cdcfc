#include "comparison_arm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <random>
#include <span>
#include <utility>

#include "text.h"

namespace arb {
namespace {

const std::vector<std::string>& keys() {
  static const std::vector<std::string> names = {"toolkit", "bundle", "nccl", "contender", "arbench"};
  return names;
}

bool is_variable(std::string_view name) {
  const auto good = [](char c) {
    return std::isupper(static_cast<unsigned char>(c)) != 0 ||
           std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(name, good);
}

void set_once(std::string& target, const std::string& key, std::string value) {
  if (!target.empty()) {
    throw UsageError(fmt::format("an arm has one {}: '{}' and '{}' are two", key, target, value));
  }
  target = std::move(value);
}

void add_part(ArmSpec& arm, const std::string& part) {
  const std::size_t equal = part.find('=');
  std::string key = part.substr(0, equal);
  std::string value = part.substr(equal + 1);
  for (const char* mark : {"env ", "env:"}) {
    if (key.starts_with(mark)) key = key.substr(4);
  }
  if (is_variable(key)) {
    if (key == "CUDA_MODULE_LOADING" || key == "CUDA_DEVICE_MAX_CONNECTIONS" ||
        key == "CUDA_VISIBLE_DEVICES" || key == "CUDA_LAUNCH_BLOCKING") {
      throw UsageError(fmt::format(
          "{} cannot differ between arms: workers need one value of it on both sides; leave it out", key));
    }
    arm.variables[key] = value;
    return;
  }
  if (value.empty()) throw UsageError(fmt::format("'{}' has no value; write {}=VALUE", part, key));
  if (key == "toolkit") {
    set_once(arm.toolkit, key, value);
  } else if (key == "bundle") {
    // A name is a toolkit's; a path is a folder.
    set_once(value.find('/') == std::string::npos ? arm.toolkit : arm.bundle_folder, key, value);
  } else if (key == "nccl") {
    set_once(arm.nccl, key, value);
  } else if (key == "contender") {
    set_once(arm.contender, key, value);
  } else if (key == "arbench") {
    set_once(arm.program, key, value);
  } else {
    const auto nearest = nearest_name(key, keys());
    throw UsageError(
        fmt::format("an arm has no '{}'; {}there are {} and NAME=VALUE for environment variables", key,
                    nearest ? fmt::format("did you mean '{}'? ", *nearest) : "", enumerate(keys())));
  }
}

template <typename T>
void shuffle(std::vector<T>& list, std::mt19937_64& random) {
  // Not std::shuffle: a seed gives the same order with every standard library.
  for (std::size_t left = list.size(); left > 1; --left) std::swap(list[left - 1], list[random() % left]);
}

}  // namespace

std::string ArmSpec::label() const {
  if (text.empty()) return "as is";
  if (!toolkit.empty() && text == "toolkit=" + toolkit) return toolkit;
  if (!contender.empty() && text == "contender=" + contender) return contender;
  constexpr std::size_t long_label = 32;
  if (text.size() <= long_label) return text;
  // Of every path its last part.
  std::string label;
  for (const std::string& part : split_list(text)) {
    const std::size_t equal = part.find('=');
    const std::size_t slash = part.find_last_of('/', part.size() - 2);
    if (!label.empty()) label += ',';
    label += slash == std::string::npos || slash < equal
                 ? part
                 : part.substr(0, equal + 1) + ".../" + part.substr(slash + 1);
  }
  return label;
}

ArmSpec arm_from(const std::vector<std::string>& texts) {
  ArmSpec arm;
  arm.text = fmt::format("{}", fmt::join(texts, ","));
  std::vector<std::string> parts;
  for (const std::string& text : texts) {
    bool first = true;
    for (const std::string& part : split_list(text)) {
      if (part.find('=') != std::string::npos) {
        parts.push_back(part);
      } else if (first) {
        throw UsageError(
            fmt::format("'{}' is no arm; write toolkit=12.8, bundle=, nccl=PATH, contender=NAME, "
                        "arbench=PATH or NAME=VALUE",
                        part));
      } else {
        parts.back() += "," + part;
      }
      first = false;
    }
  }
  for (const std::string& part : parts) add_part(arm, part);
  if (!arm.toolkit.empty() && !arm.bundle_folder.empty()) {
    throw UsageError("an arm has a toolkit or a bundle's folder, not both");
  }
  return arm;
}

void check_arms(const ArmSpec& a, const ArmSpec& b) {
  if (a.contender.empty() != b.contender.empty()) {
    throw UsageError(
        "where one arm has contender=, the other needs one too: what would it be compared with?");
  }
}

ArmSpec arm_of(Role role, const ArmSpec& a, const ArmSpec& b) {
  ArmSpec arm = role == Role::b ? b : a;
  if (role == Role::compiler_of_b) {
    arm.toolkit = b.toolkit;
    arm.bundle_folder = b.bundle_folder;
  }
  if (role == Role::nccl_of_b) arm.nccl = b.nccl;
  return arm;
}

std::vector<std::vector<Role>> block_orders(const std::vector<Role>& roles, std::uint32_t blocks,
                                            std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<Role>> orders;
  while (orders.size() < blocks) {
    std::vector<std::vector<Role>> run;
    if (roles.size() == 3) {
      // All six orders, as two Latin squares, so that each three blocks are balanced by themselves too.
      std::vector<Role> turning = roles;
      std::vector<Role> other = {roles[0], roles[2], roles[1]};
      if (random() % 2 == 0) std::swap(turning, other);
      for (std::vector<Role>* square : {&turning, &other}) {
        std::vector<std::vector<Role>> three;
        for (int turn = 0; turn < 3; ++turn) {
          three.push_back(*square);
          std::rotate(square->begin(), square->begin() + 1, square->end());
        }
        shuffle(three, random);
        run.insert(run.end(), three.begin(), three.end());
      }
    } else {
      std::vector<Role> order = roles;
      shuffle(order, random);
      for (std::size_t turn = 0; turn < roles.size(); ++turn) {
        run.push_back(order);
        std::rotate(order.begin(), order.begin() + 1, order.end());
      }
      shuffle(run, random);
    }
    orders.insert(orders.end(), run.begin(), run.end());
  }
  orders.resize(blocks);
  return orders;
}

}  // namespace arb
