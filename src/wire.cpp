#include "wire.h"

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>

namespace arb {
namespace {

using Json = nlohmann::json;

// One `fields` overload a struct is the whole schema: encoder and decoder both walk it, so they cannot
// disagree.
template <typename T, typename Of>
concept Is = std::same_as<std::remove_const_t<T>, Of>;

template <typename Visitor>
void fields(Is<WorkerConfig> auto& config, Visitor& visit) {
  visit("devices", config.devices);
  visit("bundle_folders", config.bundle_folders);
  visit("nccl_library", config.nccl_library);
  visit("deadline_ms", config.deadline_ms);
  visit("world", config.world);
  visit("rank", config.rank);
  visit.or_empty("peer", config.peer);
}

template <typename Visitor>
void fields(Is<DeviceInfo> auto& device, Visitor& visit) {
  visit("ordinal", device.ordinal);
  visit("name", device.name);
  visit("uuid", device.uuid);
  visit("architecture", device.architecture);
  visit("pci_address", device.pci_address);
  visit("memory_bytes", device.memory_bytes);
  visit("peers", device.peers);
}

template <typename Visitor>
void fields(Is<BundleInfo> auto& bundle, Visitor& visit) {
  visit("name", bundle.name);
  visit("folder", bundle.folder);
  visit("compiler", bundle.compiler);
  visit("problem", bundle.problem);
}

template <typename Visitor>
void fields(Is<Hello> auto& hello, Visitor& visit) {
  visit("driver", hello.driver);
  visit("cuda_driver", hello.cuda_driver);
  visit("devices", hello.devices);
  visit("bundles", hello.bundles);
  visit("nccl_version", hello.nccl_version);
  visit("nccl_path", hello.nccl_path);
  visit("nccl_problem", hello.nccl_problem);
  visit.or_empty("nccl_window_problem", hello.nccl_window_problem);
  visit.or_empty("peer_version", hello.peer_version);
  visit.or_empty("peer_problem", hello.peer_problem);
}

template <typename Visitor>
void fields(Is<Cell> auto& cell, Visitor& visit) {
  visit("contender", cell.contender);
  visit("bundle", cell.bundle);
  visit("nccl", cell.nccl);
  visit("dtype", cell.dtype);
  visit("ranks", cell.ranks);
  visit("island_ranks", cell.island_ranks);
  visit("blocks", cell.blocks);
  visit("threads", cell.threads);
  visit("bytes", cell.bytes);
  visit("place", cell.place);
  visit("mode", cell.mode);
  visit("cache", cell.cache);
  visit("calls_per_graph", cell.calls_per_graph);
  visit("samples", cell.samples);
  visit("warmups", cell.warmups);
  visit("seed", cell.seed);
  visit("verify_calls", cell.verify_calls);
  visit("plant", cell.plant);
  visit.or_empty("alias", cell.alias);
  visit("check", cell.check);
}

template <typename Visitor>
void fields(Is<Outcome> auto& outcome, Visitor& visit) {
  visit("samples_us", outcome.samples_us);
  visit("correct", outcome.correct);
  visit.or_infinite("max_error", outcome.max_error);
  visit("output_hash", outcome.output_hash);
  visit("ran", outcome.ran);
  visit("flags", outcome.flags);
  visit("messages", outcome.messages);
  visit("wire_bytes", outcome.wire_bytes);
  visit("wrong", outcome.wrong);
  visit("failure", outcome.failure);
}

template <typename Visitor>
void fields(Is<MachineLimits> auto& limits, Visitor& visit) {
  visit("node_us_k20", limits.node_us_k20);
  visit("graph_start_us", limits.graph_start_us);
  visit("node_us", limits.node_us);
  visit("isolated_node_us", limits.isolated_node_us);
  visit("flag_us", limits.flag_us);
  visit("bandwidth_gbps", limits.bandwidth_gbps);
  visit("bandwidth_engine", limits.bandwidth_engine);
  visit("stamp_us", limits.stamp_us);
  visit("clock_tick_ns", limits.clock_tick_ns);
}

template <typename Visitor>
void fields(Is<LimitTest> auto& test, Visitor& visit) {
  visit("kind", test.kind);
  visit("edge", test.edge);
  visit("count", test.count);
  visit("engine", test.engine);
  visit("traffic", test.traffic);
  visit("from", test.from);
  visit("to", test.to);
  visit("blocks", test.blocks);
  visit("bytes", test.bytes);
}

template <typename Visitor>
void fields(Is<Request> auto& request, Visitor& visit) {
  visit("op", request.op);
  visit("cell", request.cell);
  visit("test", request.test);
}

template <typename Visitor>
void fields(Is<Reply> auto& reply, Visitor& visit) {
  visit("op", reply.op);
  visit("error", reply.error);
  visit("hung", reply.hung);
  visit("hello", reply.hello);
  visit("limits", reply.limits);
  visit("figure", reply.figure);
  visit("cell", reply.cell);
  visit("outcome", reply.outcome);
}

// All values of an enum, so that its names can be read back.
template <typename Enum>
constexpr auto all_of = nullptr;
template <>
constexpr std::array all_of<Dtype> = all_dtypes;
template <>
constexpr std::array all_of<Place> = {Place::out, Place::in};
template <>
constexpr std::array all_of<Mode> = {Mode::isolated, Mode::pipelined};
template <>
constexpr std::array all_of<Cache> = {Cache::cold, Cache::warm};
template <>
constexpr std::array all_of<World> = {World::threads, World::processes};
template <>
constexpr std::array all_of<Plant> = {Plant::none, Plant::input, Plant::output, Plant::absent};
template <>
constexpr std::array all_of<Op> = {Op::hello, Op::limits, Op::measure, Op::run, Op::quit};
template <>
constexpr std::array all_of<LimitKind> = {LimitKind::nodes, LimitKind::local_copy, LimitKind::flag,
                                          LimitKind::barrier, LimitKind::move};
template <>
constexpr std::array all_of<GraphEdge> = {GraphEdge::plain, GraphEdge::programmatic};
template <>
constexpr std::array all_of<Engine> = {Engine::sm_store, Engine::sm_load, Engine::copy_engine};
template <>
constexpr std::array all_of<Traffic> = {Traffic::pair, Traffic::next, Traffic::all_pairs};

template <typename T>
concept Named = std::is_enum_v<T>;

struct Encoder {
  Json object = Json::object();

