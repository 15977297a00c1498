// For tests: a server on the io_context of its client, that says exactly what the test tells it to, when it tells it
// to.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"

namespace tandem::bench_serving {

// Runs the io_context until the condition holds.
void RunUntil(boost::asio::io_context& io_context, const std::function<bool()>& condition);

class ScriptedServer final {
 public:
  explicit ScriptedServer(boost::asio::io_context& io_context);
  int port() const { return acceptor_.local_endpoint().port(); }

  class Connection final {
   public:
    Connection(boost::asio::io_context& io_context, boost::asio::ip::tcp::socket socket)
        : io_context_(io_context), socket_(std::move(socket)) {}
    // Head and body of the next request.
    std::string ReadRequest();
    void Write(absl::string_view bytes);
    void StartStream(int status = 200);
    void WriteChunk(absl::string_view bytes);  // of a stream
    void WriteEvent(absl::string_view data);
    void EndStream();
    void Respond(int status, absl::string_view body);
    void Close();

   private:
    boost::asio::io_context& io_context_;
    boost::asio::ip::tcp::socket socket_;
    std::string received_;
  };
  // The next connection, once there is one.
  std::unique_ptr<Connection> Accept();

 private:
  boost::asio::io_context& io_context_;
  boost::asio::ip::tcp::acceptor acceptor_;
};

}  // namespace tandem::bench_serving
