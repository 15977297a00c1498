// decode_worker: continues sequences whose KV it pulls from prefill workers. See README.md.
#include "decode_worker/config.h"
#include "decode_worker/worker.h"
#include "worker_shell/worker_main.h"

int main(int argc, char** argv) {
  return tandem::worker_shell::WorkerMain<tandem::decode::Worker, tandem::decode::DecodeConfig>(argc, argv, "decode");
}