  template <typename T>
  static Json value(std::string_view key, const T& from) {
    if constexpr (Named<T>) {
      return name_of(from);
    } else if constexpr (std::same_as<T, double>) {
      if (!std::isfinite(from))
        throw WireError(fmt::format("\"{}\" is {}, and JSON has no such number", key, from));
      return from;
    } else if constexpr (std::same_as<T, std::string> || std::same_as<T, bool> || std::unsigned_integral<T>) {
      return from;
    } else {
      Encoder inner;
      fields(from, inner);
      return std::move(inner.object);
    }
  }
  template <typename T>
  void operator()(const char* key, const T& from) {
    object[key] = value(key, from);
  }
  template <typename T>
  void operator()(const char* key, const std::vector<T>& from) {
    Json& list = object[key] = Json::array();
    for (const T& element : from) list.push_back(value(key, element));
  }
  // A wrong result may hold NaN, and then its error is no number: no key, and infinity at the other end.
  void or_infinite(const char* key, double from) {
    if (std::isfinite(from)) object[key] = from;
  }
  // No key where the text is empty: builds that do not know the key then still talk to this one, as `compare` wants
  // of two builds.
  void or_empty(const char* key, const std::string& from) {
    if (!from.empty()) object[key] = from;
  }
  // Absent rather than null: an optional part that is not there has no key.
  template <typename T>
  void operator()(const char* key, const std::optional<T>& from) {
    if (from) object[key] = value(key, *from);
  }
};

struct Decoder {
  explicit Decoder(const Json& from) : object(from) {
    if (!from.is_object()) throw WireError(fmt::format("expected an object, got {}", from.type_name()));
  }
  const Json& object;
  std::size_t used = 0;

