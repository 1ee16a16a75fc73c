/* The log: each line is formatted on the caller's stack and written with one call, so lines of
 * several threads and processes do not mix.
 *
 * Threads: any. The lock covers only the file; a message below the level costs one load. */
#include "base/base.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE 1024

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_path[CONF_PATH_MAX]; /* "": stderr */
static int log_fd = STDERR_FILENO;
static atomic_int log_max = LOG_WARN;

/* The lock may be held by a thread that a forked child does not have. */
static void after_fork(void)
{
	pthread_mutex_init(&log_lock, NULL);
}

static void install_after_fork(void)
{
	pthread_atfork(NULL, NULL, after_fork);
}

static void log_enter(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install_after_fork);
	pthread_mutex_lock(&log_lock);
}

/* Called under the lock. If the file cannot be opened, the log says so and stays where it was. */
static void log_attach(void)
{
	int fd = STDERR_FILENO;

	if (log_path[0])
		fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0) {
		dprintf(log_fd, "cannot open the log %s: %s; logging continues here\n", log_path,
			error_text(errno));
		return;
	}
	if (log_fd != STDERR_FILENO)
		close(log_fd);
	log_fd = fd;
}

void log_open(const char *path, enum log_level max)
{
	log_set_level(max);
	log_enter();
	snprintf(log_path, sizeof(log_path), "%s", path ? path : "");
	log_attach();
	pthread_mutex_unlock(&log_lock);
}

void log_reopen(void)
{
	log_enter();
	log_attach();
	pthread_mutex_unlock(&log_lock);
}

void log_set_level(enum log_level max)
{
	atomic_store_explicit(&log_max, (int)max, memory_order_relaxed);
}

/* "2026-01-31T12:00:00.123Z info net [1f] " */
static size_t log_head(char *line, size_t n, enum log_level lv, const char *component,
		       uint64_t trace)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	char tag[24] = "";
	struct timespec now;
	struct tm tm;
	int len;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	if (trace)
		snprintf(tag, sizeof(tag), " [%llx]", (unsigned long long)trace);
	len = snprintf(line, n, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %s %s%s ", tm.tm_year + 1900,
		       tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
		       (int)(now.tv_nsec / 1000000), names[lv], component, tag);
	return MIN((size_t)len, n - 1);
}

void log_at(enum log_level lv, const char *component, uint64_t trace, const char *fmt, ...)
{
	char line[LOG_LINE];
	int saved = errno, body;
	size_t len;
	va_list ap;

	if ((int)lv > atomic_load_explicit(&log_max, memory_order_relaxed))
		return;
	len = log_head(line, sizeof(line) - 1, lv, component, trace);
	va_start(ap, fmt);
	body = vsnprintf(line + len, sizeof(line) - 1 - len, fmt, ap);
	va_end(ap);
	if (body > 0)
		len = MIN(len + (size_t)body, sizeof(line) - 2);
	for (size_t i = 0; i < len; i++) /* names are external input: no forged lines, no escapes */
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = ' ';
	line[len++] = '\n';
	log_enter();
	if (write(log_fd, line, len) < 0) {
		/* there is no other place to report it */
	}
	pthread_mutex_unlock(&log_lock);
	errno = saved;
}
