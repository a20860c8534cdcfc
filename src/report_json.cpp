#include "report_json.h"

#include <concepts>
#include <nlohmann/json.hpp>
#include <optional>

#include "report_columns.h"

namespace arb {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
void put(Json& object, const char* name, const T& value) {
  if constexpr (std::same_as<T, std::string>) {
    if (!value.empty()) object[name] = value;
  } else if constexpr (std::is_enum_v<T>) {
    object[name] = name_of(value);
  } else {
    object[name] = value;
  }
}
template <typename T>
void put(Json& object, const char* name, const std::optional<T>& value) {
  if (value) put(object, name, *value);
}

}  // namespace

std::string json_document(std::span<const Row> rows) {
  Json document = {{"schema", "arbench rows"}, {"version", 1}, {"rows", Json::array()}};
  for (const Row& row : rows) {
    Json object = Json::object();
    for_each_column(row.get(), [&](const char* name, const auto& value) { put(object, name, value); });
    document["rows"].push_back(std::move(object));
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace arb
