// For tests: a self-signed certificate for localhost and its key, as PEM files that go with the
// object. One thread.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

namespace graft {

class TestCertificate {
 public:
  // `valid_s` negative: expired.
  explicit TestCertificate(long valid_s = 3600) {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"),
                                                                  EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
    X509_set_version(certificate.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -7200);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), valid_s);
    X509_NAME* name = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(certificate.get(), name);
    X509_set_pubkey(certificate.get(), key.get());
    X509_sign(certificate.get(), key.get(), EVP_sha256());
    write(certificate_file_, [&](FILE* file) { return PEM_write_X509(file, certificate.get()); });
    write(key_file_, [&](FILE* file) {
      return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
  }
  ~TestCertificate() {
    ::unlink(certificate_file_.c_str());
    ::unlink(key_file_.c_str());
  }
  TestCertificate(const TestCertificate&) = delete;
  TestCertificate& operator=(const TestCertificate&) = delete;

  const std::string& certificate_file() const { return certificate_file_; }
  const std::string& key_file() const { return key_file_; }

 private:
  template <typename Write>
  static void write(std::string& path, Write write) {
    path = "/tmp/graft-pem-XXXXXX";
    FILE* file = ::fdopen(::mkstemp(path.data()), "w");
    if (file == nullptr || write(file) != 1) std::abort();
    std::fclose(file);
  }

  std::string certificate_file_;
  std::string key_file_;
};

}  // namespace graft
