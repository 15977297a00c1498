#include "tools/bench_serving/scripted_server.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/read_until.hpp"
#include "boost/asio/write.hpp"

namespace tandem::bench_serving {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

}  // namespace

void RunUntil(asio::io_context& io_context, const std::function<bool()>& condition) {
  io_context.restart();
  while (!condition()) TANDEM_CHECK(io_context.run_one() > 0, "nothing is under way that could make it true");
}

ScriptedServer::ScriptedServer(asio::io_context& io_context)
    : io_context_(io_context), acceptor_(io_context, {asio::ip::make_address("127.0.0.1"), 0}) {}

std::unique_ptr<ScriptedServer::Connection> ScriptedServer::Accept() {
  std::unique_ptr<Connection> connection;
  acceptor_.async_accept([&](error_code error, asio::ip::tcp::socket socket) {
    TANDEM_CHECK(!error, "accept failed");
    connection = std::make_unique<Connection>(io_context_, std::move(socket));
  });
  RunUntil(io_context_, [&] { return connection != nullptr; });
  return connection;
}

std::string ScriptedServer::Connection::ReadRequest() {
  const auto whole_bytes = [this]() -> size_t {
    const size_t head_end = received_.find("\r\n\r\n");
    if (head_end == std::string::npos) return std::string::npos;
    const size_t length_at = received_.find("Content-Length: ");
    const size_t body_bytes = length_at < head_end ? std::strtoul(received_.c_str() + length_at + 16, nullptr, 10) : 0;
    return head_end + 4 + body_bytes;
  };
  while (received_.size() < whole_bytes()) {
    char bytes[1024];
    bool is_read = false;
    socket_.async_read_some(asio::buffer(bytes), [&](error_code error, size_t size) {
      TANDEM_CHECK(!error, "the client closed");
      received_.append(bytes, size);
      is_read = true;
    });
    RunUntil(io_context_, [&] { return is_read; });
  }
  const size_t size = whole_bytes();
  std::string request = received_.substr(0, size);
  received_.erase(0, size);
  return request;
}

void ScriptedServer::Connection::Write(absl::string_view bytes) {
  error_code error;
  asio::write(socket_, asio::buffer(bytes.data(), bytes.size()), error);
  TANDEM_CHECK(!error, "the client closed");
}

void ScriptedServer::Connection::StartStream(int status) {
  Write(
      absl::StrCat("HTTP/1.1 ", status, " X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"));
}

void ScriptedServer::Connection::WriteChunk(absl::string_view bytes) {
  Write(absl::StrCat(absl::StrFormat("%x\r\n", bytes.size()), bytes, "\r\n"));
}

void ScriptedServer::Connection::WriteEvent(absl::string_view data) {
  WriteChunk(absl::StrCat("data: ", data, "\n\n"));
}

void ScriptedServer::Connection::EndStream() { Write("0\r\n\r\n"); }

void ScriptedServer::Connection::Respond(int status, absl::string_view body) {
  Write(absl::StrCat("HTTP/1.1 ", status, " X\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
}

void ScriptedServer::Connection::Close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace tandem::bench_serving
