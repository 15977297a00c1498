// The bytes of answers, against HTTP/1.1 written out by hand.
#include "router/http/answer_buffer.h"

#include <string>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

std::string TakeAll(AnswerBuffer& buffer) {
  std::string wire;
  buffer.Take(&wire);
  return wire;
}

HttpResponse Hello() {
  HttpResponse response;
  response.body = "hello";
  return response;
}

TEST(AnswerBufferTest, FurtherHeadersStandInEveryKindOfAnswer) {
  for (const bool is_stream : {false, true}) {
    AnswerBuffer buffer(AnswerBuffer::Terms{});
    buffer.AddHeader("x-request-id", "a");
    buffer.AddHeader("Vary", "Origin");
    if (is_stream) {
      buffer.StartStream("text/plain");
    } else {
      buffer.Respond({});
    }
    std::string wire;
    buffer.Take(&wire);
    const size_t end = wire.find("\r\n\r\n");
    ASSERT_NE(end, std::string::npos);
    EXPECT_LT(wire.find("\r\nx-request-id: a\r\nVary: Origin\r\n"), end) << wire;
  }
}

TEST(AnswerBufferTest, WholeAnswerHasItsLength) {
  AnswerBuffer buffer({});
  buffer.Respond(Hello());
  EXPECT_EQ(TakeAll(buffer), "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_EQ(TakeAll(buffer), "");
  EXPECT_TRUE(buffer.is_finished());
}

TEST(AnswerBufferTest, SaysWhenTheConnectionCloses) {
  AnswerBuffer buffer({});
  buffer.CloseAfterwards();
  buffer.Respond(Hello());
  EXPECT_NE(TakeAll(buffer).find("Connection: close\r\n"), std::string::npos);
}

TEST(AnswerBufferTest, HeadHasTheLengthButNoBody) {
  AnswerBuffer buffer({.is_head = true});
  buffer.Respond(Hello());
  const std::string wire = TakeAll(buffer);
  EXPECT_NE(wire.find("Content-Length: 5\r\n"), std::string::npos);
  EXPECT_EQ(wire.substr(wire.size() - 4), "\r\n\r\n");
}

TEST(AnswerBufferTest, WritesThatAreReadyTogetherAreOneChunk) {
  AnswerBuffer buffer({});
  buffer.StartStream("text/event-stream");
  EXPECT_NE(TakeAll(buffer).find("Transfer-Encoding: chunked\r\n\r\n"), std::string::npos);
  buffer.Write("data: a\n\n");
  buffer.Write("data: b\n\n");
  EXPECT_EQ(TakeAll(buffer), "12\r\ndata: a\n\ndata: b\n\n\r\n");
  EXPECT_EQ(TakeAll(buffer), "");
  buffer.Write("x");
  buffer.Finish();
  EXPECT_EQ(TakeAll(buffer), "1\r\nx\r\n0\r\n\r\n");
  EXPECT_EQ(TakeAll(buffer), "");
}

TEST(AnswerBufferTest, StreamMayEndWithoutFurtherBytes) {
  AnswerBuffer buffer({});
  buffer.StartStream("text/event-stream");
  TakeAll(buffer);
  buffer.Finish();
  EXPECT_EQ(TakeAll(buffer), "0\r\n\r\n");
}

TEST(AnswerBufferTest, OldClientsGetAStreamThatEndsWithTheConnection) {
  AnswerBuffer buffer({.is_http_1_0 = true});
  buffer.StartStream("text/event-stream");
  buffer.Write("abc");
  buffer.Finish();
  const std::string wire = TakeAll(buffer);
  EXPECT_EQ(wire.find("chunked"), std::string::npos);
  EXPECT_NE(wire.find("Connection: close\r\n"), std::string::npos);
  EXPECT_EQ(wire.substr(wire.size() - 7), "\r\n\r\nabc");
  EXPECT_FALSE(buffer.keeps_alive());
}

TEST(AnswerBufferTest, InterimResponseComesOnlyBeforeTheAnswer) {
  AnswerBuffer buffer({});
  buffer.WriteContinue();
  buffer.Respond(Hello());
  buffer.WriteContinue();
  EXPECT_EQ(TakeAll(buffer).rfind("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n", 0), 0u);
  AnswerBuffer old({.is_http_1_0 = true});
  old.WriteContinue();
  EXPECT_EQ(TakeAll(old), "");
}

}  // namespace
}  // namespace tandem::router
