// The certificate and key of a server that speaks TLS (1.2 or later). For the main thread; the
// context is then shared by all connections.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "base/result.h"

namespace graft {

// Both files are PEM; the certificate's may hold the chain behind it. Errors: kInvalidArgument,
// with the file and what is wrong with it, also when the two do not belong together.
Result<std::unique_ptr<boost::asio::ssl::context>> make_tls_context(
    const std::string& certificate_file, const std::string& key_file);

}  // namespace graft
