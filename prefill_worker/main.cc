// prefill_worker: computes prompts and lets decode workers pull their KV. See README.md.
#include "prefill_worker/config.h"
#include "prefill_worker/worker.h"
#include "worker_shell/worker_main.h"

int main(int argc, char** argv) {
  return tandem::worker_shell::WorkerMain<tandem::prefill::Worker, tandem::prefill::PrefillConfig>(argc, argv,
                                                                                                   "prefill");
}
