#include "base/admin_http.h"

#include <chrono>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"

namespace tandem::base {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr std::chrono::seconds kIdleTimeout(30);
constexpr uint64_t kBodyBytesMax = 4096;
constexpr size_t kConnectionsMax = 64;  // one more replaces the one that has said nothing for longest

class Connection;

// Touched on the server's thread alone.
struct Crowd {
  size_t num_connections = 0;
  std::list<Connection*> readers;  // whose request is not whole yet, in the order in which they began to wait for it
};

// One client's connection: read, answer, read again. Owned by its own pending operation.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::ip::tcp::socket socket, const AdminHandlers& handlers, Crowd& crowd)
      : stream_(std::move(socket)), handlers_(handlers), crowd_(crowd) {
    ++crowd_.num_connections;
  }
  ~Connection() { --crowd_.num_connections; }

  void Read() {
    parser_.emplace();
    parser_->body_limit(kBodyBytesMax);
    stream_.expires_after(kIdleTimeout);
    const auto reader = crowd_.readers.insert(crowd_.readers.end(), this);
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this(), reader](beast::error_code error, size_t) {
      self->crowd_.readers.erase(reader);
      if (!error) self->Answer();
    });
  }
  // Its read ends with an error.
  void Close() { stream_.close(); }

 private:
  void Answer() {
    const auto& request = parser_->get();
    const std::string target(request.target().substr(0, request.target().find('?')));
    AdminReply reply;
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      reply = {405, "only GET is served here\n"};
    } else if (const auto handler = handlers_.find(target); handler != handlers_.end()) {
      reply = handler->second();
    } else {
      reply = {404, absl::StrCat("no such page: ", target, "\n")};
    }
    response_.emplace();
    response_->result(static_cast<unsigned>(reply.status));
    response_->version(request.version());
    response_->set(http::field::content_type, reply.content_type);
    response_->keep_alive(request.keep_alive());
    response_->content_length(reply.body.size());
    if (request.method() == http::verb::get) response_->body() = std::move(reply.body);
    stream_.expires_after(kIdleTimeout);
    http::async_write(stream_, *response_, [self = shared_from_this()](beast::error_code error, size_t) {
      if (error) return;
      if (self->response_->keep_alive()) {
        self->Read();
      } else {
        self->stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
      }
    });
  }

  beast::tcp_stream stream_;
  const AdminHandlers& handlers_;
  Crowd& crowd_;
  beast::flat_buffer buffer_{16384};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
};

}  // namespace

class AdminHttpServer::Server final {
 public:
  explicit Server(AdminHandlers handlers) : handlers_(std::move(handlers)), acceptor_(context_) {}
  ~Server() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen(const std::string& host, int port) {
    beast::error_code error;
    const auto address = asio::ip::make_address(host, error);
    if (error) return absl::InvalidArgumentError(absl::StrCat("admin address ", host, " is not an IP address"));
    const asio::ip::tcp::endpoint endpoint(address, static_cast<unsigned short>(port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on admin address ", host, ":", port, ": ", error.message()));
    }
    port_ = acceptor_.local_endpoint().port();
    Accept();
    thread_ = std::thread([this] { context_.run(); });
    return absl::OkStatus();
  }

  int port() const { return port_; }

 private:
  void Accept() {
    acceptor_.async_accept([this](beast::error_code error, asio::ip::tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error) {
        // A crowd that says nothing must not keep out who asks whether we live: its oldest member goes.
        if (crowd_.num_connections >= kConnectionsMax && !crowd_.readers.empty()) crowd_.readers.front()->Close();
        std::make_shared<Connection>(std::move(socket), handlers_, crowd_)->Read();
      }
      Accept();
    });
  }

  const AdminHandlers handlers_;
  Crowd crowd_;  // outlives the connections in context_
  asio::io_context context_{1};
  asio::ip::tcp::acceptor acceptor_;
  int port_ = 0;
  std::thread thread_;
};

AdminHttpServer::AdminHttpServer(std::unique_ptr<Server> server) : server_(std::move(server)) {}
AdminHttpServer::~AdminHttpServer() = default;
int AdminHttpServer::port() const { return server_->port(); }

absl::StatusOr<std::unique_ptr<AdminHttpServer>> AdminHttpServer::Start(const std::string& host, int port,
                                                                        AdminHandlers handlers) {
  auto server = std::make_unique<Server>(std::move(handlers));
  if (absl::Status status = server->Listen(host, port); !status.ok()) return status;
  return std::unique_ptr<AdminHttpServer>(new AdminHttpServer(std::move(server)));
}

}  // namespace tandem::base
