/* Processes, temporary directories and waiting, for system tests. Processes and directories that a
 * test program made are removed when it ends, however it ends (on_exit, and PR_SET_PDEATHSIG for a
 * program that is killed).
 *
 * Client processes are this program, executed again: `child_start(NAME, ...)` runs the function
 * that the test's child() selects by NAME. A process that has threads never forks without exec.
 *
 * Threads: the main thread only. Errors: every error is a failed check. */
#ifndef SHEAF_TEST_TEST_PROCESS_H
#define SHEAF_TEST_TEST_PROCESS_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* ---- cleanup at exit ---- */

/* Removes a directory and what is below it; stays in one file system. */
void trash_remove(const char *dir);

/* Creates a directory that is removed when the program ends. */
void temp_dir(char *out, size_t n);

/* ---- time ---- */

/* Seconds of the monotonic clock. */
double now_s(void);

/* Sleeps, whatever signals arrive. */
void pause_ms(int ms);

/* A busy machine may delay any process by seconds. Tests therefore judge speed only when
 * SHEAF_JUDGE_SPEED=1 says that the machine is otherwise idle. */
bool judges_speed(void);

/* n, or a tenth of it where SHEAF_TEST_SLOW=1 says that the processor is emulated. */
int scaled(int n);

/* A time that others must not exceed: n, or five times as much there. */
int patient(int n);

/* Checks the condition every 20 ms for at most `s` seconds and returns whether it became true.
 * Conditions that must become true get PATIENCE_S; a passing test does not wait that long. */
#define PATIENCE_S 60
#define WITHIN(s, cond) \
	({ \
		double within_end_ = now_s() + (s); \
		bool within_ok_; \
		while (!(within_ok_ = (cond)) && now_s() < within_end_) \
			pause_ms(20); \
		within_ok_; \
	})

/* Keeps the directories of a program that fails. */
void keep_failed_dirs(void);

/* ---- processes ---- */

/* Starts argv with `fd` (or -1) kept open. The child is killed when this process dies. */
pid_t process_start(const char *const *argv, int fd);

/* Waits for the process and returns its exit status, or 256 + the signal that killed it. */
int process_wait(pid_t pid);

/* Waits until the process has stopped itself. */
void process_await_stop(pid_t pid);

/* Executes this program again as a client: --child NAME ARG... */
pid_t child_start(const char *name, ...);

#endif
