#!/bin/bash
# interface_hash.sh SOURCES FOLDER: writes FOLDER/cc/core/interface_hash.h, a C++ header with a hash of the text of all
# headers in SOURCES that the engines' interfaces may include (cc/core/engine_version.h).
set -euo pipefail
shopt -s extglob
export LC_ALL=C # the order of the files
mkdir -p "$2/cc/core"
header=$(realpath "$2")/cc/core/interface_hash.h
cd "$1"
hash=$(sha256sum cc/core/!(interface_hash).h cc/kernels/{cpu,cuda}/engine.h | sha256sum | cut -c 1-16)
cat >"${header}" <<END
// Written by tools/interface_hash.sh.
#include <cstdint>
namespace blockrnn {
inline constexpr std::uint64_t kInterfaceHash = 0x${hash};
}
END
