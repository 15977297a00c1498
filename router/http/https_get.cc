#include "router/http/https_get.h"

#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/ip/address.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/ssl/host_name_verification.hpp"
#include "boost/asio/this_coro.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http/buffer_body.hpp"
#include "boost/beast/http/empty_body.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/read.hpp"
#include "boost/beast/http/write.hpp"
#include "boost/beast/ssl/ssl_stream.hpp"

namespace tandem::router {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace ssl = boost::asio::ssl;

namespace {

using asio::ip::tcp;
using boost::system::error_code;
using Stream = beast::ssl_stream<beast::tcp_stream>;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kPieceBytes = 16 << 10;
constexpr uint32_t kHeadBytesMax = 64 << 10;

std::string ServerName(const HttpsRequest& request) {
  const bool is_ipv6 = request.host.find(':') != std::string::npos;
  return absl::StrCat(is_ipv6 ? "[" : "", request.host, is_ipv6 ? "]:" : ":", request.port);
}

// What went wrong in this phase, for whoever reads one line of it.
absl::Status Failure(const HttpsRequest& request, const char* phase, const error_code& error) {
  const std::string words = absl::StrCat("https://", ServerName(request), ": ", phase, ": ", error.message());
  if (error == beast::error::timeout) return absl::DeadlineExceededError(words);
  if (error.category() == http::make_error_code(http::error::bad_version).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message) {
    return absl::InvalidArgumentError(words);
  }
  return absl::UnavailableError(words);
}

absl::Status PrepareTls(const HttpsRequest& request, ssl::context* context) {
  error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1, error);
  if (!error) context->load_verify_file(request.authorities_file, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("authorities' file ", request.authorities_file, " cannot be used: ", error.message()));
  }
  context->set_verify_mode(ssl::verify_peer, error);
  return error ? absl::InternalError(error.message()) : absl::OkStatus();
}

asio::awaitable<absl::Status> Connect(const HttpsRequest& request, Stream& stream) {
  std::vector<tcp::endpoint> endpoints;
  error_code parse_error;
  const asio::ip::address address = asio::ip::make_address(request.host, parse_error);
  if (!parse_error) {
    endpoints.emplace_back(address, static_cast<uint16_t>(request.port));
  } else {
    if (!SSL_set_tlsext_host_name(stream.native_handle(), request.host.c_str())) {
      co_return absl::InvalidArgumentError(absl::StrCat("\"", request.host, "\" is no host name"));
    }
    tcp::resolver resolver(co_await asio::this_coro::executor);
    const std::string port = absl::StrCat(request.port);
    const auto [error, found] = co_await resolver.async_resolve(request.host, port, kAwait);
    if (error) co_return Failure(request, "cannot be resolved", error);
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  }
  const auto [error, endpoint] = co_await beast::get_lowest_layer(stream).async_connect(endpoints, kAwait);
  if (error) co_return Failure(request, "cannot connect", error);
  error_code verify_error;
  stream.set_verify_callback(ssl::host_name_verification(request.host), verify_error);
  if (verify_error) co_return absl::InternalError(verify_error.message());
  const auto [handshake_error] = co_await stream.async_handshake(ssl::stream_base::client, kAwait);
  if (!handshake_error) co_return absl::OkStatus();
  const long verdict = SSL_get_verify_result(stream.native_handle());
  if (verdict == X509_V_OK) co_return Failure(request, "TLS handshake", handshake_error);
  co_return absl::UnauthenticatedError(
      absl::StrCat("https://", ServerName(request), ": certificate refused: ", X509_verify_cert_error_string(verdict)));
}

HttpsHead HeadOf(const http::response_header<>& header) {
  HttpsHead head;
  head.status = static_cast<int>(header.result_int());
  const auto retry_after = header[http::field::retry_after];
  int seconds = 0;  // an HTTP date, which is allowed too, counts as none
  if (absl::SimpleAtoi(absl::string_view(retry_after.data(), retry_after.size()), &seconds) && seconds > 0) {
    head.retry_after = absl::Seconds(seconds);
  }
  return head;
}

}  // namespace

asio::awaitable<absl::Status> HttpsGet(HttpsRequest request, HttpsEvents events) {
  std::optional<ssl::context> context;
  try {
    context.emplace(ssl::context::tls_client);
  } catch (const std::exception& error) {
    co_return absl::InternalError(absl::StrCat("cannot set TLS up: ", error.what()));
  }
  if (absl::Status status = PrepareTls(request, &*context); !status.ok()) co_return status;
  Stream stream(co_await asio::this_coro::executor, *context);
  beast::tcp_stream& connection = beast::get_lowest_layer(stream);
  connection.expires_after(absl::ToChronoNanoseconds(request.answer_time_max));
  if (absl::Status status = co_await Connect(request, stream); !status.ok()) co_return status;

  http::request<http::empty_body> message(http::verb::get, request.target, 11);
  message.set(http::field::host, ServerName(request));
  message.set(http::field::connection, "close");
  for (const auto& [name, value] : request.headers) message.set(name, value);
  const auto [write_error, num_written] = co_await http::async_write(stream, message, kAwait);
  if (write_error) co_return Failure(request, "cannot be asked", write_error);

  http::response_parser<http::buffer_body> parser;
  parser.header_limit(kHeadBytesMax);
  parser.body_limit(boost::none);  // on_body has limits of its own
  beast::flat_buffer buffer;
  const auto [head_error, head_size] = co_await http::async_read_header(stream, buffer, parser, kAwait);
  if (head_error) co_return Failure(request, "gives no answer", head_error);
  events.on_head(HeadOf(parser.get().base()));

  connection.expires_after(absl::ToChronoNanoseconds(request.body_time_max));
  std::array<char, kPieceBytes> piece;
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    const auto [error, size] = co_await http::async_read_some(stream, buffer, parser, kAwait);
    if (error && error != http::error::need_buffer) co_return Failure(request, "the answer breaks off", error);
    const size_t num_read = piece.size() - parser.get().body().size;
    if (num_read == 0) continue;
    if (absl::Status status = events.on_body(absl::string_view(piece.data(), num_read)); !status.ok()) {
      co_return status;
    }
  }
  co_return absl::OkStatus();
}

}  // namespace tandem::router
