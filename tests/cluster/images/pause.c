// SPDX-License-Identifier: Apache-2.0
// Holds a pod's namespaces open and reaps the processes that other containers of the pod leave to it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

static void reap(int number) {
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  const struct sigaction ending = {.sa_handler = end};
  const struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  if (sigaction(SIGTERM, &ending, NULL) != 0 || sigaction(SIGINT, &ending, NULL) != 0 || sigaction(SIGCHLD, &reaping, NULL) != 0) return 1;
  for (;;) pause();
}
