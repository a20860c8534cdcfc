// One rank's schedule as a graph: a chain of nodes on one device, perhaps with copies beside it, never an edge between
// devices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "library.h"
#include "stream.h"

struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphNodeParams_st;
struct CUgraphExec_st;

namespace arb::cuda {

// How a node follows the one before it: plain waits for its end; programmatic lets it start early, and a
// kernel that reads what came before must then wait for it itself.
enum class Edge : std::uint8_t { plain, programmatic };

// A graph that can be launched. Valid while the kernels in it are loaded.
class ExecutableGraph {
 public:
  ExecutableGraph(const Context& context, CUgraph_st* graph);
  ~ExecutableGraph();
  ExecutableGraph(ExecutableGraph&& other) noexcept;
  ExecutableGraph& operator=(ExecutableGraph&&) = delete;
  ExecutableGraph(const ExecutableGraph&) = delete;
  ExecutableGraph& operator=(const ExecutableGraph&) = delete;

  // Moves it to the device ahead of its first launch.
  void upload(const Stream& stream) const;
  void launch(const Stream& stream) const;

 private:
  CUgraphExec_st* executable_ = nullptr;
};

// A chain under construction.
class GraphBuilder {
 public:
  explicit GraphBuilder(const Context& context);
  ~GraphBuilder();
  GraphBuilder(GraphBuilder&& other) noexcept;
  GraphBuilder& operator=(GraphBuilder&&) = delete;
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  // Appends a launch; `parameters` is copied before the call returns. `edge` is the one to the node before.
  template <class Parameters>
  void add_kernel(const Kernel& kernel, GridShape shape, const Parameters& parameters,
                  Edge edge = Edge::plain) {
    add_kernel_bytes(kernel, shape, &parameters, edge);
  }
  // Appends an engine copy between device buffers of any contexts that can address each other. Copies that are added
  // beside the chain follow its last node and one another; the next launch does not follow them, and what comes then
  // follows both.
  void add_copy(std::byte* to, const std::byte* from, std::uint64_t bytes, bool beside = false);
  [[nodiscard]] ExecutableGraph instantiate() const;

  // Everything launched on `stream` from begin_capture to end_capture becomes a graph instead (for libraries
  // that launch kernels of their own).
  static void begin_capture(const Stream& stream);
  static GraphBuilder end_capture(const Stream& stream);

 private:
  GraphBuilder(const Context& context, CUgraph_st* graph);
  void add_kernel_bytes(const Kernel& kernel, GridShape shape, const void* parameters, Edge edge);
  // Adds a node behind the chain's last one.
  void append(CUgraphNodeParams_st& node, Edge edge, const char* doing);

  const Context* context_;
  CUgraph_st* graph_ = nullptr;
  CUgraphNode_st* last_ = nullptr;    // of the chain
  CUgraphNode_st* beside_ = nullptr;  // the last copy beside it, which the next launch does not follow
  CUgraphNode_st* joined_ = nullptr;  // a copy that what comes next follows besides `last_`
};

}  // namespace arb::cuda
