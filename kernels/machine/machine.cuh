// The machine that kernels are written for. A kernel includes this file and arb/abi.h, nothing else.
//
// Two machines implement <machine/{execution,memory,wait,types,range,sentinel}.cuh>: PTX, beside this file,
// and the emulated one in src/emulator/machine. The include path picks; mailboxes.cuh, exchange.cuh,
// protocol.cuh and variants.cuh are the same for both.
#pragma once

#include <arb/abi.h>

#include <machine/execution.cuh>
#include <machine/memory.cuh>
#include <machine/protocol.cuh>
#include <machine/range.cuh>
#include <machine/types.cuh>
#include <machine/variants.cuh>
#include <machine/wait.cuh>