  template <typename T>
  static T value(std::string_view key, const Json& from) {
    const auto mistyped = [&](std::string_view wanted) {
      return WireError(fmt::format("\"{}\" must be {}, got {}", key, wanted, from.type_name()));
    };
    if constexpr (Named<T>) {
      if (!from.is_string()) throw mistyped("a name");
      const auto& name = from.get_ref<const std::string&>();
      for (const T candidate : all_of<T>) {
        if (name_of(candidate) == name) return candidate;
      }
      throw WireError(fmt::format("\"{}\" has no value \"{}\"", key, name));
    } else if constexpr (std::same_as<T, bool>) {
      if (!from.is_boolean()) throw mistyped("true or false");
      return from.get<bool>();
    } else if constexpr (std::same_as<T, std::string>) {
      if (!from.is_string()) throw mistyped("a string");
      return from.get<std::string>();
    } else if constexpr (std::same_as<T, double>) {
      if (!from.is_number()) throw mistyped("a number");
      return from.get<double>();
    } else if constexpr (std::unsigned_integral<T>) {
      if (!from.is_number_unsigned() || from.get<std::uint64_t>() > std::numeric_limits<T>::max()) {
        throw mistyped("a whole number that fits");
      }
      return from.get<T>();
    } else {
      T to;
      decode_into(to, from);
      return to;
    }
  }
  template <typename T>
  static void decode_into(T& to, const Json& from) {
    Decoder inner(from);
    fields(to, inner);
    if (inner.used == from.size()) return;
    throw WireError(fmt::format("an object has {} keys where {} are known", from.size(), inner.used));
  }
  template <typename T>
  void operator()(const char* key, T& to) {
    to = value<T>(key, at(key));
  }
  template <typename T>
  void operator()(const char* key, std::vector<T>& to) {
    const Json& list = at(key);
    if (!list.is_array())
      throw WireError(fmt::format("\"{}\" must be a list, got {}", key, list.type_name()));
    to.clear();
    to.reserve(list.size());
    for (const Json& element : list) to.push_back(value<T>(key, element));
  }
  void or_infinite(const char* key, double& to) {
    to = object.contains(key) ? value<double>(key, at(key)) : std::numeric_limits<double>::infinity();
  }
  void or_empty(const char* key, std::string& to) {
    to = object.contains(key) ? value<std::string>(key, at(key)) : std::string();
  }
  template <typename T>
  void operator()(const char* key, std::optional<T>& to) {
    to = object.contains(key) ? std::optional<T>(value<T>(key, at(key))) : std::nullopt;
  }

 private:
  const Json& at(const char* key) {
    const auto found = object.find(key);
    if (found == object.end()) throw WireError(fmt::format("\"{}\" is missing", key));
    ++used;
    return *found;
  }
};

template <typename T>
std::string encode(const T& from) {
  Encoder encoder;
  fields(from, encoder);
  // Foreign text (a driver's message) need not be UTF-8; its bad bytes are replaced rather than refused.
  return encoder.object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename T>
T decode(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw WireError("not JSON");
  T to;
  Decoder::decode_into(to, json);
  return to;
}

void check_parts(const Request& request) {
  if (request.cell.has_value() != (request.op == Op::run))
    throw WireError("a request has a cell exactly when it is \"run\"");
  if (request.test.has_value() != (request.op == Op::measure))
    throw WireError("a request has a test exactly when it is \"measure\"");
}

}  // namespace

std::string to_wire(const WorkerConfig& config) {
  return encode(config);
}

std::string to_wire(const Request& request) {
  check_parts(request);
  return encode(request);
}

std::string to_wire(const Reply& reply) {
  return encode(reply);
}

WorkerConfig worker_config_from_wire(std::string_view text) {
  return decode<WorkerConfig>(text);
}

Request request_from_wire(std::string_view text) {
  auto request = decode<Request>(text);
  check_parts(request);
  return request;
}

Reply reply_from_wire(std::string_view text) {
  auto reply = decode<Reply>(text);
  const bool good = reply.error.empty();
  const auto check = [&](bool present, bool wanted, std::string_view part) {
    if (present != (good && wanted)) {
      throw WireError(
          fmt::format("a reply to \"{}\" with{} \"{}\"", name_of(reply.op), present ? "" : "out", part));
    }
  };
  if (good && reply.hung) throw WireError("a reply that is \"hung\" without an error");
  check(reply.hello.has_value(), reply.op == Op::hello, "hello");
  check(reply.limits.has_value(), reply.op == Op::limits, "limits");
  check(reply.figure.has_value(), reply.op == Op::measure, "figure");
  check(reply.cell.has_value(), reply.op == Op::run, "cell");
  check(reply.outcome.has_value(), reply.op == Op::run, "outcome");
  return reply;
}

}  // namespace arb
