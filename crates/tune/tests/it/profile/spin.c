/* Spins in known functions until it has used so much CPU time: `spin MODE MILLISECONDS`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double limit;

static double used(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

__attribute__((noinline)) unsigned long spin_inner(unsigned long n) {
  volatile unsigned long x = n;
  for (unsigned long i = 0; i < 200000; i++) x = x * 31 + i;
  return x;
}

__attribute__((noinline)) unsigned long spin_middle(unsigned long n) { return spin_inner(n) + 1; }

__attribute__((noinline)) unsigned long spin_outer(unsigned long n) { return spin_middle(n) * 3; }

/* Large frames, so that only the innermost are within a short copy of the stack. */
__attribute__((noinline)) unsigned long spin_wide(unsigned long n) {
  volatile char room[3000];
  room[n % sizeof room] = (char)n;
  return n == 0 ? spin_inner(1) + (unsigned long)room[0] : spin_wide(n - 1) + (unsigned long)room[n];
}

__attribute__((noinline)) static void until(unsigned long (*work)(unsigned long), clockid_t clock) {
  unsigned long sum = 0;
  while (used(clock) < limit) sum += work(12);
  if (sum == 1) abort();
}

__attribute__((noinline)) void *in_thread(void *name) {
  pthread_setname_np(pthread_self(), name);
  until(spin_outer, CLOCK_THREAD_CPUTIME_ID);
  return NULL;
}

int main(int count, char **words) {
  if (count != 3) return 2;
  limit = atof(words[2]);
  if (strcmp(words[1], "deep") == 0) {
    until(spin_outer, CLOCK_PROCESS_CPUTIME_ID);
  } else if (strcmp(words[1], "wide") == 0) {
    until(spin_wide, CLOCK_PROCESS_CPUTIME_ID);
  } else if (strcmp(words[1], "threads") == 0) {
    pthread_t threads[2];
    char *names[2] = {"spinner-0", "spinner-1"};
    for (int at = 0; at < 2; at++) pthread_create(&threads[at], NULL, in_thread, names[at]);
    for (int at = 0; at < 2; at++) pthread_join(threads[at], NULL);
  } else if (strcmp(words[1], "child") == 0) {
    if (fork() == 0) execl("/proc/self/exe", "spun", "deep", words[2], NULL);
    wait(NULL);
  } else if (strcmp(words[1], "fail") == 0) {
    until(spin_outer, CLOCK_PROCESS_CPUTIME_ID);
    return 3;
  }
  return 0;
}
