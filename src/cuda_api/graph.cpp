#include "graph.h"

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
    : context_(other.context_), graph_(std::exchange(other.graph_, nullptr)), last_(other.last_) {}

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
  CUgraphEdgeData kind{};
  if (edge == Edge::programmatic) {
    kind.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    kind.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  }
  CUgraphNode added = nullptr;
  check(driver().cuGraphAddNode_v2(&added, graph_, &last_, &kind, last_ == nullptr ? 0 : 1, &node),
        "add a kernel to a graph");
  last_ = added;
}

void GraphBuilder::add_copy(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  CUgraphNodeParams node{};
  node.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  node.memcpy.copyCtx = context_->handle();
  CUDA_MEMCPY3D& copy = node.memcpy.copyParams;
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(from);
  copy.dstDevice = reinterpret_cast<CUdeviceptr>(to);
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  CUgraphNode added = nullptr;
  check(driver().cuGraphAddNode_v2(&added, graph_, &last_, nullptr, last_ == nullptr ? 0 : 1, &node),
        "add a copy to a graph");
  last_ = added;
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
