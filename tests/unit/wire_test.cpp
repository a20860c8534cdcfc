#include "wire.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace arb {
namespace {

// Values of every type that messages hold, drawn from a seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::uint64_t number() { return random_() >> (random_() % 64); }
  std::uint32_t small() { return static_cast<std::uint32_t>(number()); }
  bool flip() { return random_() % 2 == 0; }
  double real() {
    return std::ldexp(static_cast<double>(random_()), static_cast<int>(random_() % 200) - 130);
  }
  std::string text() {
    const char* const parts[] = {"a", "\"", "\\", "\n", "\u00e4", "{", "\t", "x/y", " ", "\x01"};
    std::string out;
    for (std::uint64_t n = random_() % 8; n > 0; --n) out += parts[random_() % std::size(parts)];
    return out;
  }
  Cell cell() {
    return {.contender = text(),
            .bundle = text(),
            .nccl = text(),
            .dtype = all_dtypes[random_() % all_dtypes.size()],
            .ranks = small(),
            .bytes = number(),
            .place = flip() ? Place::in : Place::out,
            .mode = flip() ? Mode::isolated : Mode::pipelined,
            .cache = flip() ? Cache::cold : Cache::warm,
            .calls_per_graph = small(),
            .samples = small(),
            .warmups = small(),
            .seed = number(),
            .alias = text(),
            .check = flip()};
  }
  Outcome outcome() {
    Outcome made;
    for (std::uint64_t n = random_() % 5; n > 0; --n) made.samples_us.push_back(real());
    made.correct = flip();
    made.max_error = flip() ? std::numeric_limits<double>::infinity() : real();
    made.output_hash = text();
    made.ran = text();
    for (std::uint64_t n = random_() % 3; n > 0; --n) made.flags.push_back(text());
    if (flip()) made.messages = number();
    if (flip()) made.wire_bytes = number();
    made.wrong = text();
    made.failure = text();
    return made;
  }
  Hello hello() {
    Hello made{.driver = text(),
               .cuda_driver = small(),
               .devices = {},
               .bundles = {},
               .nccl_version = text(),
               .nccl_path = text(),
               .nccl_problem = text(),
               .nccl_window_problem = text(),
               .peer_version = text(),
               .peer_problem = text()};
    for (std::uint64_t n = random_() % 3; n > 0; --n) {
      made.devices.push_back({small(), text(), text(), text(), text(), number(), {small(), small()}});
      made.bundles.push_back({text(), text(), text(), text()});
    }
    return made;
  }
  MachineLimits limits() { return {real(), real(), real(), real(), real(), real(), text(), real(), real()}; }
  LimitTest test() {
    constexpr LimitKind kinds[] = {LimitKind::nodes, LimitKind::local_copy, LimitKind::flag,
                                   LimitKind::barrier, LimitKind::move};
    constexpr Engine engines[] = {Engine::sm_store, Engine::sm_load, Engine::copy_engine};
    constexpr Traffic traffics[] = {Traffic::pair, Traffic::next, Traffic::all_pairs};
    return {.kind = kinds[random_() % std::size(kinds)],
            .edge = flip() ? GraphEdge::plain : GraphEdge::programmatic,
            .count = small(),
            .engine = engines[random_() % std::size(engines)],
            .traffic = traffics[random_() % std::size(traffics)],
            .from = small(),
            .to = small(),
            .blocks = small(),
            .bytes = number()};
  }
  WorkerConfig config() {
    return {
        {small()}, {text(), text()}, text(), number(), flip() ? World::processes : World::threads, small(),
        text()};
  }

 private:
  std::mt19937_64 random_;
};

