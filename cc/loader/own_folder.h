// Declares where the library lies that this code is linked into; the engines
// lie beside it.

#ifndef BLOCKRNN_LOADER_OWN_FOLDER_H_
#define BLOCKRNN_LOADER_OWN_FOLDER_H_

#include <string>

namespace blockrnn {

std::string OwnFolder();

}  // namespace blockrnn

#endif  // BLOCKRNN_LOADER_OWN_FOLDER_H_
