// What LeakSanitizer has to know about Debian's libraries. Linked under --config=asan alone, into everything that uses
// UCX.
extern "C" const char* __lsan_default_suppressions() {
  // UCX 1.13.1 does not free what it has unpacked of a memory key whose process is gone.
  return "leak:libuct.so\n";
}
