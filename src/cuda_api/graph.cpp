#include "graph.h"

#include <array>
#include <utility>

#include "driver.h"

namespace arb::cuda {

ExecutableGraph::ExecutableGraph(const Context& context, CUgraph_st* graph) {
  context.make_current();
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  check(driver().cuGraphInstantiateWithParams(&executable_, graph, &parameters), "instantiate a graph");
}

ExecutableGraph::~ExecutableGraph() {
  if (executable_ != nullptr) driver().cuGraphExecDestroy(executable_);
}

ExecutableGraph::ExecutableGraph(ExecutableGraph&& other) noexcept
    : executable_(std::exchange(other.executable_, nullptr)) {}

void ExecutableGraph::upload(const Stream& stream) const {
  stream.context().make_current();
  check(driver().cuGraphUpload(executable_, stream.handle()), "upload a graph");
}

void ExecutableGraph::launch(const Stream& stream) const {
  stream.context().make_current();
  check(driver().cuGraphLaunch(executable_, stream.handle()), "launch a graph");
}

GraphBuilder::GraphBuilder(const Context& context) : context_(&context) {
  check(driver().cuGraphCreate(&graph_, 0), "make a graph");
}

GraphBuilder::GraphBuilder(const Context& context, CUgraph_st* graph) : context_(&context), graph_(graph) {}

GraphBuilder::~GraphBuilder() {
  if (graph_ != nullptr) driver().cuGraphDestroy(graph_);
}

GraphBuilder::GraphBuilder(GraphBuilder&& other) noexcept
    : context_(other.context_),
      graph_(std::exchange(other.graph_, nullptr)),
      last_(other.last_),
      beside_(other.beside_),
      joined_(other.joined_) {}

void GraphBuilder::add_kernel_bytes(const Kernel& kernel, GridShape shape, const void* parameters,
                                    Edge edge) {
  void* arguments[] = {const_cast<void*>(parameters)};
  CUgraphNodeParams node{};
  node.type = CU_GRAPH_NODE_TYPE_KERNEL;
  node.kernel.gridDimX = shape.blocks;
  node.kernel.gridDimY = node.kernel.gridDimZ = node.kernel.blockDimY = node.kernel.blockDimZ = 1;
  node.kernel.blockDimX = shape.threads;
  node.kernel.kernelParams = arguments;
  node.kernel.kern = kernel.handle();
  node.kernel.ctx = context_->handle();
  append(node, edge, "add a kernel to a graph");
  joined_ = std::exchange(beside_, nullptr);
}

void GraphBuilder::append(CUgraphNodeParams_st& node, Edge edge, const char* doing) {
  std::array<CUgraphNode, 2> before{last_, joined_};
  std::array<CUgraphEdgeData, 2> kinds{};
  if (edge == Edge::programmatic) {
    kinds[0].from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    kinds[0].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  }
  const std::size_t count = last_ == nullptr ? 0 : joined_ == nullptr ? 1 : 2;
  check(driver().cuGraphAddNode_v2(&last_, graph_, before.data(), kinds.data(), count, &node), doing);
  joined_ = nullptr;
}

void GraphBuilder::add_copy(std::byte* to, const std::byte* from, std::uint64_t bytes, bool beside) {
  CUgraphNodeParams node{};
  node.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  node.memcpy.copyCtx = context_->handle();
  CUDA_MEMCPY3D& copy = node.memcpy.copyParams;
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(from);
  copy.dstDevice = reinterpret_cast<CUdeviceptr>(to);
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  if (!beside) {
    append(node, Edge::plain, "add a copy to a graph");
    return;
  }
  // The first of several follows all that is before it.
  std::array<CUgraphNode, 2> before{beside_ != nullptr ? beside_ : last_,
                                    beside_ != nullptr ? nullptr : joined_};
  const std::size_t count = before[0] == nullptr ? 0 : before[1] == nullptr ? 1 : 2;
  check(driver().cuGraphAddNode_v2(&beside_, graph_, before.data(), nullptr, count, &node),
        "add a copy beside a graph's chain");
}

ExecutableGraph GraphBuilder::instantiate() const {
  return {*context_, graph_};
}

void GraphBuilder::begin_capture(const Stream& stream) {
  stream.context().make_current();
  check(driver().cuStreamBeginCapture(stream.handle(), CU_STREAM_CAPTURE_MODE_RELAXED),
        "begin a stream capture");
}

GraphBuilder GraphBuilder::end_capture(const Stream& stream) {
  stream.context().make_current();
  CUgraph graph = nullptr;
  check(driver().cuStreamEndCapture(stream.handle(), &graph), "end a stream capture");
  return {stream.context(), graph};
}

}  // namespace arb::cuda
