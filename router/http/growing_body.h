// A request's body as a string that takes memory as its bytes come, whatever length the client has announced: Beast's
// own string body takes all of it at the header. Internal to router/http; tested by http_server_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "boost/asio/buffer.hpp"
#include "boost/beast/core/buffers_range.hpp"
#include "boost/beast/core/error.hpp"
#include "boost/beast/http/message.hpp"
#include "boost/optional.hpp"

namespace tandem::router {

struct GrowingBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<std::uint64_t>& length, boost::beast::error_code& error) {
      error = {};
      if (length.has_value()) length_ = static_cast<size_t>(*length);
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::beast::error_code& error) {
      error = {};
      const size_t num_bytes = boost::asio::buffer_size(buffers);
      const size_t needed = body_.size() + num_bytes;
      // Twice as much each time, and at last no more than the body has.
      if (needed > body_.capacity()) body_.reserve(std::max(needed, std::min(length_, 2 * needed)));
      for (const auto& buffer : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
      }
      return num_bytes;
    }
    void finish(boost::beast::error_code& error) { error = {}; }

   private:
    value_type& body_;
    size_t length_ = 0;  // 0: not announced
  };
};

}  // namespace tandem::router
