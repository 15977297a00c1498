// What LeakSanitizer has to know about Debian's libraries. Linked under --config=asan alone, into everything that uses
// UCX. Its frames end at UCX's first function, which keeps no frame pointer: a library is all that a line can name.
extern "C" const char* __lsan_default_suppressions() {
  return
      // UCX 1.13.1 does not free what it has unpacked of a memory key whose process is gone.
      "leak:libuct.so\n"
      // It crashes where a listener goes away while somebody connects, so that a source leaves its own to the end of
      // the process (kvtransfer/ucx_am_server.h). Who connects until then waits in a queue that LeakSanitizer, since
      // UCX maps it itself, does not see.
      "leak:libucs.so\n";
}