TEST(Wire, AnyMessageComesBackAsItWas) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Draw draw(seed);
    const WorkerConfig config = draw.config();
    EXPECT_EQ(worker_config_from_wire(to_wire(config)), config);
    const Request request{.op = Op::run, .cell = draw.cell()};
    EXPECT_EQ(request_from_wire(to_wire(request)), request);
    Reply run;
    run.op = Op::run;
    run.cell = draw.cell();
    run.outcome = draw.outcome();
    EXPECT_EQ(reply_from_wire(to_wire(run)), run);
    Reply hello;
    hello.hello = draw.hello();
    EXPECT_EQ(reply_from_wire(to_wire(hello)), hello);
    Reply limits;
    limits.op = Op::limits;
    limits.limits = draw.limits();
    EXPECT_EQ(reply_from_wire(to_wire(limits)), limits);
    const Request measure{.op = Op::measure, .cell = {}, .test = draw.test()};
    EXPECT_EQ(request_from_wire(to_wire(measure)), measure);
    Reply figure;
    figure.op = Op::measure;
    figure.figure = draw.real();
    EXPECT_EQ(reply_from_wire(to_wire(figure)), figure);
    Reply error;
    error.op = Op::run;
    error.error = "a sentence";
    if (seed % 2 == 1) error.hung = true;
    EXPECT_EQ(reply_from_wire(to_wire(error)), error);
    for (const std::string& line : {to_wire(request), to_wire(run), to_wire(hello)}) {
      EXPECT_EQ(line.find('\n'), std::string::npos);
    }
  }
}

TEST(Wire, NoPrefixOfAMessageIsAMessage) {
  Reply reply;
  reply.op = Op::run;
  reply.cell = Draw(1).cell();
  reply.outcome = Draw(1).outcome();
  const std::string whole = to_wire(reply);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(reply_from_wire(std::string_view(whole).substr(0, length)), WireError) << length;
  }
}

TEST(Wire, NumbersThatJsonLacksAreNotSent) {
  Reply reply;
  reply.op = Op::run;
  reply.cell = Cell{};
  reply.outcome = Outcome{};
  reply.outcome->samples_us = {1, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_THROW(to_wire(reply), WireError);
}

// An error that is no number says that the result is beyond any bound; it is not the worker's end.
TEST(Wire, AnErrorThatIsNoNumberArrivesAsInfinity) {
  Reply reply;
  reply.op = Op::run;
  reply.cell = Cell{};
  reply.outcome = Outcome{};
  reply.outcome->max_error = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(reply_from_wire(to_wire(reply)).outcome->max_error, std::numeric_limits<double>::infinity());
}

TEST(Wire, WhatIsNoMessageIsRefused) {
  for (const char* text : {"", "hello", "[]", "{}", "null", R"({"op":"dance"})", R"({"op":1})",
                           R"({"op":"run"})", R"({"op":"hello","cell":{}})", R"({"op":"hello","more":1})",
                           R"({"op":"hello"} {"op":"hello"})", R"({"op":"hello","cell":NaN})"}) {
    EXPECT_THROW(request_from_wire(text), WireError) << text;
  }
  std::string negative = to_wire(Request{.op = Op::run, .cell = Cell{}});
  negative.replace(negative.find("\"ranks\":0"), 9, "\"ranks\":-1");
  EXPECT_THROW(request_from_wire(negative), WireError);
  std::string large = to_wire(Request{.op = Op::run, .cell = Cell{}});
  large.replace(large.find("\"ranks\":0"), 9, "\"ranks\":4294967296");
  EXPECT_THROW(request_from_wire(large), WireError);
  EXPECT_THROW(reply_from_wire(R"({"op":"hello","error":""})"), WireError);
  EXPECT_THROW(to_wire(Request{.op = Op::hello, .cell = Cell{}}), WireError);
  EXPECT_THROW(to_wire(Request{.op = Op::measure, .cell = {}}), WireError);
  EXPECT_THROW(to_wire(Request{.op = Op::run, .cell = Cell{}, .test = LimitTest{}}), WireError);
  EXPECT_THROW(reply_from_wire(R"({"op":"measure","error":""})"), WireError);
  EXPECT_THROW(reply_from_wire(R"({"op":"hello","error":"no","figure":1})"), WireError);
}

}  // namespace
}  // namespace arb
