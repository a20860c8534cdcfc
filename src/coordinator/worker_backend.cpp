#include "worker_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "catalog.h"
#include "measure.h"
#include "plan.h"
#include "worker_group.h"

namespace arb {
namespace {

using std::chrono::milliseconds;

// Contexts on 8 GPUs, every kernel loaded into each, NCCL's communicators: tens of seconds on a slow host.
constexpr milliseconds greeting_allowance{90'000};
// A peer also imports its library and loads all its device code, for all ranks at once.
constexpr milliseconds peer_allowance{150'000};
constexpr milliseconds limits_allowance{60'000};
constexpr milliseconds quit_patience{5'000};

// What makes a peer's program a worker with this configuration.
std::vector<std::string> peer_arguments(const PeerProgram& program, const WorkerConfig& config) {
  return {program.script.string(), "--config", to_wire(config), "--library", program.library.string()};
}

// What was to be measured could not be; a hang is told apart, because it says something of the machine.
[[noreturn]] void refuse(const Reply& reply, const std::string& what) {
  const std::string sentence = fmt::format("{} cannot be measured: {}", what, reply.error);
  if (reply.hung) throw WorkerLost(WorkerLost::Cause::deadline, sentence);
  throw EnvironmentError(sentence);
}

}  // namespace

struct WorkerBackend::Member {
  std::string who;
  std::string nccl_name;  // empty: the kernels' worker
  std::string peer;       // the peer library; empty: none
  std::string problem;    // why its worker cannot be had, so that it is not tried again
  std::string contender;  // whose configuration NCCL has; empty: as it is, and for kernels
  WorkerConfig config;
  std::map<std::string, std::string> variables;
  std::string log;  // name of its log without the extension
  std::unique_ptr<WorkerGroup> group;
  Hello hello;
};

bool WorkerBackend::is_plain_nccl(const Member& member) {
  return !member.nccl_name.empty() && member.contender.empty();
}

WorkerBackend::Member WorkerBackend::make_member(std::string who, const std::string& log, World world) const {
  Member made;
  made.who = std::move(who);
  made.log = log;
  made.variables = setup_.variables;
  made.config.devices = setup_.devices;
  if (!setup_.support_folder.empty()) made.config.bundle_folders = {setup_.support_folder};
  made.config.deadline_ms = static_cast<std::uint64_t>(setup_.deadline.count());
  made.config.world = world;
  return made;
}

WorkerBackend::WorkerBackend(WorkerSetup setup) : setup_(std::move(setup)) {
  auto kernels = std::make_unique<Member>(make_member("the kernels' worker", "worker-kernels", setup_.world));
  kernels->config.bundle_folders.insert(kernels->config.bundle_folders.end(), setup_.bundle_folders.begin(),
                                        setup_.bundle_folders.end());
  spawn(*kernels);
  std::vector<std::unique_ptr<Member>> nccls;
  for (const std::string& library : setup_.nccl_libraries) {
    nccls.push_back(
        std::make_unique<Member>(make_member(fmt::format("the worker of NCCL {}", library),
                                             fmt::format("worker-nccl-{}", nccls.size() + 1), setup_.world)));
    nccls.back()->config.nccl_library = library;
    // Of alternatives one is enough, and most often the first.
    if (!setup_.nccl_alternatives || nccls.size() == 1) spawn(*nccls.back());
  }
  greet(*kernels);
  members_.push_back(std::move(kernels));

  for (std::unique_ptr<Member>& nccl : nccls) {
    const std::string library = nccl->config.nccl_library;
    if (nccl->group == nullptr) spawn(*nccl);
    greet(*nccl);
    if (!nccl->hello.nccl_problem.empty()) {
      if (!setup_.nccl_alternatives) {
        throw EnvironmentError(fmt::format("--nccl {}: {}", library, nccl->hello.nccl_problem));
      }
      remarks_.push_back(fmt::format("NCCL {} is not used: {}", library, nccl->hello.nccl_problem));
      continue;
    }
    const auto taken = [&](const std::string& name) {
      return std::ranges::any_of(members_, [&](const auto& other) { return other->nccl_name == name; });
    };
    nccl->nccl_name = nccl->hello.nccl_version;
    for (int number = 2; taken(nccl->nccl_name); ++number) {
      nccl->nccl_name = fmt::format("{}#{}", nccl->hello.nccl_version, number);
    }
    members_.push_back(std::move(nccl));
    if (setup_.nccl_alternatives) break;
  }
}

WorkerBackend::~WorkerBackend() = default;

void WorkerBackend::spawn(Member& member) const {
  std::vector<WorkerLaunch> launches;
  const bool processes = member.config.world == World::processes;
  for (std::uint32_t rank = 0; rank < (processes ? member.config.devices.size() : 1); ++rank) {
    WorkerConfig config = member.config;
    config.rank = rank;
    const auto peer = setup_.peers.find(member.peer);
    const std::string of_rank = processes ? fmt::format("-rank{}", rank) : "";
    launches.push_back(
        {.who = processes ? fmt::format("{} (rank {})", member.who, rank) : member.who,
         .program = peer == setup_.peers.end() ? setup_.program : peer->second.python,
         .arguments =
             peer == setup_.peers.end() ? worker_arguments(config) : peer_arguments(peer->second, config),
         .variables = member.variables,
         .log_file = setup_.log_folder.empty() ? "" : setup_.log_folder / (member.log + of_rank + ".log"),
         .interrupt = setup_.interrupt});
  }
  member.group = std::make_unique<WorkerGroup>(std::move(launches));
}

void WorkerBackend::greet(Member& member) const {
  Reply reply = member.group->request(
      {.op = Op::hello, .cell = {}},
      (member.peer.empty() ? greeting_allowance : peer_allowance) + setup_.deadline, "starting on its GPUs");
  if (!reply.error.empty())
    throw EnvironmentError(fmt::format("{} cannot start: {}", member.who, reply.error));
  member.hello = std::move(*reply.hello);
  for (const BundleInfo& bundle : member.hello.bundles) {
    if (!bundle.problem.empty()) {
      throw EnvironmentError(fmt::format("bundle {} does not load: {}", bundle.folder, bundle.problem));
    }
  }
}

void WorkerBackend::start(Member& member) const {
  spawn(member);
  greet(member);
}

void WorkerBackend::get_ready(std::span<const Cell> cells) {
  std::vector<Member*> spawned;
  for (const Cell& cell : cells) {
    const CatalogRow* const row = find_contender(cell.contender);
    if (row == nullptr || row->source == Source::peer)
      continue;  // a peer is tried once, with its own allowance
    if (needs_windows(*row) && !plain_nccl(cell.nccl).hello.nccl_window_problem.empty()) continue;
    Member& member = member_of(cell);
    if (member.group != nullptr) continue;
    spawn(member);
    spawned.push_back(&member);
  }
  for (Member* const member : spawned) {
    try {
      greet(*member);
    } catch (const EnvironmentError&) {
      member->group.reset();
    } catch (const WorkerLost&) {
      member->group.reset();
    }
  }
}

Reply WorkerBackend::ask(Member& member, const Request& request, milliseconds deadline,
                         const std::string& doing) const {
  if (member.group == nullptr || !member.group->alive()) start(member);
  return member.group->request(request, deadline, doing);
}

WorkerBackend::Member& WorkerBackend::plain_nccl(const std::string& nccl_name) {
  for (const auto& member : members_) {
    if (is_plain_nccl(*member) && member->nccl_name == nccl_name) return *member;
  }
  throw EnvironmentError(fmt::format("no worker has NCCL {}", nccl_name));
}

WorkerBackend::Member& WorkerBackend::member_of(const Cell& cell) {
  const CatalogRow* const row = find_contender(cell.contender);
  const bool configured =
      row != nullptr && row->source == Source::nccl && (!row->nccl_variables.empty() || needs_windows(*row));
  const std::string configuration = configured ? cell.contender : "";
  for (const auto& member : members_) {
    if (member->nccl_name == cell.nccl && member->contender == configuration) return *member;
  }
  const Member& plain = plain_nccl(cell.nccl);
  auto made =
      std::make_unique<Member>(make_member(fmt::format("{} as {}", plain.who, cell.contender),
                                           fmt::format("{}-{}", plain.log, cell.contender), setup_.world));
  made->nccl_name = plain.nccl_name;
  made->contender = configuration;
  made->config.nccl_library = plain.config.nccl_library;
  for (const NcclVariable& variable : row->nccl_variables) {
    const std::string name(variable.name);
    // The user's own value wins; the worker sees it, and its rows say so.
    if (std::getenv(name.c_str()) == nullptr) made->variables.try_emplace(name, variable.value);
  }
  members_.push_back(std::move(made));
  return *members_.back();
}

WorkerBackend::Member& WorkerBackend::peer_member(const CatalogRow& row) {
  for (const auto& member : members_) {
    if (member->peer == row.peer) return *member;
  }
  auto made = std::make_unique<Member>(make_member(fmt::format("the worker of {}", row.peer),
                                                   fmt::format("worker-{}", row.peer), setup_.world));
  made->peer = row.peer;
  made->config.peer = row.peer;
  if (!setup_.peers.contains(made->peer)) made->problem = fmt::format("no --peer names {}", row.peer);
  if (setup_.world != World::processes) made->problem = peer_needs_processes;
  members_.push_back(std::move(made));
  return *members_.back();
}

std::string WorkerBackend::start_peer(Member& member) const {
  if (!member.problem.empty()) return member.problem;
  if (member.group != nullptr && member.group->alive()) return "";
  try {
    start(member);
    member.problem = member.hello.peer_problem;
  } catch (const EnvironmentError& error) {
    member.problem = error.what();
  } catch (const WorkerLost& error) {
    // Its Python or its library is not what it should be; nothing was measured yet.
    member.problem = error.what();
  }
  if (!member.problem.empty() && member.group != nullptr) member.group->quit(quit_patience);
  return member.problem;
}

Outcome WorkerBackend::run(const Cell& cell) {
  const CatalogRow* const row = find_contender(cell.contender);
  const bool is_peer = row != nullptr && row->source == Source::peer;
  Outcome refused;
  if (row != nullptr && needs_windows(*row))
    refused.failure = plain_nccl(cell.nccl).hello.nccl_window_problem;
  if (is_peer) {
    // Before a worker is asked: after a failure it would be started again.
    refused.failure = refusal_of(*row, {cell.dtype, cell.ranks, cell.bytes, cell.place});
    if (refused.failure.empty()) refused.failure = start_peer(peer_member(*row));
  }
  if (!refused.failure.empty()) return refused;
  const auto expected =
      std::chrono::ceil<milliseconds>(std::chrono::duration<double, std::micro>(expected_us(cell)));
  // A hang on a device ends with the worker's own deadline and a sentence that says who waits for whom; this
  // one is for workers that cannot say it.
  const milliseconds deadline = 2 * setup_.deadline + 2 * expected + setup_.cell_allowance;
  Member& member = is_peer ? peer_member(*row) : member_of(cell);
  Cell sent = cell;
  sent.alias.clear();  // a name for rows; a worker of an older build does not know it
  Reply reply;
  try {
    reply = ask(member, {.op = Op::run, .cell = sent}, deadline, "running " + cell_name(cell));
  } catch (const EnvironmentError& error) {
    // A worker that cannot be started (again) costs its own cells only.
    reply.error = error.what();
  }
  Outcome outcome;
  if (reply.error.empty()) {
    outcome = std::move(*reply.outcome);
  } else {
    outcome.failure = reply.error;
  }
  // Some errors of a device stick to its context and would be blamed on the next cell; and processes of which
  // one gave up are out of step.
  const bool out_of_step = setup_.world == World::processes && !outcome.wrong.empty();
  if (!outcome.failure.empty() || out_of_step) member.group->quit(quit_patience);
  return outcome;
}

std::optional<MachineLimits> WorkerBackend::limits() {
  if (limits_) return limits_;
  const auto measure = [&](Member& member) {
    return ask(member, {.op = Op::limits, .cell = {}}, limits_allowance + setup_.deadline,
               "measuring the machine's limits");
  };
  Reply reply;
  if (setup_.world == World::threads) {
    reply = measure(*members_.front());
  } else {
    Member one = make_member("the worker that measures limits", "worker-limits", World::threads);
    reply = measure(one);
    one.group->quit(quit_patience);
  }
  if (!reply.error.empty()) {
    // What sticks to its context would be blamed on what is measured next.
    if (setup_.world == World::threads) members_.front()->group->quit(quit_patience);
    refuse(reply, "the machine's limits");
  }
  limits_ = std::move(*reply.limits);
  return limits_;
}

double WorkerBackend::measure(const LimitTest& test) {
  Member& member = *members_.front();
  Reply reply = ask(member, {.op = Op::measure, .cell = {}, .test = test},
                    2 * setup_.deadline + setup_.cell_allowance, "measuring " + text_of(test));
  if (!reply.error.empty()) {
    member.group->quit(quit_patience);
    refuse(reply, text_of(test));
  }
  return *reply.figure;
}

const Hello& WorkerBackend::hello() const {
  return members_.front()->hello;
}

std::vector<std::string> WorkerBackend::nccl_names() const {
  std::vector<std::string> names;
  for (const auto& member : members_) {
    if (is_plain_nccl(*member)) names.push_back(member->nccl_name);
  }
  return names;
}

std::vector<std::string> WorkerBackend::nccl_paths() const {
  std::vector<std::string> paths;
  for (const auto& member : members_) {
    if (is_plain_nccl(*member)) paths.push_back(member->hello.nccl_path);
  }
  return paths;
}

std::vector<std::string> WorkerBackend::nccl_window_problems() const {
  std::vector<std::string> problems;
  for (const auto& member : members_) {
    if (is_plain_nccl(*member)) problems.push_back(member->hello.nccl_window_problem);
  }
  return problems;
}

void WorkerBackend::quit() {
  for (const auto& member : members_) {
    if (member->group != nullptr) member->group->quit(quit_patience);
  }
}

}  // namespace arb
