#include "router/preparation_threads.h"

#include "boost/asio/thread_pool.hpp"

namespace tandem::router {

PreparationThreads::PreparationThreads()
    : others_(std::make_unique<boost::asio::thread_pool>(1)), huge_(std::make_unique<boost::asio::thread_pool>(1)) {}

PreparationThreads::~PreparationThreads() = default;

}  // namespace tandem::router
