#include "http/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509err.h>

#include <utility>

#include "base/log.h"

namespace graft {
namespace {

namespace ssl = boost::asio::ssl;

void warn_if_expired(const ssl::context& context, const std::string& file) {
  const X509* certificate =
      SSL_CTX_get0_certificate(const_cast<ssl::context&>(context).native_handle());
  if (certificate != nullptr && X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    log_warning("the TLS certificate in '" + file + "' has expired");
  }
}

bool is_mismatch(const boost::system::error_code& error) {
  return ERR_GET_REASON(static_cast<unsigned long>(error.value())) == X509_R_KEY_VALUES_MISMATCH;
}

}  // namespace

Result<std::unique_ptr<ssl::context>> make_tls_context(const std::string& certificate_file,
                                                       const std::string& key_file) {
  auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);  // idle connections cost less
  boost::system::error_code error;
  // Without this, OpenSSL would ask for the passphrase of an encrypted key on the terminal.
  context->set_password_callback(
      [](std::size_t, ssl::context::password_purpose) { return std::string(); }, error);
  if (error) return internal_error("TLS: " + error.message());
  context->use_certificate_chain_file(certificate_file, error);
  if (error) {
    return invalid_argument("no TLS certificate can be read from '" + certificate_file +
                            "': " + error.message());
  }
  context->use_private_key_file(key_file, ssl::context::pem, error);
  if (error && is_mismatch(error)) {
    return invalid_argument("the TLS key in '" + key_file + "' does not belong to the certificate" +
                            " in '" + certificate_file + "'");
  }
  if (error) {
    return invalid_argument("no TLS key can be read from '" + key_file + "': " + error.message());
  }
  warn_if_expired(*context, certificate_file);
  return context;
}

}  // namespace graft
