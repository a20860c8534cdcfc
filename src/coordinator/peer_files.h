// Peer libraries that a run takes: the Python that has each, and our files for it. Nothing is started here.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "errors.h"

namespace arb {

// How to start the worker's program of a peer.
struct PeerProgram {
  std::filesystem::path
      python;  // to be executed, with its own path as its name, by which a Python finds its packages
  std::filesystem::path script;   // peers/torch_symm_mem.py beside the program
  std::filesystem::path library;  // lib/libarb_worker.so beside the program
};

// Names of all peers in the catalog, in its order.
std::vector<std::string> known_peers();
// The programs of those that the user named ("torch", "torch=/path/to/python"; without a path: python3 of $PATH), by
// name. `folder` is where arbench lies. Throws UsageError on a name or a Python that is not there, EnvironmentError
// where our own files are not.
std::map<std::string, PeerProgram> peer_programs(const std::vector<std::string>& named,
                                                 const std::filesystem::path& folder);

}  // namespace arb
