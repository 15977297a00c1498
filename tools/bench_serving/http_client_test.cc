// Proves what the client does with connections and with answers that break, against a server that is told what to say.
#include "tools/bench_serving/http_client.h"

#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/match.h"
#include "tools/bench_serving/scripted_server.h"

namespace tandem::bench_serving {
namespace {

class HttpClientTest : public testing::Test {
 protected:
  HttpClientTest()
      : server_(io_context_),
        client_(io_context_, clock_, {.host = "127.0.0.1", .port = server_.port(), .path_prefix = "/base"},
                {{"X-Who", "me"}}) {
    EXPECT_TRUE(client_.Resolve().ok());
  }

  struct Seen {
    std::string body;
    int status = 0;
    std::optional<absl::Status> end;
  };
  std::shared_ptr<Seen> Send(const std::string& body, absl::Duration time_max = absl::InfiniteDuration()) {
    auto seen = std::make_shared<Seen>();
    client_.Send({.method = "POST", .path = "/ask", .body = body, .time_max = time_max},
                 {.on_bytes =
                      [seen](int, absl::string_view bytes, absl::Duration) {
                        seen->body.append(bytes.data(), bytes.size());
                        return seen->body == "bad" ? absl::InvalidArgumentError("refused: bad") : absl::OkStatus();
                      },
                  .on_end =
                      [seen](absl::Status end, int status) {
                        EXPECT_FALSE(seen->end.has_value()) << "ended twice";
                        seen->end = std::move(end);
                        seen->status = status;
                      }});
    return seen;
  }
  void AwaitEnd(const std::shared_ptr<Seen>& seen) {
    RunUntil(io_context_, [&] { return seen->end.has_value(); });
  }

  boost::asio::io_context io_context_;
  base::FakeClock clock_;
  ScriptedServer server_;
  HttpClient client_;
};

TEST_F(HttpClientTest, KeepsAConnectionAndUsesItAgain) {
  const auto first = Send("one");
  const auto connection = server_.Accept();
  const std::string request = connection->ReadRequest();
  EXPECT_TRUE(absl::StartsWith(request, "POST /base/ask HTTP/1.1\r\n")) << request;
  EXPECT_TRUE(absl::StrContains(request, "\r\nX-Who: me\r\n")) << request;
  EXPECT_TRUE(absl::EndsWith(request, "\r\n\r\none")) << request;
  connection->Respond(200, "1");
  AwaitEnd(first);
  EXPECT_TRUE(first->end->ok()) << *first->end;
  const auto second = Send("two");
  EXPECT_TRUE(absl::EndsWith(connection->ReadRequest(), "two"));
  connection->Respond(404, "2");
  AwaitEnd(second);
  EXPECT_EQ(second->status, 404);
  EXPECT_EQ(second->body, "2");
  EXPECT_EQ(client_.num_connections_opened(), 1);
}

TEST_F(HttpClientTest, AStaleConnectionIsReplacedOnce) {
  const auto first = Send("one");
  auto connection = server_.Accept();
  connection->ReadRequest();
  connection->Respond(200, "1");
  AwaitEnd(first);
  connection->Close();
  const auto second = Send("two");
  connection = server_.Accept();
  EXPECT_TRUE(absl::EndsWith(connection->ReadRequest(), "two"));
  connection->Close();
  AwaitEnd(second);
  EXPECT_TRUE(absl::StartsWith(second->end->message(), "read failed: 127.0.0.1:")) << *second->end;
  EXPECT_EQ(client_.num_connections_opened(), 2) << "a new connection that breaks is a failure";
}

TEST_F(HttpClientTest, AnAnswerThatBreaksIsNotAskedForAgain) {
  const auto seen = Send("one");
  const auto connection = server_.Accept();
  connection->ReadRequest();
  connection->StartStream();
  connection->WriteChunk("abc");
  RunUntil(io_context_, [&] { return seen->body == "abc"; });
  connection->Close();
  AwaitEnd(seen);
  EXPECT_TRUE(absl::StartsWith(seen->end->message(), "read failed: ")) << *seen->end;
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(client_.num_connections_opened(), 1);
}

TEST_F(HttpClientTest, AnAnswerWithoutLengthEndsWithItsConnection) {
  const auto seen = Send("one");
  const auto connection = server_.Accept();
  connection->ReadRequest();
  connection->Write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it");
  connection->Close();
  AwaitEnd(seen);
  EXPECT_TRUE(seen->end->ok()) << *seen->end;
  EXPECT_EQ(seen->body, "all of it");
}

TEST_F(HttpClientTest, WhoeverReadsMayGiveUp) {
  const auto seen = Send("one");
  const auto connection = server_.Accept();
  connection->ReadRequest();
  connection->StartStream();
  connection->WriteChunk("bad");
  AwaitEnd(seen);
  EXPECT_EQ(seen->end->message(), "refused: bad");
}

TEST_F(HttpClientTest, SilenceEndsAtTheTimeout) {
  const auto seen = Send("one", absl::Milliseconds(1));
  const auto connection = server_.Accept();
  AwaitEnd(seen);
  EXPECT_EQ(seen->end->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(absl::StartsWith(seen->end->message(), "timeout: ")) << *seen->end;
}

TEST_F(HttpClientTest, CancelEndsWhatIsUnderWayAndWhatHasNotBegun) {
  const auto under_way = Send("one");
  const auto connection = server_.Accept();
  connection->ReadRequest();
  const auto not_begun = Send("two");
  client_.CancelAll();
  EXPECT_EQ(under_way->end->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(not_begun->end->code(), absl::StatusCode::kCancelled);
  io_context_.restart();
  io_context_.poll();
  EXPECT_EQ(client_.num_connections_opened(), 1);
}

TEST_F(HttpClientTest, NobodyThereIsOneStatus) {
  int port = 0;
  {
    ScriptedServer gone(io_context_);
    port = gone.port();
  }
  HttpClient client(io_context_, clock_, {.host = "127.0.0.1", .port = port}, {});
  ASSERT_TRUE(client.Resolve().ok());
  const auto response = client.Fetch({.method = "GET", .path = "/"});
  EXPECT_TRUE(absl::StartsWith(response.status().message(), "connect failed: 127.0.0.1:")) << response.status();
}

TEST(ParseBaseUrlTest, ReadsWhatOperatorsWrite) {
  const auto plain = ParseBaseUrl("http://10.0.0.1:30000");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->host, "10.0.0.1");
  EXPECT_EQ(plain->port, 30000);
  EXPECT_EQ(plain->path_prefix, "");
  const auto with_path = ParseBaseUrl("http://router.default.svc/tandem/");
  ASSERT_TRUE(with_path.ok()) << with_path.status();
  EXPECT_EQ(with_path->port, 80);
  EXPECT_EQ(with_path->path_prefix, "/tandem");
  const auto six = ParseBaseUrl("http://[::1]:8000");
  ASSERT_TRUE(six.ok()) << six.status();
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->port, 8000);
  for (const char* url : {"", "10.0.0.1:8000", "https://x", "http://", "http://x:0", "http://x:port"}) {
    EXPECT_FALSE(ParseBaseUrl(url).ok()) << url;
  }
}

}  // namespace
}  // namespace tandem::bench_serving
