#!/bin/bash
# interface_hash.sh HEADER...: writes a C++ header with a hash of their texts (cc/core/engine_version.h).
set -euo pipefail
hash=$(for header; do sha256sum < "$header"; done | sha256sum | cut -c 1-16)
echo "// Written by tools/interface_hash.sh."
echo "#include <cstdint>"
echo "namespace blockrnn {"
echo "inline constexpr std::uint64_t kInterfaceHash = 0x$hash;"
echo "}"
